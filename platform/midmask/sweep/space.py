"""Search spaces as data: what is optimised, a budget, and a distribution for each dotted path of a recipe."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from midmask.errors import quoted, unknown
from midmask.identity import Config
from midmask.sweep.space_file import load_fields

ParameterValue = bool | int | float | str | None
Mode = Literal["max", "min"]


COSTS = ("bytes_per_passage", "search_ms_per_query", "train_seconds")
"""Fields of `experiment.costs.Costs` that may be optimised beside a measure."""


class Distribution(Config):
    """What a parameter may be: a list of values for a grid, a range for a sampler, or both.

    A parameter with a condition exists only where the condition holds. Elsewhere it is left as the recipe has it.
    """

    values: tuple[ParameterValue, ...] = Field((), description="the grid's values")
    low: int | float | None = Field(None, description="lower end of the range, included")
    high: int | float | None = Field(None, description="upper end of the range, included")
    step: int | float | None = Field(None, gt=0, description="distance of the range's values; 1: whole numbers")
    log: bool = Field(False, description="whether the range is searched on a logarithmic scale")
    when: dict[str, tuple[ParameterValue, ...]] = Field(
        {},
        description="condition: path of a parameter above -> its value, or values, that this one needs; all must hold",
    )
    label: str = Field("", description="name in tables and plots; none: the end of the path")

    @field_validator("when", mode="before")
    @classmethod
    def _one_value_is_a_list_of_one(cls, conditions: object) -> object:
        if not isinstance(conditions, dict):
            return conditions
        return {path: wanted if isinstance(wanted, list | tuple) else [wanted] for path, wanted in conditions.items()}

    @model_validator(mode="after")
    def _something_is_given(self) -> "Distribution":
        if (self.low is None) != (self.high is None):
            raise ValueError("a range needs both low and high")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low = {self.low} is not below high = {self.high}")
        if not self.values and self.low is None:
            raise ValueError("give values (a list), or low and high")
        if len(set(map(repr, self.values))) < len(self.values):
            raise ValueError(f"values = {quoted(list(self.values))}: each only once")
        if self.low is None and (self.log or self.step is not None):
            raise ValueError("log and step are of a range; give low and high")
        if self.log and self.low is not None and self.low <= 0:
            raise ValueError(f"low = {self.low}: a logarithmic scale needs low > 0")
        if self.log and self.step is not None and self.step != 1:
            raise ValueError(f"step = {self.step}: on a logarithmic scale only whole numbers are stepped (step: 1)")
        if self.step is not None and any(not float(end).is_integer() for end in (self.low, self.high, self.step)):  # type: ignore[arg-type]
            raise ValueError(f"step = {self.step}: low, high and step of a stepped range are whole numbers")
        return self

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing to choose: one value, which a condition may ask for."""
        return len(self.values) == 1 and self.low is None

    def extremes(self) -> tuple[ParameterValue, ...]:
        """Values that a recipe must accept for it to accept all: those listed, the range's ends, and one from within
        an unstepped range, which a whole number's field refuses.
        """
        if self.low is None or self.high is None:
            return self.values
        inside = () if self.step is not None else (self.low + 0.382 * (self.high - self.low),)
        return (*self.values, self.low, *inside, self.high)


class Rungs(Config):
    """Where a trial is probed, and may be pruned. The pre-training loss never decides: it changes with the ratio that
    is swept.
    """

    shares: tuple[float, ...] = Field((0.25, 0.5), description="shares of the pre-training at which a trial is probed")
    steps: int = Field(40, ge=1, description="steps of the short fine-tuning of a probe, equal for all trials")
    max_queries: int = Field(500, ge=1, le=500, description="dev queries that a probe is measured on")
    reduction: int = Field(2, ge=2, description="one in so many trials goes on at each rung")
    prune: bool = Field(
        True,
        description="whether poor trials end at rungs (ASHA); false: all run to the end, which tells how well probes "
        "foretell it",
    )

    @model_validator(mode="after")
    def _shares_are_prefixes(self) -> "Rungs":
        if any(not 0 < share < 1 for share in self.shares) or list(self.shares) != sorted(set(self.shares)):
            raise ValueError(
                f"rungs.shares = {list(self.shares)}: give ascending shares between 0 and 1, such as [0.25, 0.5], or []"
            )
        return self


class Target(Config):
    """One thing that is optimised."""

    measure: str = Field(description=f"as ir-measures writes it, on dev; or a cost: {', '.join(COSTS)}")
    mode: Mode = Field(description="whether more is better")


