"""The numbers that the papers print, as data.

One YAML file a paper in `numbers/`, transcribed from the papers. A table there is a grid: what a value is of
(system, measure, …) is told by its column, its row and what all share; a value in braces has a note, where the sources
contradict each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from midmask.benchmark.results import Results, SystemKey
from midmask.core.config import Config, as_user_error
from midmask.errors import UserError


@dataclass(frozen=True)
class Published:
    """One number that a paper printed."""

    paper: str
    table: str
    label: str
    # An ir-measures name, or KL, JS (divergences of embeddings), stop share (fraction of stop-words and punctuation
    # among masked tokens), wins (fraction of collections on which one system beats another)
    measure: str
    value: float  # a fraction
    system: str = ""  # a recipe, or a variant as "recipe[field=value,…]"; empty for systems that midmask lacks
    collection: str = ""  # as in `results.SystemKey`, like the next two; empty where unpublished
    representation: str = ""
    setting: str = ""
    condition: str = ""  # the paper's own word for the setting
    corpus: str = ""
    split: str = ""
    against: str = ""  # the system that a difference or a fraction of wins is relative to
    note: str = ""  # why the value is doubtful; empty if it is not


class PublishedTable(Config):
    """A grid of printed numbers; in a cell, a row's fields outdo its column's, and these the shared ones."""

    table: str = Field(description="its number in the paper")
    percent: bool = Field(False, description="whether values are printed a hundredfold")
    shared: dict[str, str] = Field({}, description="fields of `Published` that all cells share")
    columns: tuple[dict[str, str], ...] = Field(description="fields of each column")
    rows: tuple[dict[str, Any], ...] = Field(
        description="fields of each row, and its `values` in the order of the columns as printed: null where nothing "
        "is, {value, note} for one that is doubtful"
    )

    def numbers(self, paper: str) -> Iterator[Published]:
        """Its numbers, row by row."""
        for row in self.rows:
            for column, cell in zip(self.columns, row["values"], strict=True):
                if cell is not None:
                    noted = cell if isinstance(cell, dict) else {"value": cell, "note": ""}
                    printed = Decimal(str(noted["value"]))
                    fields = {**self.shared, **column, **row, "note": noted["note"]}
                    del fields["values"]
                    value = float(printed / 100 if self.percent else printed)
                    yield Published(paper=paper, table=self.table, value=value, **fields)


class Paper(Config):
    """One file of `numbers/`."""

    paper: str = Field(description="short name, that of the preset")
    citation: str = Field(description="authors, year, title, venue")
    conditions: dict[str, str] = Field(description="backbone, collections, titles, steps, seeds, as the paper has them")
    missing: tuple[dict[str, str], ...] = Field((), description="what it prints, or draws, that is not here, and why")
    tables: tuple[PublishedTable, ...] = Field(description="its tables")


Row = TypeVar("Row")


def read_list(rows: TypeAdapter[tuple[Row, ...]], text: str, name: str) -> tuple[Row, ...]:
    """The rows of a YAML file of this name.

    Raises:
        UserError: for a text that is no YAML, or a wrong field, naming it.
    """
    try:
        return rows.validate_python(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        raise as_user_error(error, name) from None


PAPERS = ("sigir23", "dupmae", "retromae", "cotmote", "rom")
"""Short names, those of the presets."""


@cache
def paper(name: str) -> Paper:
    """A paper's file; name: one of `PAPERS`."""
    return Paper.model_validate(yaml.safe_load((files(__package__) / "numbers" / f"{name}.yaml").read_text("utf-8")))


@cache
def published(name: str, table: str | None = None) -> tuple[Published, ...]:
    """The printed numbers of a paper, table by table, or of one of its tables."""
    return tuple(number for grid in paper(name).tables if table in (None, grid.table) for number in grid.numbers(name))


def pick(paper: str, table: str, **fields: str) -> Published:
    """The one number of a table with these fields.

    Raises:
        LookupError: if there is none, or more than one.
    """
    numbers = [number for number in published(paper, table) if fields.items() <= vars(number).items()]
    if len(numbers) != 1:
        raise LookupError(f"{len(numbers)} numbers of {paper}, table {table} have {fields}")
    return numbers[0]


CORPUS = "corpus"
"""The collection that is the corpus itself; benchmarks may also call it by the corpus' name."""


def key_of(number: Published) -> SystemKey:
    """Of a printed number; empty fields match nothing."""
    return SystemKey(number.system, number.collection, number.representation, number.setting)


def corpus_names(name: str) -> tuple[str, ...]:
    """The names under which a corpus that papers call so may be searched: its own, and its ids in ir_datasets."""
    return name, f"beir-{name}", f"msmarco-passage-{name}", f"msmarco-passage-{name}-judged"


def resolve_corpus(name: str, results: Results) -> str:
    """The corpus that papers call so; the name itself if it was not measured."""
    corpora = results.names("corpus")
    return next((corpus for corpus in corpus_names(name) if corpus in corpora), name)
