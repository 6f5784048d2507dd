"""The numbers that the papers print, as data: a reproduction is compared with them.

One YAML file a paper in `numbers/`, transcribed from methods.md 14. A table there is a grid: what a value is of
(system, measure, …) is told by its column, its row and what all share; a value in braces has a note, where the sources
contradict each other (methods.md 15).
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import Field, model_validator

from midmask.errors import unknown
from midmask.identity import Config


@dataclass(frozen=True)
class Published:
    """One printed number.

    system: a recipe's name; a variant of one as "recipe[field=value,…]"; empty for systems that midmask lacks, which
    only their label names. collection, representation, setting: as in `results.SystemKey`, empty where unpublished.
    condition: the paper's own word for the setting. measure: an ir-measures name; or, of what is no measure of a ranked
    list, KL or JS (divergences of embeddings), stop share (of stop-words and punctuation among masked tokens), wins (of
    collections, on which one system beats another). value: a fraction. against: where the value is a difference or a
    share of wins, to what. source: the place in methods.md.
    note: why the value is doubtful; empty if it is not.
    """

    paper: str
    table: str
    label: str
    measure: str
    value: float
    source: str
    system: str = ""
    collection: str = ""
    representation: str = ""
    setting: str = ""
    condition: str = ""
    corpus: str = ""
    split: str = ""
    against: str = ""
    note: str = ""

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
    line: str = Field(description="its place in methods.md")
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
        found = []
        for row in self.rows:
            for column, value in zip(self.columns, row.values, strict=True):
                if value is not None:
                    printed, note = (value.value, value.note) if isinstance(value, Noted) else (value, "")
                    fraction = float(printed / 100 if self.percent else printed)
                    own = {"table": self.table, "source": f"methods.md {self.line}", "note": note}
                    found.append(Published(paper=paper, value=fraction, **{**self.shared, **column, **row.of, **own}))
        return found


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
    found = paper(name).numbers()
    if table is None:
        return found
    tables = dict.fromkeys(number.table for number in found)
    if table not in tables:
        raise unknown(f"table of {name}", table, tables)
    return tuple(number for number in found if number.table == table)
