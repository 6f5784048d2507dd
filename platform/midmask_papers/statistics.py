"""What claims need besides ranked lists: shares among masked tokens, divergences of embeddings; measured elsewhere,
each with its run.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Self

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval
from midmask.identity import Config, as_user_error


class Statistic(Config):
    """One figure of one system on one corpus."""

    measure: str = Field(description="stop share, KL or JS")
    system: str = Field(description="a recipe's name, or a variant of one")
    corpus: str = Field(description="short name of the corpus")
    values: tuple[float, ...] = Field(min_length=1, description="one per seed or draw")
    count: int = Field(0, ge=0, description="of a share: of how many; 0: it is none")
    source: str = Field(description="the command that gave it")

    @model_validator(mode="after")
    def _share_is_one(self) -> Self:
        if self.count and not (len(self.values) == 1 and 0 <= self.values[0] <= 1):
            raise ValueError(f"{self.measure} of {self.system}: a share of {self.count} is one value between 0 and 1")
        return self

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def variance(self) -> Variance:
        """Of the mean: of a share the binomial's, else from the draws; infinite for a single one."""
        return Variance.of_share(self.mean, self.count) if self.count else Variance.of_mean(self.values)


def difference(left: Statistic, right: Statistic, alpha: float) -> IntervalEstimate:
    """left less right, measured independently of each other."""
    return interval(left.mean - right.mean, [left.variance, right.variance], alpha)


def read_shipped() -> tuple[Statistic, ...]:
    """Those that come with the package."""
    return _parse((files("midmask_papers") / "statistics.yaml").read_text(encoding="utf-8"), "statistics.yaml")


def read_statistics(path: Path) -> tuple[Statistic, ...]:
    """A YAML list of statistics.

    Raises:
        UserError: if there is no such file, or it has a wrong field, naming it.
    """
    if not path.is_file():
        raise UserError(f"statistics: there is no file {path}; give a YAML list as in midmask_papers/statistics.yaml")
    return _parse(path.read_text(encoding="utf-8"), path.name)


def _parse(text: str, name: str) -> tuple[Statistic, ...]:
    try:
        return _LIST.validate_python(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        raise as_user_error(error, name) from None


_LIST = TypeAdapter(tuple[Statistic, ...])


def of(found: Sequence[Statistic], measure: str, system: str) -> dict[str, Statistic]:
    """Corpus -> the system's statistic."""
    return {one.corpus: one for one in found if (one.measure, one.system) == (measure, system)}
