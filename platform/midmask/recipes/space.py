"""Search spaces as data: a measure, a mode, a budget, and a distribution for each dotted path of a recipe."""

import itertools
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from midmask.errors import UserError
from midmask.identity import Config, as_user_error, override
from midmask.recipes.schema import Recipe

Value = bool | int | float | str


class Distribution(Config):
    """What a parameter may be: a list of values for a grid, a range for a sampler, or both."""

    values: tuple[Value, ...] = Field((), description="the grid's values")
    low: float | None = Field(None, description="lower end of the range, included")
    high: float | None = Field(None, description="upper end of the range, included")
    log: bool = Field(False, description="whether the range is searched on a logarithmic scale")

    @model_validator(mode="after")
    def _something_is_given(self) -> "Distribution":
        if (self.low is None) != (self.high is None):
            raise ValueError("a range needs both low and high")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low = {self.low} is not below high = {self.high}")
        if not self.values and self.low is None:
            raise ValueError("give values (a list), or low and high")
        return self

    def extremes(self) -> tuple[Value, ...]:
        return (*self.values, *(end for end in (self.low, self.high) if end is not None))


class Rungs(Config):
    """Where a trial may be pruned. The pre-training loss never decides: it changes with the ratio that is swept."""

    shares: tuple[float, ...] = Field((0.25, 0.5), description="shares of the pre-training at which a trial is probed")
    steps: int = Field(40, ge=1, description="steps of the short fine-tuning of a probe, equal for all trials")
    max_queries: int = Field(500, ge=1, le=500, description="dev queries that a probe is measured on")
    reduction: int = Field(2, ge=2, description="one in so many trials goes on at each rung")

    @model_validator(mode="after")
    def _shares_are_prefixes(self) -> "Rungs":
        if any(not 0 < share < 1 for share in self.shares) or list(self.shares) != sorted(set(self.shares)):
            raise ValueError(
                f"rungs.shares = {list(self.shares)}: give ascending shares between 0 and 1, such as [0.25, 0.5]"
            )
        return self


class Space(Config):
    """One file of `search_spaces/`."""

    name: str = Field(description="names the sweep and its study")
    recipe: str = Field(description="the recipe that is varied")
    corpus: str | None = Field(None, description="the corpus, unless --corpus says otherwise; none: the recipe's")
    settings: dict[str, Value | list[Value] | None] = Field(
        {}, description="fixed changes to the recipe, by dotted path"
    )
    measure: str = Field("nDCG@10", description="what is optimised, as ir-measures writes it, on dev")
    mode: Literal["max", "min"] = Field("max", description="whether more is better")
    search: Literal["grid", "random", "tpe"] = Field("grid", description="how the next trial is chosen")
    trials: int = Field(9, ge=1, description="budget of random and tpe; a grid runs all its points")
    parameters: dict[str, Distribution] = Field(min_length=1, description="dotted path -> distribution")
    rungs: Rungs = Field(default_factory=Rungs, description="where and how trials are pruned")
    baselines: tuple[str, ...] = Field(("none", "mlm"), description="recipes that the winner is held against")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="fine-tuning seeds of the final comparison")

    @model_validator(mode="after")
    def _search_fits_parameters(self) -> "Space":
        for path, distribution in self.parameters.items():
            if self.search == "grid" and not distribution.values:
                raise ValueError(f"parameters.{path}: --search grid needs values; there is only a range")
            if self.search != "grid" and distribution.low is None and not distribution.values:
                raise ValueError(f"parameters.{path}: --search {self.search} needs low and high, or values")
        return self


def load_space(path: Path) -> Space:
    """Reads a YAML file.

    Raises:
        UserError: if the file is missing, is no YAML mapping, or has a wrong field; the line names the field.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = ", ".join(sorted(found.name for found in path.parent.glob("*.yaml"))) or "none"
        raise UserError(f"search space {path}: no such file; in {path.parent}: {names}") from None
    except yaml.YAMLError as error:
        raise UserError(f"search space {path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(data, dict):
        raise UserError(f"search space {path}: a mapping of fields is wanted, with at least name, recipe, parameters")
    try:
        return Space.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, path.name) from None


def check(space: Space, recipe: Recipe) -> None:
    """Tries every extreme of every parameter on the recipe, before anything starts.

    Raises:
        UserError: for a path that the recipe lacks, naming the nearest, or a value that it or its backbone refuses.
    """
    for path, distribution in space.parameters.items():
        for value in distribution.extremes():
            override(recipe, {path: value}).check()


def grid(space: Space) -> list[dict[str, Any]]:
    """All points of the grid, the last parameter running fastest."""
    paths = list(space.parameters)
    lists = [space.parameters[path].values for path in paths]
    return [dict(zip(paths, point, strict=True)) for point in itertools.product(*lists)]
