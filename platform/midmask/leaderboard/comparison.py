"""Systems side by side on the queries that all of them have, every other one against the first; also as text and CSV.

As text: sentences, a table for each measure, and the queries that differ most. `comparable` says which systems of a
collection and split can be compared query by query, their seeds joined, and which come first.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import csv_cell, markdown, markdown_text
from midmask.evaluation.statistics.pairing import Pairing, Sided, pair_systems, widest
from midmask.evaluation.statistics.significance import p_text, sentence
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, by_measure, tabulate
from midmask.leaderboard.artifacts import artifact_place, evaluated
from midmask.leaderboard.entries import LABELS, Entry, PerQueryOf, kind, seed_tables
from midmask.leaderboard.queries import query_texts
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, measure_names
from midmask.tracking.reading import TrackedRow

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
        """A system of the recipe `none`, else of BM25, else the oldest of all. Of several, that whose representation,
        protocol and backbone most systems share, the newest of those.
        """
        kinds = Counter(map(kind, self.entries.values()))
        for recipe in BASELINES:
            if names := [name for name, entry in self.entries.items() if entry.recipe.lower() == recipe]:
                return max(names, key=lambda name: kinds[kind(self.entries[name])])
        return min(self.entries, key=lambda name: self.entries[name].started)

    def others(self, place: CollectionSplit, measure: str, baseline: str) -> list[str]:
        """The systems beside the baseline: those of its representation, protocol and backbone first, of these that of
        the highest mean.
        """
        means = {name: value.mean for name, entry in self.entries.items() if (value := entry.value(place, measure))}
        baseline_kind = kind(self.entries[baseline])
        return sorted(
            means.keys() - {baseline}, key=lambda name: (kind(self.entries[name]) != baseline_kind, -means[name], name)
        )


def comparable(found: Sequence[Entry], place: CollectionSplit, measure: str, values: PerQueryOf) -> ComparableSystems:
    """The systems that were evaluated at this place with this measure; trials of sweeps after the others.

    Raises:
        UserError: if the store does not answer.
    """
    here = [entry for entry in found if entry.value(place, measure)]
    here.sort(key=lambda entry: (entry.trial, -entry.started.timestamp()))
    by_name = {name: seed_tables(entry, place, values, measure) for name, entry in short_names(here[:MOST]).items()}
    entries = {name: entry for name, entry in short_names(here[:MOST]).items() if by_name[name]}
    tables = {name: by_name[name] for name in entries}
    return ComparableSystems(entries, tables, tuple(by_name.keys() - tables.keys()), max(0, len(here) - MOST))


def short_names(found: Sequence[Entry]) -> dict[str, Entry]:
    """Short name (recipe, and the labels that differ within it) -> system, in the order given."""
    alike: dict[str, list[Entry]] = {}
    for entry in found:
        alike.setdefault(entry.recipe, []).append(entry)
    fields = {
        recipe: [name for name in (*LABELS[1:], "note") if len({getattr(entry, name) for entry in group}) > 1]
        for recipe, group in alike.items()
    }
    names: dict[str, Entry] = {}
    for entry in found:
        parts = [entry.recipe, *(getattr(entry, name) for name in fields[entry.recipe]), "trial" if entry.trial else ""]
        name = " · ".join(filter(None, parts))
        names[entry.name if name in names else name] = entry
    return names


SIDES: tuple[Sided, ...] = ("wins", "losses")


@dataclass(frozen=True)
class SystemComparison:
    """The differences between systems that were evaluated on one collection and split."""

    place: str
    first: str
    table: ResultTable  # a column for each measure; tests against `first`, corrected by Holm in each measure
    runs: Mapping[str, Sequence[str]]  # system -> ids of its runs, one per seed
    pairings: Mapping[tuple[str, str], Pairing]  # (system, measure) -> its values beside those of the first
    # (system, side) -> ids of the queries on which it gains most (wins) or loses most in the first measure
    widest: Mapping[tuple[str, Sided], Sequence[str]]
    texts: Mapping[str, str]  # texts of these queries, as far as the collection can be reached

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
    sided = {(name, side): widest(pairings[name, shown[0]], queries, side) for name in others for side in SIDES}
    ids = {name: [row.run_id for row in rows] for name, rows in systems.items()}
    query_ids = {query for listed in sided.values() for query in listed}
    texts = _query_texts(query_ids, [row for rows in systems.values() for row in rows], runs)
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
    """The chosen measures, or all that every row has, the field's favourites first."""
    shared = [name for name in measure_names(rows) if all(name in row.measures for row in rows)]
    for name in wanted:
        if name not in shared:
            raise unknown("measure", name, shared, hint="These are what all of the systems have.")
    if not shared:
        raise UserError("these systems share no measure; evaluate them with the same --set evaluation.measures=[…]")
    return list(dict.fromkeys(wanted)) or shared


