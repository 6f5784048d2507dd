"""Ranks of systems over several collections, where of each collection only a mean is known.

The collections are the sample: a system's values are paired by collection and compared by Wilcoxon's signed-rank test,
which asks neither for equal scales nor for a normal distribution (Demšar 2006, JMLR 7, section 3.1.3), corrected by
Holm over all pairs. Five collections or fewer cannot tell two systems apart at 0.05.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import pyarrow as pa

from midmask.evaluation.statistics.ranks import RankRange, competition_ranks, rank_ranges
from midmask.evaluation.statistics.significance import compare


@dataclass(frozen=True)
class TaskRank:
    """mean: over the tasks. rank: by the mean; equal means share one. allowed: the ranks that the tests allow."""

    mean: float
    rank: int
    allowed: RankRange


def task_ranks(values: Mapping[str, Mapping[str, float]], measure: str) -> dict[str, TaskRank]:
    """System -> its rank, the best first.

    Args:
        values: system -> task -> value of the measure; at least one system, all with the same tasks.

    Raises:
        UserError: for systems of different tasks.
    """
    tables = {
        name: pa.table({"query_id": list(own), "measure": [measure] * len(own), "value": list(own.values())})
        for name, own in values.items()
    }
    allowed = rank_ranges(compare(tables, measure=measure, test="wilcoxon")) if len(tables) > 1 else {}
    means = {name: fmean(own.values()) for name, own in values.items()}
    return {
        name: TaskRank(means[name], rank, allowed.get(name, RankRange(1, 1)))
        for name, rank in sorted(competition_ranks(means).items(), key=lambda one: one[1])
    }
