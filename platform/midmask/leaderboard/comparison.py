"""Systems side by side on the queries that all of them have: every other one against the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midmask.errors import UserError, unknown
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, by_measure, tabulate
from midmask.leaderboard.lineage import artifact_place
from midmask.leaderboard.marks import PerQueryOf
from midmask.leaderboard.passages import evaluated, query_texts
from midmask.leaderboard.queries import Pairing, Sided, pair_systems, widest
from midmask.leaderboard.rows import LeaderboardRow, measure_names
from midmask.tracking import TrackedRow

SIDES: tuple[Sided, ...] = ("wins", "losses")


@dataclass(frozen=True)
class QueryDifference:
    """own, base: values of a system and of the first."""

    query_id: str
    own: float
    base: float


@dataclass(frozen=True)
class SystemComparison:
    """What differs between systems at a place.

    table: a column for each measure, tests against `first`, corrected by Holm in each measure. runs: system -> ids of
    its runs, one per seed. pairings: (system, measure) -> its values beside those of the first. widest: (system, side)
    -> the queries on which it gains most (wins) or loses most in the first measure. texts: of these queries, as far as
    the collection can be reached.
    """

    place: str
    first: str
    table: ResultTable
    runs: Mapping[str, Sequence[str]]
    pairings: Mapping[tuple[str, str], Pairing]
    widest: Mapping[tuple[str, Sided], Sequence[QueryDifference]]
    texts: Mapping[str, str]

    @property
    def others(self) -> list[str]:
        return [name for name in self.table.systems if name != self.first]


def compare_systems(
    systems: Mapping[str, Sequence[LeaderboardRow]],
    place: str,
    per_query: PerQueryOf,
    runs: Sequence[TrackedRow],
    *,
    measures: Sequence[str],
    queries: int,
) -> SystemComparison:
    """Paired t-tests over queries, each query's value being the mean over a system's seeds.

    Args:
        systems: label -> rows of one place, one per seed; the first is what the others are held against.
        place: as tables call it. runs: of the store, where the collection's texts are found from.
        measures: none: all that the systems share.
        queries: how many of the largest gains, and of the largest losses, are listed.

    Raises:
        UserError: for a run without values per query, systems of other queries, or a measure that one lacks.
    """
    tables = {name: [values_of(row, per_query) for row in rows] for name, rows in systems.items()}
    shown = _shared_measures([row for rows in systems.values() for row in rows], measures)
    first, *others = systems
    table = tabulate(by_measure(tables, shown), ComparisonProtocol(baseline=first, correction="holm"))
    pairings = {
        (name, measure): pair_systems(tables[name], tables[first], measure) for measure in shown for name in others
    }
    sided = {(name, side): _differences(pairings[name, shown[0]], queries, side) for name in others for side in SIDES}
    ids = {name: [row.run_id for row in rows] for name, rows in systems.items()}
    wanted = {one.query_id for listed in sided.values() for one in listed}
    texts = _query_texts(wanted, [row for rows in systems.values() for row in rows], runs)
    return SystemComparison(place, first, table, ids, pairings, sided, texts)


def values_of(row: LeaderboardRow, per_query: PerQueryOf) -> pa.Table:
    """A run's table (query_id, measure, value); raises UserError if it keeps none."""
    table = per_query(row)
    if table is None:
        raise UserError(
            f"run {row.run_id} ({row.recipe or row.name}) has no values per query, so it cannot be compared; evaluate "
            "the system again"
        )
    return table


def _shared_measures(rows: Sequence[LeaderboardRow], wanted: Sequence[str]) -> list[str]:
    """Those that are wanted, else all that every row has, the field's favourites first."""
    shared = [name for name in measure_names(rows) if all(name in row.measures for row in rows)]
    for name in wanted:
        if name not in shared:
            raise unknown("measure", name, shared, hint="These are what all of the systems have.")
    if not shared:
        raise UserError("these systems share no measure; evaluate them with the same --set evaluation.measures=[…]")
    return list(dict.fromkeys(wanted)) or shared


def _differences(pairing: Pairing, count: int, side: Sided) -> list[QueryDifference]:
    values = {
        query: QueryDifference(query, own, base)
        for query, own, base in zip(pairing.queries, pairing.own_N.tolist(), pairing.base_N.tolist(), strict=True)
    }
    return [values[query] for query in widest(pairing, count, side)]


def _query_texts(query_ids: set[str], rows: Sequence[LeaderboardRow], runs: Sequence[TrackedRow]) -> Mapping[str, str]:
    """Query -> its text, from the first collection that can be reached; empty if none can."""
    by_id = {run.run_id: run for run in runs}
    for row in rows if query_ids else ():
        corpus = evaluated(artifact_place(by_id[row.run_id], row.corpus, row.split)).corpus
        if corpus is not None:
            return query_texts(corpus, query_ids)
    return {}