class Space(Config):
    """One file of `search_spaces/`."""

    name: str = Field(pattern=r"^[\w-]+$", description="names the sweep and its study")
    recipe: str = Field(description="the recipe that is varied")
    protocol: str | None = Field(None, description="fine-tuning, at demo size, in place of the recipe's own")
    corpus: str | None = Field(None, description="the corpus, unless --corpus says otherwise; none: the recipe's")
    settings: dict[str, ParameterValue | list[ParameterValue]] = Field(
        {}, description="fixed changes to the recipe by dotted path, and to the baselines but for objective.*"
    )
    measure: str = Field("nDCG@10", description="what is optimised, as ir-measures writes it, on dev")
    mode: Mode = Field("max", description="whether more is better")
    objectives: tuple[Target, ...] = Field(
        (),
        description="several things at once, in place of measure and mode: the first is a measure, by which systems "
        "are compared in the end; such trials are not pruned",
    )
    search: Literal["grid", "random", "tpe", "nsga2"] = Field(
        "grid", description="how the next trial is chosen; tpe with several objectives is MOTPE"
    )
    trials: int = Field(9, ge=1, description="budget of random, tpe and nsga2; a grid runs all its points")
    parameters: dict[str, Distribution] = Field(min_length=1, description="dotted path -> distribution")
    marks: dict[str, dict[str, ParameterValue]] = Field(
        {},
        description="name -> values of parameters: a point that plots mark by name; with several objectives, those "
        "among the trials are compared in the end",
    )
    trial_seeds: tuple[int, ...] = Field(
        (), description="fine-tuning seeds of every trial, whose measure is their mean; none: the recipe's one"
    )
    rungs: Rungs = Field(default_factory=Rungs, description="where and how trials are probed and pruned")
    baselines: tuple[str, ...] = Field(("none", "mlm"), description="recipes that the winner is held against")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="fine-tuning seeds of the final comparison")

    @property
    def targets(self) -> tuple[Target, ...]:
        """What is optimised; the first decides who is best."""
        return self.objectives or (Target(measure=self.measure, mode=self.mode),)

    @property
    def has_several_objectives(self) -> bool:
        return len(self.targets) > 1

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the pre-training after which a trial is measured; the last is 1."""
        return (1.0,) if self.has_several_objectives else (*self.rungs.shares, 1.0)

    @model_validator(mode="after")
    def _search_fits_parameters(self) -> "Space":
        for path, distribution in self.parameters.items():
            if self.search == "grid" and not distribution.values:
                raise ValueError(f"parameters.{path}: --search grid needs values; there is only a range")
        if self.search == "nsga2" and not self.has_several_objectives:
            raise ValueError("search = nsga2 trades objectives off; give two or more objectives, or search with tpe")
        return self

    @model_validator(mode="after")
    def _objectives_are_told_apart(self) -> "Space":
        if self.objectives and (self.measure, self.mode) != ("nDCG@10", "max"):
            raise ValueError("objectives stand in place of measure and mode; give the one or the other")
        names = [objective.measure for objective in self.targets]
        if len(set(names)) < len(names):
            raise ValueError(f"objectives: {', '.join(names)}; each measure only once")
        if names[0] in COSTS:
            raise ValueError(f"objectives: the first must be a retrieval measure such as nDCG@10, not {names[0]}")
        return self

    @model_validator(mode="after")
    def _conditions_look_up(self) -> "Space":
        """A condition is on a parameter above, and can hold."""
        above: dict[str, Distribution] = {}
        for path, distribution in self.parameters.items():
            for other, wanted in distribution.when.items():
                if other not in above:
                    hint = "A condition looks at parameters that stand above it."
                    raise unknown("parameter", other, [*above], hint=f"In parameters.{path}.when. {hint}")
                impossible = [value for value in wanted if value not in above[other].values]
                if impossible:
                    raise ValueError(
                        f"parameters.{path}.when: {other} is never {impossible[0]!r}; its values are "
                        f"{list(above[other].values)}"
                    )
            above[path] = distribution
        return self

    @model_validator(mode="after")
    def _marks_are_on_parameters(self) -> "Space":
        for name, point in self.marks.items():
            for path in point:
                if path not in self.parameters:
                    raise unknown("parameter", path, [*self.parameters], hint=f"In marks.{name}.")
        return self


def load_space(path: Path) -> Space:
    """Reads a YAML file.

    Raises:
        UserError: if the file is missing, is no YAML mapping, has an alias or a wrong field; the line names the field.
    """
    wanted = f"search space {path}: a mapping of fields is wanted, with at least name, recipe, parameters"
    return load_fields(path, Space, wanted)
