"""The numbers that the papers print, as data.

One YAML file a paper in `numbers/`, transcribed from the papers. A table there is a grid: what a value is of
(system, measure, …) is told by its column, its row and what all share; a value in braces has a note, where the sources
contradict each other.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from midmask.benchmark.results import Results, SystemKey
from midmask.core.config import Config, as_user_error
from midmask.errors import UserError, unknown


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

    @property
    def recipe(self) -> str:
        """The recipe whose variant the system is; empty for systems that midmask lacks."""
        return re.sub(r"\[.*", "", self.system)


class Noted(Config):
    """A value with the reason to doubt it."""

    value: Decimal = Field(description="as printed")
    note: str = Field(description="what is doubtful")


class PublishedRow(Config):
    """Values in the order of the columns, and the system that they belong to."""

    values: tuple[Decimal | Noted | None, ...] = Field(description="as printed; null where nothing is")
    of: dict[str, str] = Field(description="fields of `Published`")

    @model_validator(mode="before")
    @classmethod
    def _other_fields_are_told_of_all(cls, data: Any) -> Any:
        return {"values": data["values"], "of": {name: text for name, text in data.items() if name != "values"}}


class PublishedTable(Config):
    """A grid of printed numbers; in a cell, a row's fields outdo its column's, and these the shared ones."""

    table: str = Field(description="its number in the paper")
    percent: bool = Field(False, description="whether values are printed a hundredfold")
    shared: dict[str, str] = Field({}, description="fields of `Published` that all cells share")
    columns: tuple[dict[str, str], ...] = Field(description="fields of each column")
    rows: tuple[PublishedRow, ...] = Field(description="the rows")

    @model_validator(mode="after")
    def _rows_fit_columns(self) -> "PublishedTable":
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"table {self.table}: {len(row.values)} values for {len(self.columns)} columns: {row}")
        return self

    def numbers(self, paper: str) -> list[Published]:
        """Its numbers, row by row."""
        numbers = []
        for row in self.rows:
            for column, value in zip(self.columns, row.values, strict=True):
                if value is not None:
                    printed, note = (value.value, value.note) if isinstance(value, Noted) else (value, "")
                    fraction = float(printed / 100 if self.percent else printed)
                    origin = {"table": self.table, "note": note}
                    numbers.append(
                        Published(paper=paper, value=fraction, **{**self.shared, **column, **row.of, **origin})
                    )
        return numbers


class UnknownValues(Config):
    """Values that a paper prints, or draws, and that are not here."""

    what: str = Field(description="which values")
    why: str = Field(description="why they are not here")


class Paper(Config):
    """One file of `numbers/`."""

    paper: str = Field(description="short name, that of the preset")
    citation: str = Field(description="authors, year, title, venue")
    conditions: dict[str, str] = Field(description="backbone, collections, titles, steps, seeds, as the paper has them")
    missing: tuple[UnknownValues, ...] = Field((), description="what the text at hand lacks")
    tables: tuple[PublishedTable, ...] = Field(description="its tables")

    def numbers(self) -> tuple[Published, ...]:
        """All its numbers, table by table."""
        return tuple(number for table in self.tables for number in table.numbers(self.paper))


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
    """A paper's file.

    Raises:
        UserError: for a paper whose numbers are not here.
    """
    if name not in PAPERS:
        raise unknown("paper", name, PAPERS)
    text = (files("midmask_papers") / "numbers" / f"{name}.yaml").read_text(encoding="utf-8")
    return Paper.model_validate(yaml.safe_load(text))


def published(name: str, table: str | None = None) -> tuple[Published, ...]:
    """The printed numbers of a paper, or of one of its tables.

    Raises:
        UserError: for a paper or a table that is not here.
    """
    numbers = paper(name).numbers()
    if table is None:
        return numbers
    tables = dict.fromkeys(number.table for number in numbers)
    if table not in tables:
        raise unknown(f"table of {name}", table, tables)
    return tuple(number for number in numbers if number.table == table)


def pick(paper: str, table: str, **fields: str) -> Published:
    """The one number of a table with these fields.

    Raises:
        LookupError: if there is none, or more than one.
    """
    numbers = [
        number
        for number in published(paper, table)
        if all(getattr(number, name) == value for name, value in fields.items())
    ]
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
