"""Tables of systems × measures, corpora or slices, with what differs significantly: the data that renderings print.

Each column is tested on its own: its family is the pairs of systems in it (all pairs, or all against the baseline). The
defaults are those of the SIGIR'23 benchmark of middle training: paired t-test, Bonferroni, 0.05, all pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midmask.errors import UserError
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import deviation, seed_spread, tables_of
from midmask.evaluation.statistics.significance import Comparison, Correction, PerQuery, better_than, compare


@dataclass(frozen=True)
class TableColumn:
    """One measure of several systems on the same queries."""

    label: str
    measure: str
    per_query: PerQuery


@dataclass(frozen=True)
class TableCell:
    """One system in one column."""

    mean: float  # over queries and seeds
    spread: float = 0.0  # standard deviation of the seeds' means; 0 for a single seed
    queries: int = 0  # 0 in a column of averages
    seeds: int = 0  # 0 in a column of averages
    best: bool = False
    better_than: tuple[str, ...] = ()  # the systems that it is significantly better than


@dataclass(frozen=True)
class ComparisonProtocol:
    """How the systems of a table were compared, by paired t-tests."""

    baseline: str | None = None
    correction: Correction | None = "bonferroni"
    seeds: bool = False  # whether the t-test counts seeds too, by their spread pooled over a column


@dataclass(frozen=True)
class ResultTable:
    """The results of systems in several columns, with the tests between them."""

    systems: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], TableCell]  # (system, column) -> cell; none where the column lacks the system
    comparisons: Mapping[str, Sequence[Comparison]]  # column -> its tests
    protocol: ComparisonProtocol


def by_measure(per_query: PerQuery, measures: Sequence[str]) -> list[TableColumn]:
    """One column per measure, all on the same queries."""
    return [TableColumn(name, name, per_query) for name in measures]


def tabulate(columns: Sequence[TableColumn], protocol: ComparisonProtocol = ComparisonProtocol()) -> ResultTable:
    """The table of these columns.

    Raises:
        UserError: for two columns of one label, and whatever `compare` refuses (a column without the baseline, …).
    """
    labels = [column.label for column in columns]
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise UserError(f"columns need labels of their own; given twice: {', '.join(repeated)}")
    cells: dict[tuple[str, str], TableCell] = {}
    comparisons: dict[str, list[Comparison]] = {}
    for column in columns:
        means = {name: [_mean(run, column.measure) for run in tables_of(row)] for name, row in column.per_query.items()}
        spread = seed_spread([[mean for mean, _ in runs] for runs in means.values()]) if protocol.seeds else None
        comparisons[column.label] = rows = compare(
            column.per_query,
            measure=column.measure,
            baseline=protocol.baseline,
            correction=protocol.correction,
            seeds=spread,
        )
        for name, cell in _cells(means, rows).items():
            cells[name, column.label] = cell
    systems = tuple(dict.fromkeys(name for column in columns for name in column.per_query))
    return ResultTable(systems, tuple(labels), cells, comparisons, protocol)


def _cells(seeds: Mapping[str, Sequence[tuple[float, int]]], comparisons: Sequence[Comparison]) -> dict[str, TableCell]:
    """System -> its cell; `seeds`: its mean and number of queries with each seed."""
    means = {name: float(np.mean([mean for mean, _ in seed_means])) for name, seed_means in seeds.items()}
    most = max(means.values())
    beaten = better_than(comparisons)
    return {
        name: TableCell(
            mean=means[name],
            spread=deviation([mean for mean, _ in seed_means]),
            queries=seed_means[0][1],
            seeds=len(seed_means),
            best=means[name] >= most - 1e-12,  # equal values may differ in the last bit, by the order of their queries
            better_than=tuple(beaten.get(name, ())),
        )
        for name, seed_means in seeds.items()
    }


def _mean(table: pa.Table, measure: str) -> tuple[float, int]:
    """The mean of a measure over its queries, and how many there are."""
    values = by_query(table, measure)
    return float(np.mean(list(values.values()))), len(values)
