"""A finished sweep as data: `sweep.json`, from which its report, its charts and the page Sweep are made.

It is an artifact of the sweep and of its tracked run. Numbers are finite: null stands for what is infinite or not
known. A sweep that still runs has no such file yet; the page Sweep shows what can be read from its trials.
"""

import json
import math
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from midmask.core.config import Config, as_user_error
from midmask.evaluation.statistics.significance import ComparisonOutcome
from midmask.tracking.reading import artifact_file

SWEEP_FILE = "sweep.json"

ParameterValue = bool | int | float | str | None


def _null_if_infinite(value: object) -> object:
    return None if isinstance(value, float) and math.isinf(value) else value


FiniteOrNone = Annotated[float | None, BeforeValidator(_null_if_infinite)]
"""A single query gives an interval without ends, which JSON cannot express."""


class SweepPart(Config):
    """Base of the parts of a sweep's result. Unknown fields are left out: a newer version may have added them."""

    model_config = ConfigDict(extra="ignore")


class SweepMeasure(SweepPart):
    measure: str
    mode: Literal["max", "min"]


class SweepParameter(SweepPart):
    path: str = Field(description="dotted path in the recipe's config")
    label: str
    log: bool = Field(description="whether the range is searched on a logarithmic scale")
    constant: bool = Field(description="whether there is nothing to choose")


class DifferenceToBest(SweepPart):
    """A point less the best point, over queries and seeds."""

    difference: FiniteOrNone
    p_corrected: FiniteOrNone = Field(description="p after Holm's correction")
    detectable: FiniteOrNone = Field(description="smallest true difference that is found with a probability of 0.8")
    distinguishable: bool


class SweepPoint(SweepPart):
    """One point that was tried."""

    label: str = Field(description='unique: "decoding=basic decoder_layers=2"')
    mark: str | None = Field(description='a name that the space gives to the point ("CLS:768")')
    parameters: dict[str, ParameterValue] = Field(description="path -> value, without those that do not exist there")
    run: str = Field(description="`midmask.fingerprint` of the trial's tracked run, below the sweep's")
    complete: bool = Field(description="whether it ran to the end; else it was pruned at a rung")
    probes: tuple[float, ...] = Field(description="the measure at each rung that it reached before the last")
    values: dict[str, float] = Field(description="objective -> value; empty if pruned")
    measures: dict[str, float] = Field(description="every measure of its evaluation on dev")
    costs: dict[str, float] = Field(description="by the names of `experiment.costs.Costs`, without those not known")
    front: bool = Field(description="whether it is on the Pareto front; without a cost, whether it is the best")
    to_best: DifferenceToBest | None = Field(description="null for the best point and for pruned ones")


class NoiseFloor(SweepPart):
    value: float = Field(description="difference between two points that is found with a probability of 0.8")
    seed_spread: float = Field(description="standard deviation over fine-tuning seeds, of all systems together")
    seed_degrees: int = Field(description="degrees of freedom of that deviation")


class DifferenceToFloor(SweepPart):
    """A system less the floor, on the queries of one split."""

    difference: FiniteOrNone
    low: FiniteOrNone
    high: FiniteOrNone
    p: float = Field(description="after Holm's correction")
    outcome: ComparisonOutcome
    queries: int


class ComparedSystem(SweepPart):
    """A system of the final comparison, by the measure."""

    label: str
    dev: tuple[float, ...] = Field(description="one value per seed")
    test: tuple[float, ...] = Field(description="one value per seed")
    to_floor: dict[str, DifferenceToFloor] = Field(description="by split; empty for the floor itself")

    @property
    def means(self) -> dict[str, float]:
        """Split -> mean over seeds."""
        return {"dev": fmean(self.dev), "test": fmean(self.test)}


class SweepResult(SweepPart):
    format: Literal[1] = Field(1, description="of this file; a change that older versions cannot read has a new number")
    name: str
    study: str
    fingerprint: str
    recipe: str
    corpus: str
    search: str
    objectives: tuple[SweepMeasure, ...] = Field(description="the measure, which decides, and the cost")
    parameters: tuple[SweepParameter, ...] = Field(description="in the order of the space")
    points: tuple[SweepPoint, ...] = Field(description="in the order of asking")
    best: str = Field(description="label of the best point by the measure")
    noise_floor: NoiseFloor | None = Field(description="null where no two points were compared")
    systems: tuple[ComparedSystem, ...] = Field(description="the final comparison, the best point first")
    floor: str = Field(description="system that the others are compared with")
    sentences: tuple[str, ...] = Field(description="what the report says")

    @property
    def complete(self) -> list[SweepPoint]:
        return [point for point in self.points if point.complete]

    @property
    def measure(self) -> str:
        """The objective that decides, on dev."""
        return self.objectives[0].measure

    @property
    def cost(self) -> str | None:
        """The objective beside it."""
        return self.objectives[1].measure if len(self.objectives) > 1 else None


def parse_sweep(data: dict[str, Any]) -> SweepResult:
    """The result from the file's content.

    Raises:
        UserError: for another format, or a field that is missing or wrong.
    """
    try:
        return SweepResult.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, SWEEP_FILE) from None


def read_sweep(uri: str, run_id: str) -> SweepResult | None:
    """The result of a sweep's tracked run, None if the run has no such file.

    Raises:
        UserError: if the store does not answer, or as `parse_sweep`.
    """
    path = artifact_file(uri, run_id, SWEEP_FILE)
    return None if path is None else parse_sweep(json.loads(path.read_text()))


def choices(sweep: SweepResult) -> list[SweepParameter]:
    """Parameters of which the complete points have more than one value, or which some of them lack; a constant that
    some lack adds nothing to its condition.
    """
    kinds = {
        parameter.path: {str(point.parameters.get(parameter.path, "absent")) for point in sweep.complete}
        for parameter in sweep.parameters
    }
    return [parameter for parameter in sweep.parameters if len(kinds[parameter.path]) > 1 and not parameter.constant]


def value_text(value: ParameterValue) -> str:
    """A parameter's value for people: `0.3`, `none`, `basic`."""
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
