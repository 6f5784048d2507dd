"""Systems on the queries that all of them have, each against the first: for the page Compare and `midmask compare`.

`comparable` says which systems of a collection and split can be compared query by query, and which come first.
`compare_tables` tests them. A report is the comparison as text: sentences, a table for each measure, and the queries
that differ most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import csv_cell, markdown
from midmask.evaluation.statistics.pairing import Pairing, Sided, pair_systems, widest
from midmask.evaluation.statistics.significance import Comparison, p_text, sentence
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, TableCell, by_measure, tabulate
from midmask.leaderboard.artifacts import artifact_place, evaluated
from midmask.leaderboard.entries import LABELS, SEPARATOR, Entry, seed_tables
from midmask.leaderboard.queries import query_texts
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, PerQueryOf, measure_names

MOST = 60
"""Systems whose per-query values are read, the newest; of more, their files would take long to open."""

BASELINES = ("none", "bm25")
"""Recipes that are a sensible baseline, the first that is there."""


@dataclass(frozen=True)
class ComparableSystems:
    """The systems that can be compared on one measure."""

    entries: Mapping[str, Entry]  # short name -> system, newest first
    tables: Mapping[str, Sequence[pa.Table]]  # short name -> one table (query_id, measure, value) per seed
    without: tuple[str, ...]  # short names of systems that lack values per query for a seed
    unread: int  # number of older systems whose values were not read

    def baseline(self) -> str:
        """The newest system of the recipe `none`, else of BM25, else the oldest of all."""
        for recipe in BASELINES:
            for name, entry in self.entries.items():
                if entry.recipe.lower() == recipe:
                    return name
        return min(self.entries, key=lambda name: self.entries[name].started)

    def others(self, place: CollectionSplit, measure: str, baseline: str) -> list[str]:
        """The systems beside the baseline, that of the highest mean first."""
        means = {name: value.mean for name, entry in self.entries.items() if (value := entry.value(place, measure))}
        return sorted(means.keys() - {baseline}, key=lambda name: (-means[name], name))


def comparable(systems: Sequence[Entry], place: CollectionSplit, measure: str, values: PerQueryOf) -> ComparableSystems:
    """The systems that were evaluated at this place with this measure; trials of sweeps after the others.

    Raises:
        UserError: if the store does not answer.
    """
    here = [entry for entry in systems if entry.value(place, measure)]
    here.sort(key=lambda entry: (entry.trial, -entry.started.timestamp()))
    by_name = {name: seed_tables(entry, place, values, measure) for name, entry in short_names(here[:MOST]).items()}
    entries = {name: entry for name, entry in short_names(here[:MOST]).items() if by_name[name]}
    tables = {name: by_name[name] for name in entries}
    return ComparableSystems(entries, tables, tuple(by_name.keys() - tables.keys()), max(0, len(here) - MOST))


def short_names(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Short name (recipe, and the labels that differ within it) -> system, in the order given."""
    alike: dict[str, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(entry.recipe, []).append(entry)
    fields = {
        recipe: [name for name in LABELS[1:] if len({entry.labels[name] for entry in group}) > 1]
        for recipe, group in alike.items()
    }
    names: dict[str, Entry] = {}
    for entry in entries:
        note = entry.note if len({other.note for other in alike[entry.recipe]}) > 1 else ""
        labels = [entry.labels[name] for name in fields[entry.recipe]]
        parts = [entry.recipe, *labels, note, "trial" if entry.trial else ""]
        name = SEPARATOR.join(filter(None, parts))
        names[entry.name if name in names else name] = entry
    return names


@dataclass(frozen=True)
class Standing:
    """One system in one measure."""

    system: str
    cell: TableCell
    test: Comparison | None  # None: the first system, which the others are held against
    pairing: Pairing | None  # with the first system

    @property
    def mean(self) -> str:
        """The mean, with the standard deviation over seeds where there are several."""
        spread = f" ± {self.cell.spread:.4f}" if self.cell.seeds > 1 else ""
        return f"{self.cell.mean:.4f}{spread}"

    @property
    def difference(self) -> str:
        return MISSING if self.test is None else f"{self.test.difference:+.4f}"

    @property
    def interval(self) -> str:
        return MISSING if self.test is None else f"{self.test.low:+.4f} … {self.test.high:+.4f}"

    @property
    def p(self) -> str:
        return MISSING if self.test is None else p_text(self.test.p_corrected)


@dataclass(frozen=True)
class SystemComparison:
    """The differences between systems on the queries that all of them have."""

    table: ResultTable  # a column for each measure; tests against the first system, corrected by Holm in each measure
    pairings: Mapping[tuple[str, str], Pairing]  # (system, measure) -> its values beside those of the first

    @property
    def first(self) -> str:
        return self.table.systems[0]

    def standings(self, measure: str) -> list[Standing]:
        """All systems in a measure, the first one first."""
        tests = {row.system: row for row in self.table.comparisons[measure]}
        return [
            Standing(system, self.table.cells[system, measure], tests.get(system), self.pairings.get((system, measure)))
            for system in self.table.systems
        ]


def compare_tables(tables: Mapping[str, Sequence[pa.Table]], measures: Sequence[str]) -> SystemComparison:
    """Paired t-tests over queries, each query's value being the mean over a system's seeds.

    Args:
        tables: system -> values per query, one table per seed; the first is what the others are held against.

    Raises:
        UserError: for systems that share no query, or a measure that one lacks.
    """
    queries = [frozenset(pc.unique(seed["query_id"]).to_pylist()) for seeds in tables.values() for seed in seeds]
    shared = frozenset.intersection(*queries)
    if not shared:
        raise UserError(f"there is no query that all of {', '.join(tables)} have; leave one out")
    first, *others = tables
    value_set = pa.array(sorted(shared), pa.string())
    paired = {
        name: [seed.filter(pc.is_in(seed["query_id"], value_set=value_set)) for seed in seeds]
        for name, seeds in tables.items()
    }
    table = tabulate(by_measure(paired, measures), ComparisonProtocol(baseline=first, correction="holm"))
    pairings = {
        (name, measure): pair_systems(tables[name], tables[first], measure) for measure in measures for name in others
    }
    return SystemComparison(table, pairings)


def caption(comparison: SystemComparison) -> str:
    """How differences were tested, how seeds enter the test, and which queries are in none."""
    first_measure = comparison.table.columns[0]
    standings = comparison.standings(first_measure)
    tests = len(standings) - 1
    family = f"Holm's correction for {tests} comparisons of a measure" if tests > 1 else "one comparison of a measure"
    parts = [f"Differences: to {comparison.first}. Paired t-test over queries, {family}; intervals are of one test."]
    if max(standing.cell.seeds for standing in standings) == 1:
        parts += ["One run each: how much another training seed would change is not in them."]
    else:
        seeds = ", ".join(f"{standing.system} {standing.cell.seeds}" for standing in standings)
        parts += [f"±: standard deviation over seeds ({seeds}), whose mean is tested for each query."]
    left_out = {standing.system: standing.pairing.left_out for standing in standings if standing.pairing}
    parts += [
        f"{count:,} queries that only one of {name} and {comparison.first} has are left out."
        for name, count in left_out.items()
        if count
    ]
    return " ".join(parts)


SIDES: dict[Sided, str] = {"wins": "gains", "losses": "loses"}


@dataclass(frozen=True)
class ComparisonReport:
    """A comparison of tracked systems, as `midmask compare` prints it."""

    place: str
    comparison: SystemComparison
    runs: Mapping[str, Sequence[str]]  # system -> ids of its runs, one per seed
    # (system, side) -> ids of the queries on which it gains most (wins) or loses most in the first measure
    widest: Mapping[tuple[str, Sided], Sequence[str]]
    texts: Mapping[str, str]  # texts of these queries, as far as the collection can be reached


def compare_systems(
    systems: Mapping[str, Sequence[LeaderboardRow]],
    place: str,
    per_query: PerQueryOf,
    *,
    measures: Sequence[str],
    queries: int,
) -> ComparisonReport:
    """Compares tracked systems.

    Args:
        systems: label -> rows of one place, one per seed; the first is what the others are held against.
        place: as tables call it.
        measures: none: all that the systems share.
        queries: how many of the largest gains, and of the largest losses, are listed.

    Raises:
        UserError: for a run without values per query, systems of other queries, or a measure that one lacks.
    """
    tables = {name: [values_of(row, per_query) for row in rows] for name, rows in systems.items()}
    all_rows = [row for rows in systems.values() for row in rows]
    shown = _shared_measures(all_rows, measures)
    comparison = compare_tables(tables, shown)
    sided = {
        (name, side): widest(comparison.pairings[name, shown[0]], queries, side)
        for name in list(systems)[1:]
        for side in SIDES
    }
    ids = {name: [row.run.run_id for row in rows] for name, rows in systems.items()}
    texts = _query_texts({query for listed in sided.values() for query in listed}, all_rows)
    return ComparisonReport(place, comparison, ids, sided, texts)


def values_of(row: LeaderboardRow, per_query: PerQueryOf) -> pa.Table:
    """A run's table (query_id, measure, value); raises UserError if it keeps none."""
    table = per_query(row)
    if table is None:
        raise UserError(
            f"run {row.run.run_id} ({row.recipe}) has no values per query, so it cannot be compared; evaluate "
            "the system again"
        )
    return table


def _shared_measures(rows: Sequence[LeaderboardRow], measures: Sequence[str]) -> list[str]:
    """The chosen measures, or all that every row has, the field's favourites first."""
    shared = [name for name in measure_names(rows) if all(name in row.measures for row in rows)]
    for name in measures:
        if name not in shared:
            raise unknown("measure", name, shared, hint="These are what all of the systems have.")
    if not shared:
        raise UserError("these systems share no measure; evaluate them with the same --set evaluation.measures=[…]")
    return list(dict.fromkeys(measures)) or shared


def _query_texts(query_ids: set[str], rows: Sequence[LeaderboardRow]) -> Mapping[str, str]:
    """Query -> its text, from the first collection that can be reached; empty if none can."""
    for row in rows if query_ids else ():
        corpus = evaluated(artifact_place(row.run, row.place.corpus, row.place.split)).corpus
        if corpus is not None:
            return query_texts(corpus, query_ids)
    return {}


TEXT = 100
"""Characters of a query, its id included, that are shown."""


def as_text(report: ComparisonReport, text: Callable[[str], str] = str) -> str:
    """The comparison as text for a terminal; with `markdown_text`, which escapes names and queries, as Markdown."""
    table = report.comparison.table
    tests = table.comparisons[table.columns[0]]
    blocks = [text(sentence(row, report.place, len(tests))) for row in tests]
    blocks += [_measure_table(report.comparison, measure, text) for measure in table.columns]
    blocks += [text(caption(report.comparison))]
    for (system, side), listed in report.widest.items():
        if listed:
            title = text(f"Where {system} {SIDES[side]} most, in {table.columns[0]}:")
            blocks += [title, _query_table(report, system, side, text)]
    return "\n\n".join(blocks)


def _measure_table(comparison: SystemComparison, measure: str, text: Callable[[str], str]) -> str:
    heads = [measure, "mean", "difference", "95% interval", "p (Holm)", "queries", "wins", "ties", "losses"]
    lines = []
    for row in comparison.standings(measure):
        pairing = row.pairing
        counts = [f"{count:,}" for count in (pairing.wins, pairing.ties, pairing.losses)] if pairing else [MISSING] * 3
        lines.append(
            [text(row.system), row.mean, row.difference, row.interval, row.p, f"{row.cell.queries:,}", *counts]
        )
    return markdown(heads, lines)


def _query_table(report: ComparisonReport, system: str, side: Sided, text: Callable[[str], str]) -> str:
    heads = ["query", "difference", text(system), text(report.comparison.first)]
    values = report.comparison.pairings[system, report.comparison.table.columns[0]].values
    lines = [
        [text(_short(f"{query} {report.texts.get(query, '')}")), f"{value - base:+.4f}", f"{value:.4f}", f"{base:.4f}"]
        for query in report.widest[system, side]
        for value, base in [values[query]]
    ]
    return markdown(heads, lines)


def _short(query: str) -> str:
    line = " ".join(query.split())
    return line if len(line) <= TEXT else f"{line[: TEXT - 1]}…"


TESTED = ("difference", "low", "high", "p", "p_corrected", "effect", "detectable")
COUNTS = ("wins", "ties", "losses")


def as_csv(report: ComparisonReport) -> str:
    """One line for each measure and system, numbers in full; the first system has no test. Run ids are divided by
    semicolons.
    """
    lines = [
        {"measure": measure, "system": row.system, "runs": ";".join(report.runs[row.system]), **_numbers(row)}
        for measure in report.comparison.table.columns
        for row in report.comparison.standings(measure)
    ]
    frame = pd.DataFrame(lines, dtype=object).map(csv_cell)
    return str(frame.to_csv(index=False, lineterminator="\n")).rstrip("\n")


def _numbers(row: Standing) -> dict[str, object]:
    cell = {"mean": row.cell.mean, "spread": row.cell.spread if row.cell.seeds > 1 else ""}
    cell |= {"seeds": row.cell.seeds, "queries": row.cell.queries}
    tests = {name: getattr(row.test, name) if row.test else "" for name in TESTED}
    return cell | tests | {name: getattr(row.pairing, name) if row.pairing else "" for name in COUNTS}