def _query_texts(query_ids: set[str], rows: Sequence[LeaderboardRow], runs: Sequence[TrackedRow]) -> Mapping[str, str]:
    """Query -> its text, from the first collection that can be reached; empty if none can."""
    by_id = {run.run_id: run for run in runs}
    for row in rows if query_ids else ():
        corpus = evaluated(artifact_place(by_id[row.run_id], row.corpus, row.split)).corpus
        if corpus is not None:
            return query_texts(corpus, query_ids)
    return {}


TEXT = 100
"""Characters of a query, its id included, that are shown."""

TITLES: dict[Sided, str] = {"wins": "gains", "losses": "loses"}


def as_text(found: SystemComparison) -> str:
    """The comparison as text for a terminal; names and queries are not escaped."""
    return _render(found, str)


def as_markdown(found: SystemComparison) -> str:
    """The comparison as Markdown; names and queries are escaped."""
    return _render(found, markdown_text)


def _render(found: SystemComparison, text: Callable[[str], str]) -> str:
    first = found.table.columns[0]
    tests = found.table.comparisons[first]
    blocks = [text(sentence(row, found.place, len(tests))) for row in tests]
    blocks += [_measure_table(found, measure, text) for measure in found.table.columns]
    blocks += [text(_caption(found))]
    for (system, side), listed in found.widest.items():
        if listed:
            blocks += [
                text(f"Where {system} {TITLES[side]} most, in {first}:"),
                _query_table(found, system, side, text),
            ]
    return "\n\n".join(blocks)


def _measure_table(found: SystemComparison, measure: str, text: Callable[[str], str]) -> str:
    tests = {row.system: row for row in found.table.comparisons[measure]}
    heads = [measure, "mean", "difference", "95% interval", "p (Holm)", "queries", "wins", "ties", "losses"]
    lines = []
    for system in found.table.systems:
        cell = found.table.cells[system, measure]
        mean = f"{cell.mean:.4f}" + (f" ± {cell.spread:.4f}" if cell.seeds > 1 else "")
        test, rest = [MISSING] * 3, [MISSING] * 3
        if (row := tests.get(system)) is not None:
            pairing = found.pairings[system, measure]
            test = [f"{row.difference:+.4f}", f"{row.low:+.4f} … {row.high:+.4f}", p_text(row)]
            rest = [f"{count:,}" for count in (pairing.wins, pairing.ties, pairing.losses)]
        lines.append([text(system), mean, *test, f"{cell.queries:,}", *rest])
    return markdown(heads, lines)


def _caption(found: SystemComparison) -> str:
    """The caption: how differences were tested, and how seeds enter the test."""
    counts = {name: len(ids) for name, ids in found.runs.items()}
    tests = len(found.others)
    family = f"Holm's correction for {tests} comparisons of a measure" if tests > 1 else "one comparison of a measure"
    said = f"Differences: to {found.first}. Paired t-test over queries, {family}; intervals are of one test."
    if max(counts.values()) == 1:
        return f"{said} One run each: how much another training seed would change is not in them."
    seeds = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"{said} ±: standard deviation over seeds ({seeds}), whose mean is tested for each query."


def _query_table(found: SystemComparison, system: str, side: Sided, text: Callable[[str], str]) -> str:
    heads = ["query", "difference", text(system), text(found.first)]
    values = found.pairings[system, found.table.columns[0]].values
    lines = [
        [text(_short(f"{query} {found.texts.get(query, '')}")), f"{value - base:+.4f}", f"{value:.4f}", f"{base:.4f}"]
        for query in found.widest[system, side]
        for value, base in [values[query]]
    ]
    return markdown(heads, lines)


def _short(query: str) -> str:
    line = " ".join(query.split())
    return line if len(line) <= TEXT else f"{line[: TEXT - 1]}…"


def as_csv(found: SystemComparison) -> str:
    """One line for each measure and system, numbers in full; the first system has no test. Run ids are divided by
    semicolons.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    tested = ("difference", "low", "high", "p", "p_corrected", "effect", "detectable")
    writer.writerow(
        ["measure", "system", "runs", "mean", "spread", "seeds", "queries", *tested, "wins", "ties", "losses"]
    )
    writer.writerows(map(csv_cell, line) for line in _csv_lines(found, tested))
    return stream.getvalue().rstrip("\n")


def _csv_lines(found: SystemComparison, tested: tuple[str, ...]) -> Iterator[list[object]]:
    for measure in found.table.columns:
        tests = {row.system: row for row in found.table.comparisons[measure]}
        for system in found.table.systems:
            cell, row = found.table.cells[system, measure], tests.get(system)
            line: list[object] = [measure, system, ";".join(found.runs[system])]
            line += [cell.mean, cell.spread if cell.seeds > 1 else "", cell.seeds, cell.queries]
            if row is None:
                yield [*line, *[""] * (len(tested) + 3)]
            else:
                pairing = found.pairings[system, measure]
                yield [*line, *(getattr(row, name) for name in tested), pairing.wins, pairing.ties, pairing.losses]
