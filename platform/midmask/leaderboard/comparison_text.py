"""A comparison as it is printed: sentences, a table for each measure, the queries that differ most; and as CSV."""

import csv
import io
from collections.abc import Callable, Iterator

from midmask.evaluation.escaping import csv_cell, markdown_text
from midmask.evaluation.rendering import MISSING, markdown
from midmask.evaluation.statistics.sentences import p_text, sentence
from midmask.leaderboard.comparison import SystemComparison
from midmask.leaderboard.queries import Sided

TEXT = 100
"""Characters of a query, its id included, that are shown."""

TITLES: dict[Sided, str] = {"wins": "gains", "losses": "loses"}


def as_text(found: SystemComparison) -> str:
    """For a terminal; names and queries are as they are."""
    return _render(found, str)


def as_markdown(found: SystemComparison) -> str:
    """The same with names and queries escaped."""
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
    """How it was tested, and what the seeds are to the test."""
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
    lines = [
        [
            text(_short(f"{one.query_id} {found.texts.get(one.query_id, '')}")),
            *(f"{one.own - one.base:+.4f}", f"{one.own:.4f}", f"{one.base:.4f}"),
        ]
        for one in found.widest[system, side]
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
