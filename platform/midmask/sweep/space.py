"""Search spaces: what is optimised, a budget, a distribution for each field of a recipe; their files, their points.

A point is a mapping of dotted paths to values. It has exactly the parameters whose conditions hold in it, so that an
impossible point cannot be written down; two points that differ in nothing that counts are one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from midmask.core.config import Config, as_user_error
from midmask.core.randomness import python_stream
from midmask.errors import UserError, quoted, reason, unknown
from midmask.experiment.changes import apply_changes
from midmask.experiment.schema import Recipe
from midmask.sweep.sweep_file import ParameterValue, value_text

CostName = Literal["bytes_per_passage", "search_ms_per_query", "train_seconds"]
"""Fields of `experiment.costs.Costs` that may be optimised beside a measure."""


class Distribution(Config):
    """The possible values of a parameter: a list for a grid, a range for a sampler, or both.

    A parameter with a condition exists only where the condition holds. Elsewhere it is left as the recipe has it.
    """

    values: tuple[ParameterValue, ...] = Field((), description="the grid's values")
    low: int | float | None = Field(None, description="lower end of the range, included")
    high: int | float | None = Field(
        None, description="upper end of the range, included; a range between whole numbers has whole numbers alone"
    )
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
        return {path: needed if isinstance(needed, list | tuple) else [needed] for path, needed in conditions.items()}

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
        if self.log and (self.low is None or self.low <= 0):
            raise ValueError(f"low = {self.low}: a logarithmic scale is of a range with low > 0")
        return self

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing to choose: one value, which a condition may ask for."""
        return len(self.values) == 1 and self.low is None

    def extremes(self) -> tuple[ParameterValue, ...]:
        """Values that a recipe must accept for it to accept all: those listed, the range's ends, and one from within a
        range of fractions, which a whole number's field refuses.
        """
        if self.low is None or self.high is None:
            return self.values
        is_whole = isinstance(self.low, int) and isinstance(self.high, int)
        inside = () if is_whole else (self.low + 0.382 * (self.high - self.low),)
        return (*self.values, self.low, *inside, self.high)


class Rungs(Config):
    """Where a trial is probed, and pruned if it is poor; without shares, all run to the end. The pre-training loss
    never decides: it changes with the ratio that is swept.
    """

    shares: tuple[float, ...] = Field((0.25, 0.5), description="shares of the pre-training at which a trial is probed")
    steps: int = Field(40, ge=1, description="steps of the short fine-tuning of a probe, equal for all trials")
    max_queries: int = Field(500, ge=1, le=500, description="dev queries that a probe is measured on")
    reduction: int = Field(2, ge=2, description="one in so many trials goes on at each rung (ASHA)")

    @model_validator(mode="after")
    def _shares_are_prefixes(self) -> "Rungs":
        if any(not 0 < share < 1 for share in self.shares) or list(self.shares) != sorted(set(self.shares)):
            raise ValueError(
                f"rungs.shares = {list(self.shares)}: give ascending shares between 0 and 1, such as [0.25, 0.5], or []"
            )
        return self


class Space(Config):
    """One file of `search_spaces/`."""

    name: str = Field(pattern=r"^[\w-]+$", description="names the sweep and its study")
    recipe: str = Field(description="the recipe that is varied")
    protocol: str | None = Field(None, description="fine-tuning, at demo size, in place of the recipe's own")
    settings: dict[str, ParameterValue | list[ParameterValue]] = Field(
        {}, description="fixed changes to the recipe by dotted path, and to the baselines but for objective.*"
    )
    measure: str = Field("nDCG@10", description="what trials are chosen by, as ir-measures writes it, on dev")
    cost: CostName | None = Field(
        None, description="what is to be small at the same time; trials are then not pruned, and the front is reported"
    )
    search: Literal["grid", "random", "tpe"] = Field(
        "grid", description="how the next trial is chosen; tpe with a cost is MOTPE"
    )
    trials: int = Field(9, ge=1, description="budget of random and tpe; a grid runs all its points")
    parameters: dict[str, Distribution] = Field(min_length=1, description="dotted path -> distribution")
    marks: dict[str, dict[str, ParameterValue]] = Field(
        {},
        description="name -> values of parameters: a point that plots mark by name; with a cost, those among the "
        "trials are compared in the end",
    )
    rungs: Rungs = Field(default_factory=Rungs, description="where and how trials are probed and pruned")
    baselines: tuple[str, ...] = Field(("none", "mlm"), description="recipes that the winner is held against")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="fine-tuning seeds of the final comparison")

    @property
    def objectives(self) -> tuple[str, ...]:
        """What is optimised: the measure, which decides who is best and is to be large, and the cost."""
        return (self.measure,) if self.cost is None else (self.measure, self.cost)

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the pre-training after which a trial is measured; the last is 1."""
        return (*self.rungs.shares, 1.0) if self.cost is None else (1.0,)

    @model_validator(mode="after")
    def _parameters_fit(self) -> "Space":
        """A grid has values. A condition is on a parameter above, and can hold. A mark is on parameters."""
        above: dict[str, Distribution] = {}
        for path, distribution in self.parameters.items():
            if self.search == "grid" and not distribution.values:
                raise ValueError(f"parameters.{path}: --search grid needs values; there is only a range")
            for other, needed in distribution.when.items():
                if other not in above:
                    hint = "A condition looks at parameters that stand above it."
                    raise unknown("parameter", other, [*above], hint=f"In parameters.{path}.when. {hint}")
                values = list(above[other].values)
                if impossible := [value for value in needed if value not in values]:
                    where = f"parameters.{path}.when"
                    raise ValueError(f"{where}: {other} is never {impossible[0]!r}; its values are {values}")
            above[path] = distribution
        for name, point in self.marks.items():
            for path in point:
                if path not in self.parameters:
                    raise unknown("parameter", path, [*self.parameters], hint=f"In marks.{name}.")
        return self


def load_space(path: Path) -> Space:
    """Reads a YAML file.

    Raises:
        UserError: if the file is missing, is no YAML mapping, or has a wrong field; the line names the field.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = ", ".join(sorted(file.name for file in path.parent.glob("*.yaml"))) or "none"
        raise UserError(f"search space {path}: no such file; in {path.parent}: {names}") from None
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:  # such as no UTF-8; the date 2024-13-99
        raise UserError(f"search space {path}: no YAML can be read from it ({reason(error)})") from None
    if not isinstance(data, dict):
        raise UserError(f"search space {path}: a mapping of fields is wanted, with at least name, recipe, parameters")
    try:
        return Space.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, path.name) from None


