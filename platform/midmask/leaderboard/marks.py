"""Which of the shown systems differ significantly: `evaluation.tables` on the per-query values of the tracked runs.

Only values of the same queries can be paired. Where systems were evaluated on different ones (a limit on queries, a
corpus of another cut) the largest set of systems with the same queries is compared, and the others are named.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from midmask.evaluation.rendering import Style, caption, how_tested
from midmask.evaluation.statistics.intervals import Variance, standard_error
from midmask.evaluation.statistics.ranks import RankRange, rank_ranges
from midmask.evaluation.statistics.seeds import read_sample
from midmask.evaluation.tables import ResultTable, TableColumn, tabulate
from midmask.leaderboard.entries import Entry
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow

Shown = Literal["better_than", "ties", "none"]

PerQueryOf = Callable[[LeaderboardRow], pa.Table | None]
"""A row -> its table (query_id, measure, value), None if its run keeps none."""

MOST = 80
"""Systems that are compared, all pairs of them: more would keep a page waiting."""

MOST_MARKED = 30
"""Systems that superscripts tell apart: of more, nobody reads them."""

Where = tuple[str, CollectionSplit, str]
"""An entry's name, a place, a measure."""


@dataclass(frozen=True)
class Marks:
    """What the tests say. `better_than` names the entries that one is significantly better than, `ties` has the letters
    of its tie groups, `ranks` the ranks that are consistent with the tests, `errors` the standard errors of means over
    queries, `text` says how it was tested, or why not. `shown`: the superscripts that so many systems can bear.
    """

    better_than: Mapping[Where, tuple[str, ...]] = field(default_factory=dict)
    ties: Mapping[Where, str] = field(default_factory=dict)
    ranks: Mapping[Where, RankRange] = field(default_factory=dict)
    errors: Mapping[Where, float] = field(default_factory=dict)
    text: str = ""
    shown: Shown = "none"


def marks_of(
    entries: Sequence[Entry],
    places: Mapping[CollectionSplit, str],
    measures: Sequence[str],
    values: PerQueryOf,
    shown: Shown,
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
    legible: Shown = shown if len(entries) <= MOST_MARKED else "none"
    where = {(name, label): (name, columns[label][0], columns[label][1].measure) for name, label in table.cells}
    ranks = {label: rank_ranges(found) for label, found in table.comparisons.items()}
    return Marks(
        {where[key]: cell.better_than for key, cell in table.cells.items()},
        {where[key]: cell.ties for key, cell in table.cells.items()},
        {where[name, label]: ranks[label][name] for name, label in table.cells},
        {where[name, label]: _error(name, columns[label][1]) for name, label in table.cells},
        _text(table, legible, sorted(unpaired), len(entries)),
        legible,
    )


def _error(name: str, column: TableColumn) -> float:
    """The standard error of a system's mean over the queries, its seeds averaged per query."""
    sample = read_sample(name, column.per_query[name], column.measure)
    return standard_error([Variance.of_mean(sample.means_Q)]).value


def seed_tables(entry: Entry, place: CollectionSplit, values: PerQueryOf) -> list[pa.Table]:
    """A system's values per query at a place, one table per seed; none at all if a seed's run keeps none."""
    found = [table for row in entry.rows[place] if (table := values(row)) is not None]
    return found if len(found) == len(entry.rows[place]) else []


def _on_the_same_queries(tables: Mapping[str, Sequence[pa.Table]]) -> dict[str, Sequence[pa.Table]]:
    groups: dict[frozenset[str], dict[str, Sequence[pa.Table]]] = {}
    for name, own in tables.items():
        queries = {frozenset(pc.unique(table["query_id"]).to_pylist()) for table in own}
        if len(queries) == 1:
            groups.setdefault(queries.pop(), {})[name] = own
    return max(groups.values(), key=len, default={})


def _columns(place: str, measures: Sequence[str], paired: Mapping[str, Sequence[pa.Table]]) -> list[TableColumn]:
    having = {
        measure: {name: own for name, own in paired.items() if all(has_measure(table, measure) for table in own)}
        for measure in measures
    }
    return [TableColumn(f"{place} {measure}", measure, own) for measure, own in having.items() if len(own) > 1]


def has_measure(table: pa.Table, measure: str) -> bool:
    """Whether a table of values per query has any of this measure."""
    return bool(pc.any(pc.equal(table["measure"], measure)).as_py())


def _text(table: ResultTable, shown: Shown, unpaired: Sequence[str], systems: int) -> str:
    said = caption(table, Style(marks=shown))
    if systems > MOST_MARKED:
        said += f" Tested ({how_tested(table)}); filter these {systems} systems down to {MOST_MARKED} for superscripts."
    if not unpaired:
        return said
    names = "; ".join(unpaired[:3]) + (f" and {len(unpaired) - 3} more" if len(unpaired) > 3 else "")
    return f"{said} Not compared (evaluated on other queries): {names}."
