"""Rows -> entries: a system is one entry, however many seeds it was trained with; which of them differ significantly.

Two runs are seeds of one system if every setting that changes a result is the same but for the seeds of trainings. What
only changes how fast a result comes (micro-batches, threads, …) does not tell systems apart. Of several runs with the
same seeds (an older commit, another machine) the newest counts.

Differences are tested on per-query values (`evaluation.tables`), and only values of the same queries can be paired.
Where systems were evaluated on different ones (a limit on queries, a corpus of another cut) the largest set of systems
with the same queries is compared, and the others are named.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from midmask.evaluation.rendering import caption
from midmask.evaluation.statistics.ranks import RankRange, rank_ranges
from midmask.evaluation.tables import ResultTable, TableColumn, tabulate
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, PerQueryOf

LABELS = ("recipe", "pretrain_on", "representation", "protocol", "backbone")
"""Tags of a run that name its system; what else differs is told in the entry's note."""

SEPARATOR = " · "
"""Between the parts of a system's name."""

SEEDS = ("pretrain.seed", "train.seed")
WITHOUT_EFFECT = (
    *("corpus.bad_rows_threshold", "generate.batch_size", "micro_batch", "memory_gib", "threads"),
    *("log_every", "health_every", "checkpoint_every", "evaluation.split"),
)
"""Ends of the dotted paths that tell no two systems apart: runtime fields, and which split was looked at."""

LONGEST_NOTE = 3
"""Settings that a note tells; of more, it says how many."""


@dataclass(frozen=True)
class Value:
    """A measure of an entry: the mean over its seeds, and their standard deviation, None for a single seed."""

    mean: float
    spread: float | None
    seeds: int


@dataclass(frozen=True)
class Entry:
    """One system, with the results of all its seeds."""

    labels: Mapping[str, str]  # by `LABELS`
    note: str  # the settings in which it differs from others of the same labels; empty if there are none
    trial: bool
    rows: Mapping[CollectionSplit, tuple[LeaderboardRow, ...]]  # one row per seed for every place

    @property
    def recipe(self) -> str:
        return self.labels["recipe"]

    @cached_property
    def started(self) -> datetime:
        return max(row.run.started for rows in self.rows.values() for row in rows)

    @cached_property
    def name(self) -> str:
        """The unique name of the entry: its labels, its note and whether it is a trial."""
        return SEPARATOR.join(filter(None, (*self.labels.values(), self.note, "trial" if self.trial else "")))

    def value(self, place: CollectionSplit, measure: str) -> Value | None:
        numbers = [row.measures[measure] for row in self.rows.get(place, ()) if measure in row.measures]
        if not numbers:
            return None
        mean = math.fsum(numbers) / len(numbers)  # the statistics module takes ten times as long, and boards are large
        squares = math.fsum((value - mean) ** 2 for value in numbers)
        return Value(mean, math.sqrt(squares / (len(numbers) - 1)) if len(numbers) > 1 else None, len(numbers))

    def cost(self, name: str, places: Iterable[CollectionSplit]) -> float | None:
        """The mean of a cost over the runs that were evaluated at one of these places; None if none tells it."""
        metrics = [row.run.metrics for row in self.runs(places).values()]
        costs = [values[f"cost/{name}"] for values in metrics if f"cost/{name}" in values]
        return math.fsum(costs) / len(costs) if costs else None

    def runs(self, places: Iterable[CollectionSplit]) -> dict[str, LeaderboardRow]:
        """Run id -> a row of it, for the runs at these places."""
        return {row.run.run_id: row for place in places for row in self.rows.get(place, ())}


class _System(NamedTuple):
    """The values that all rows of one entry share."""

    labels: tuple[str, ...]
    trial: bool
    settings: frozenset[tuple[str, str]]


def entries(leaderboard_rows: Iterable[LeaderboardRow]) -> list[Entry]:
    """The systems of these rows, in the order in which they first appear. `leaderboard_rows` is newest first."""
    grouped: dict[_System, dict[CollectionSplit, dict[str, LeaderboardRow]]] = {}
    by_run: dict[str, tuple[_System, str]] = {}
    for row in leaderboard_rows:
        if (run_id := row.run.run_id) not in by_run:  # a run may have a row for many splits
            by_run[run_id] = _System((row.recipe, *map(row.tag, LABELS[1:])), row.trial, _settings(row)), _seeds(row)
        system, seeds = by_run[run_id]
        grouped.setdefault(system, {}).setdefault(row.place, {}).setdefault(seeds, row)
    notes = _notes(grouped)
    made = []
    for system, places in grouped.items():
        rows = {place: tuple(row for _, row in sorted(by_seed.items())) for place, by_seed in places.items()}
        made.append(Entry(dict(zip(LABELS, system.labels, strict=True)), notes[system], system.trial, rows))
    return made


def _settings(row: LeaderboardRow) -> frozenset[tuple[str, str]]:
    """Settings that distinguish a system. BM25 has those of the corpus; its other params belong to another recipe."""
    is_bm25 = _is_bm25(row)
    return frozenset(
        (path, value)
        for path, value in row.run.params.items()
        if field_kind(path) == "setting" and (not is_bm25 or path.startswith("corpus."))
    )


def _is_bm25(row: LeaderboardRow) -> bool:
    """Whether it is midmask's own BM25; a run file of another tool may bear the same name."""
    return row.recipe.lower() == "bm25" and row.tag("representation") in ("", "bm25")