ParameterPoint = dict[str, ParameterValue]

MOST = 2000
"""Corners of a space that are tried on the recipe (about a millisecond each); of more, so many are drawn."""


def is_active(distribution: Distribution, point: Mapping[str, ParameterValue]) -> bool:
    """Whether a parameter exists in a point whose parameters above it are known."""
    return all(path in point and point[path] in needed for path, needed in distribution.when.items())


def complete(space: Space, choose: Callable[[str, Distribution], ParameterValue]) -> ParameterPoint:
    """The point whose active parameters are chosen one by one, from the first."""
    point: ParameterPoint = {}
    for path, distribution in space.parameters.items():
        if is_active(distribution, point):
            point[path] = choose(path, distribution)
    return point


def grid(space: Space) -> list[ParameterPoint]:
    """All points of the grid, each once, the last parameter running fastest."""
    return _product(space, lambda distribution: distribution.values)


def budget(space: Space) -> int:
    """The number of trials that a sweep runs."""
    return len(grid(space)) if space.search == "grid" else space.trials


def _product(space: Space, values: Callable[[Distribution], Sequence[ParameterValue]]) -> list[ParameterPoint]:
    points: list[ParameterPoint] = [{}]
    for path, distribution in space.parameters.items():
        points = [
            {**point, **chosen}
            for point in points
            for chosen in (
                [{path: value} for value in values(distribution)] if is_active(distribution, point) else [{}]
            )
        ]
    return points


def check(space: Space, recipe: Recipe) -> None:
    """Tries the corners of the space on the recipe, before anything starts: every combination of extremes that the
    conditions leave, or `MOST` of them.

    Raises:
        UserError: for a path that the recipe lacks, naming the nearest; a value, or values together, that it or its
            backbone refuses; a mark that is no point of the space.
    """
    corners = _corners(space)
    for point in corners:
        try:
            apply_changes(recipe, point).check()
        except UserError as error:
            raise UserError(
                f"{describe_point(space, point)}: {error} (if these values exclude each other, give one of the "
                "parameters a condition: when: {PATH: VALUE})"
            ) from None
    has_ranges = any(distribution.low is not None for distribution in space.parameters.values())
    for name, values in space.marks.items():
        if not has_ranges and not any(is_marked(values, point) for point in corners):
            raise UserError(f"marks.{name}: no point of the space has {values}; add the values to its parameters")


def _corners(space: Space) -> list[ParameterPoint]:
    if math.prod(len(distribution.extremes()) for distribution in space.parameters.values()) <= MOST:
        return _product(space, Distribution.extremes)
    rng = python_stream(0)
    return [complete(space, lambda _, distribution: rng.choice(distribution.extremes())) for _ in range(MOST)]


def is_marked(values: Mapping[str, ParameterValue], point: Mapping[str, ParameterValue]) -> bool:
    """Whether a point is the one that a mark means: it has all its values."""
    return all(path in point and point[path] == value for path, value in values.items())


def mark_of(space: Space, point: Mapping[str, ParameterValue]) -> str | None:
    """The name under which plots and tables know a point, if it has one."""
    return next((name for name, values in space.marks.items() if is_marked(values, point)), None)


def labels(space: Space) -> dict[str, str]:
    """Path -> a short name: its label, else its end in words; the path where others end alike."""
    ends = {path: path.rsplit(".", 1)[-1] for path in space.parameters}
    alone = {path for path, end in ends.items() if [*ends.values()].count(end) == 1}
    return {
        path: distribution.label or (ends[path] if path in alone else path).replace("_", " ")
        for path, distribution in space.parameters.items()
    }


def describe_point(space: Space, point: Mapping[str, ParameterValue]) -> str:
    """`encoder mask ratio 0.3, decoder mask ratio 0.5`; what cannot be otherwise is left out."""
    names = labels(space)
    free = {path: value for path, value in point.items() if not space.parameters[path].is_constant}
    return ", ".join(f"{names[path]} {value_text(value)}" for path, value in free.items())


def briefly(space: Space, point: Mapping[str, ParameterValue]) -> str:
    """`0.3/0.5`, as papers write it; a mark's name where there is one."""
    free = [value for path, value in point.items() if not space.parameters[path].is_constant]
    return mark_of(space, point) or "/".join(map(value_text, free))
