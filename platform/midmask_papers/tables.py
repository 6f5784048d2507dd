"""The papers' tables: sheets as `tables.yaml` lays them out, filled with our numbers beside the printed ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import pyarrow as pa
import yaml
from pydantic import Field

from midmask.benchmark.design import NONE, VIEW_NAMES
from midmask.benchmark.report import NamedTable
from midmask.benchmark.results import Results, SystemKey, home, order_splits
from midmask.core.config import Config
from midmask.evaluation.groups import GROUPS, folders, group_average
from midmask.evaluation.rendering import Style
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, TableCell, TableColumn, tabulate
from midmask_papers.published import CORPUS, Published, key_of, paper, published, resolve_corpus

AVERAGED = frozenset(GROUPS)
"""Groups of collections that papers print one number for."""


@dataclass(frozen=True)
class Slot:
    """A cell of a table, and the printed value in it. key: of the system that stands there."""

    row: str
    column: str
    key: SystemKey
    number: Published


PRINTED = {"RR@10": "MRR@10", "RR@100": "MRR@100", "R@1000": "R@1k"}
"""Measures as papers head their columns."""


def _measure(number: Published) -> str:
    measure = PRINTED.get(number.measure, number.measure)
    return measure if number.corpus == "msmarco" else f"{measure} {number.corpus}"


def _view(number: Published) -> str:
    return f"{VIEW_NAMES[number.representation]} {_measure(number)}"


NAMES: Mapping[str, Callable[[Published], str]] = {
    "label": lambda number: number.label,
    "factor": lambda number: f"{number.condition}: {number.label}",
    "measure": _measure,
    "view": _view,
    "shots": lambda number: f"{_view(number)} {number.setting.rpartition('_')[2]}",
    "corpus": lambda number: number.corpus,
    "split": lambda number: number.split.removeprefix("test."),
}
"""How the rows and columns of a sheet are called."""


class Sheet(Config):
    """A table of a paper, as `tables.yaml` says."""

    paper: str = Field(description="its short name")
    name: str = Field(description="of its files")
    heading: str = Field(description="of its section")
    table: str = Field(description="of the paper's numbers")
    row: str = Field("label", description="how rows are called")
    column: str = Field("measure", description="how columns are called")
    only: dict[str, tuple[str, ...]] = Field({}, description="field of a number -> values that stand in it")
    averages: tuple[str, ...] = Field((), description="columns that do not make a row alone")
    baseline: str = Field("", description="the row that stars compare with; empty: superscripts for all pairs")
    style: dict[str, Any] = Field({}, description="decimals and percent, as in `Style`")

    def slots(self) -> list[Slot]:
        """One slot per printed number of a system; differences between systems have none."""
        slots = [
            Slot(NAMES[self.row](number), NAMES[self.column](number), key_of(number), number)
            for number in published(self.paper, self.table)
            if not number.against and all(getattr(number, name) in self.only[name] for name in self.only)
        ]
        whole = {slot.row for slot in slots if slot.column not in self.averages}
        return [slot for slot in slots if slot.row in whole]


def fill(sheet: Sheet, results: Results, notes: Sequence[str]) -> NamedTable | None:
    """The sheet with our numbers; none if nothing in it was measured."""
    slots, replaced = _name_ours(sheet.slots(), results)
    cells = {(slot.row, slot.column): tables for slot in slots if (tables := _tables(results, slot))}
    averages = _averages(results, slots)
    if not cells and not averages:
        return None
    measured = _tabulate(slots, cells, sheet.baseline)
    systems = tuple(dict.fromkeys(slot.row for slot in slots))
    table = replace(measured, systems=systems, columns=_columns(slots), cells={**measured.cells, **averages})
    return NamedTable(f"{sheet.paper}.{sheet.name}", sheet.heading, table, _style(sheet, results, [*replaced, *notes]))


def _columns(slots: Sequence[Slot]) -> tuple[str, ...]:
    """As the fullest row has them, then those that it lacks."""
    rows: dict[str, list[str]] = {}
    for slot in slots:
        rows.setdefault(slot.row, []).append(slot.column)
    return tuple(dict.fromkeys([*max(rows.values(), key=len), *(slot.column for slot in slots)]))


def _name_ours(slots: Sequence[Slot], results: Results) -> tuple[list[Slot], list[str]]:
    """The slots in our names: the corpus itself by the label that it has here, which also stands for a collection that
    nothing was pre-trained on here, unless the table has both; a fine-tuning that the paper does not tell as the first
    that the system was run in. And what to say of it.
    """
    labels = results.names("collection")
    itself = CORPUS if CORPUS in labels else home(results)
    taken = {replace(slot.key, collection=itself) for slot in slots if slot.key.collection == CORPUS}
    matched, remarks = [], []
    for slot in slots:
        key = slot.key
        ours = replace(key, collection=itself) if key.collection not in (*labels, NONE, "") else key
        if key.collection not in (CORPUS, NONE, "") and ours != key:
            ours = key if ours in taken else ours
            remarks += [f"Pre-trained on {itself} in place of {key.collection}."] if ours != key else []
        if not key.setting:
            settings = results.where(**{**vars(ours), "setting": None}).names("setting")
            ours = replace(ours, setting=settings[0] if settings else "")
            remarks += [f"Fine-tuned as {settings[0]} where the paper does not say how."] if settings else []
        matched.append(replace(slot, key=ours))
    return matched, list(dict.fromkeys(remarks))


def _tables(results: Results, slot: Slot) -> list[pa.Table]:
    """Our values of a slot, one table a seed."""
    number = slot.number
    if number.corpus in AVERAGED:
        return []
    corpus = _corpus(results, number.corpus)
    rows = results.where(**vars(slot.key), corpus=corpus)
    preferred = number.split if corpus == number.corpus else ""
    split = next(iter(order_splits(rows.names("split"), preferred)), None)
    return [result.per_query for result in rows if result.split == split and number.measure in result.measures]


def _corpus(results: Results, name: str) -> str:
    """MS MARCO stands for the corpus that systems are fine-tuned on; other corpora for themselves."""
    stands = name == "msmarco" and name not in results.names("corpus")
    return home(results) if stands else resolve_corpus(name, results)


def _averages(results: Results, slots: Sequence[Slot]) -> dict[tuple[str, str], TableCell]:
    """The means over groups of BEIR's sets, of systems with all of a group's sets."""
    means = {slot: mean for slot in slots if (mean := _average(results, slot)) is not None}
    best: dict[str, float] = {}
    for slot, mean in means.items():
        best[slot.column] = max(mean, best.get(slot.column, mean))
    return {(slot.row, slot.column): TableCell(mean, best=mean == best[slot.column]) for slot, mean in means.items()}


def _average(results: Results, slot: Slot) -> float | None:
    group, measure = slot.number.corpus, slot.number.measure
    if group not in AVERAGED:
        return None
    corpora = results.names("corpus")
    means: dict[str, float] = {}
    for name in folders(group):
        label = beir if (beir := f"beir-{name}") in corpora else name
        rows = [result for result in results.where(**vars(slot.key), corpus=label) if measure in result.measures]
        if not rows:
            return None
        means[name] = sum(result.measures[measure] for result in rows) / len(rows)
    return group_average(group, means)


def _tabulate(slots: Sequence[Slot], cells: Mapping[tuple[str, str], list[pa.Table]], baseline: str) -> ResultTable:
    """Columns with our values; held against the baseline where every one of them has it."""
    columns: dict[str, dict[str, list[pa.Table]]] = {}
    for (row, column), tables in cells.items():
        columns.setdefault(column, {})[row] = tables
    measures = {slot.column: slot.number.measure for slot in slots}
    against = baseline if baseline and all(baseline in rows for rows in columns.values()) else None
    return tabulate(
        [TableColumn(name, measures[name], rows) for name, rows in columns.items()],
        ComparisonProtocol(baseline=against),
    )


def _style(sheet: Sheet, results: Results, notes: Sequence[str]) -> Style:
    """How the sheet is printed: with the published numbers, and where conditions differ."""
    printed, source = {(slot.row, slot.column): slot.number for slot in sheet.slots()}, paper(sheet.paper)
    doubts = {place: number.note for place, number in printed.items() if number.note}
    theirs = "; ".join(f"{what}: {condition}" for what, condition in source.conditions.items())
    collections, seeds = (_join_names(results, name) for name in ("collection", "seed"))
    ours = f"corpus: {home(results)}; collections: {collections}; seeds: {seeds}"
    about = [f"Published by {source.citation} under: {theirs}.", f"Here: {ours}.", *notes]
    about += [f"{row}, {column}: {note}." for (row, column), note in doubts.items()]
    values = {place: number.value for place, number in printed.items()}
    return Style(**sheet.style, about=" ".join(about), published=values, doubtful=frozenset(doubts))


def _join_names(results: Results, field_name: str) -> str:
    names = [str(name) for name in results.names(field_name) if name != NONE]
    return ", ".join(names) or NONE


SHEETS: Mapping[str, tuple[Sheet, ...]] = {
    name: tuple(Sheet(paper=name, **row) for row in rows)
    for name, rows in yaml.safe_load((files("midmask_papers") / "tables.yaml").read_text(encoding="utf-8")).items()
}
"""Paper -> its tables."""


def paper_tables(preset: str, results: Results, notes: Sequence[str] = ()) -> list[NamedTable]:
    """A paper's tables that anything was measured of; none for a preset that is no paper's.

    Args:
        notes: sentences on how conditions differ from the paper's, for the captions.
    """
    filled = (fill(sheet, results, notes) for sheet in SHEETS.get(preset, ()) if results)
    return [table for table in filled if table is not None]