def _seeds(row: LeaderboardRow) -> str:
    """The seeds of the trainings, as text that sorts by them; the row's own seed where the params tell none."""
    if _is_bm25(row):
        return ""
    seeds = [value.rjust(6) for path, value in sorted(row.run.params.items()) if field_kind(path) == "seed"]
    return " ".join(seeds) or row.seed.rjust(6)


@cache
def field_kind(path: str) -> str:
    if _ends_in(path, SEEDS):
        return "seed"
    return "without effect" if _ends_in(path, WITHOUT_EFFECT) else "setting"


def _ends_in(path: str, names: Iterable[str]) -> bool:
    return any(f".{path}".endswith(f".{name}") for name in names)


def _notes(systems: Iterable[_System]) -> dict[_System, str]:
    """The settings that not all systems of the same labels share; a number where that leaves two of them alike."""
    alike: dict[tuple[str, ...], list[_System]] = {}
    for system in systems:
        alike.setdefault(system.labels, []).append(system)
    notes: dict[_System, str] = {}
    for group in alike.values():
        shared = frozenset.intersection(*(member.settings for member in group))
        counts = Counter[tuple[bool, str]]()
        for member in group:
            note = _note(member.settings - shared)
            counts[member.trial, note] += 1
            notes[member] = f"{note} #{counts[member.trial, note]}" if counts[member.trial, note] > 1 else note
    return notes


def _note(differing: frozenset[tuple[str, str]]) -> str:
    notes = [f"{path}={value}" for path, value in sorted(differing)]
    more = [f"{len(notes) - LONGEST_NOTE} more"] if len(notes) > LONGEST_NOTE else []
    return ", ".join(notes[:LONGEST_NOTE] + more)


MOST = 80
"""Systems that are compared, all pairs of them: more would keep a page waiting."""

Where = tuple[str, CollectionSplit, str]
"""An entry's name, a place, a measure."""


@dataclass(frozen=True)
class Mark:
    """What the significance tests say of a measure of an entry; by default it was not tested."""

    better_than: tuple[str, ...] = ()  # entries it significantly beats
    ranks: RankRange | None = None  # the ranks that are consistent with the tests


@dataclass(frozen=True)
class Marks:
    """The results of the significance tests between entries."""

    cells: Mapping[Where, Mark] = field(default_factory=dict)
    text: str = ""  # how it was tested, or why not


def marks_of(
    entries: Sequence[Entry],
    places: Mapping[CollectionSplit, str],
    measures: Sequence[str],
    values: PerQueryOf,
) -> Marks:
    """All pairs of these entries at each place, by paired t-test with Bonferroni's correction at 0.05.

    Args:
        places: with their names (`rows.place_names`).
    """
    if len(entries) > MOST:
        return Marks(text=f"Filter these {len(entries)} systems down to {MOST} to see which differ significantly.")
    columns: dict[str, tuple[CollectionSplit, TableColumn]] = {}
    unpaired: dict[str, None] = {}
    for place, called in places.items():
        tables = {entry.name: seed_tables(entry, place, values) for entry in entries if place in entry.rows}
        paired = _on_the_same_queries(tables)
        unpaired |= dict.fromkeys(tables.keys() - paired.keys())
        columns |= {column.label: (place, column) for column in _columns(called, measures, paired)}
    if not columns:
        return Marks(text="Nothing was compared: it takes two systems whose runs keep values of the same queries.")
    table = tabulate([column for _, column in columns.values()])
    ranks = {label: rank_ranges(tests) for label, tests in table.comparisons.items()}
    cells: dict[Where, Mark] = {}
    for (name, label), cell in table.cells.items():
        place, column = columns[label]
        mark = Mark(cell.better_than, ranks[label][name])
        cells[name, place, column.measure] = mark
    return Marks(cells, _text(table, sorted(unpaired)))


def seed_tables(entry: Entry, place: CollectionSplit, values: PerQueryOf, measure: str = "") -> list[pa.Table]:
    """A system's values per query at a place, one table per seed; none if a seed's run keeps none (of `measure`)."""
    tables = [table for row in entry.rows[place] if (table := values(row)) is not None]
    tables = [table for table in tables if not measure or has_measure(table, measure)]
    return tables if len(tables) == len(entry.rows[place]) else []


def _on_the_same_queries(tables: Mapping[str, Sequence[pa.Table]]) -> dict[str, Sequence[pa.Table]]:
    groups: dict[frozenset[str], dict[str, Sequence[pa.Table]]] = {}
    for name, seeds in tables.items():
        queries = {frozenset(pc.unique(table["query_id"]).to_pylist()) for table in seeds}
        if len(queries) == 1:
            groups.setdefault(queries.pop(), {})[name] = seeds
    return max(groups.values(), key=len, default={})


def _columns(place: str, measures: Sequence[str], paired: Mapping[str, Sequence[pa.Table]]) -> list[TableColumn]:
    having = {
        measure: {name: seeds for name, seeds in paired.items() if all(has_measure(table, measure) for table in seeds)}
        for measure in measures
    }
    return [TableColumn(f"{place} {measure}", measure, seeds) for measure, seeds in having.items() if len(seeds) > 1]


def has_measure(table: pa.Table, measure: str) -> bool:
    """Whether a table of values per query has any of this measure."""
    return bool(pc.any(pc.equal(table["measure"], measure)).as_py())


def _text(table: ResultTable, unpaired: Sequence[str]) -> str:
    text = caption(table)
    if not unpaired:
        return text
    names = "; ".join(unpaired[:3]) + (f" and {len(unpaired) - 3} more" if len(unpaired) > 3 else "")
    return f"{text} Not compared (evaluated on other queries): {names}."
