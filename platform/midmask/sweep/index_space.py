"""The list of indexes that `sweep-index` compares, from a YAML file."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from midmask.evaluation.presets import expand
from midmask.identity import Config
from midmask.retrieve.index import IndexFields
from midmask.sweep.space_file import load_fields


class IndexPoint(IndexFields):
    """One index with its parameters."""

    @property
    def label(self) -> str:
        """The factory string, and the parameters that are not at their default: `IVF256,Flat nprobe 4`."""
        given = self.model_dump(exclude={"index"}, exclude_defaults=True)
        return " ".join([self.index, *(f"{name} {value}" for name, value in given.items())])


class IndexSpace(Config):
    """Indexes of one encoding, all searched to one depth."""

    depth: int = Field(100, ge=1, le=100_000, description="passages ranked for each query")
    measure: str = Field("nDCG@10", description="retrieval measure beside recall, speed and bytes")
    points: tuple[IndexPoint, ...] = Field(min_length=1, description="factory strings with their parameters")

    @model_validator(mode="after")
    def _points_differ_and_the_measure_is_known(self) -> Self:
        expand((self.measure,))
        labels = [point.label for point in self.points]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"points: {twice} is listed twice; leave one out")
        return self


def load_index_space(path: Path) -> IndexSpace:
    """Reads a YAML file.

    Raises:
        UserError: if the file is missing, is no YAML mapping, or has a wrong field; the line names the field.
    """
    wanted = f"{path}: a mapping of fields is wanted, with a list of points; see search_spaces/indexes"
    return load_fields(path, IndexSpace, wanted)
