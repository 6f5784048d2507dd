"""How many pairs of systems that people's queries tell apart are ranked alike by a verdict.

Kendall's tau counts every pair. Where many systems are equally good, most of its pairs are decided by which queries
happened to be asked, and no verdict can rank those as they fell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from midmask.benchmark.results import Result
from midmask.choice.assess import paired
from midmask.choice.verdict import SystemName
from midmask.evaluation.statistics.intervals import ALPHA, Variance, interval


@dataclass(frozen=True)
class DecidedPairs:
    """alike: of the pairs, those that the verdict ranks as people's queries do."""

    pairs: int
    alike: int

    def __str__(self) -> str:
        return f"{self.alike} of {self.pairs} pairs that people's queries tell apart are ranked alike"


def decided_pairs(gains: Mapping[SystemName, float], judged: Mapping[SystemName, Result]) -> DecidedPairs:
    """Counts the pairs that a paired t-test at `ALPHA` tells apart; no correction, since a pair counts for itself.

    Args:
        gains: system -> its estimated gain. judged: system -> its result on people's queries.
    """
    pairs = alike = 0
    for one, other in combinations(gains, 2):
        differences = paired(judged[one], judged[other])
        found = interval(float(differences.mean()), [Variance.of_mean(differences)], ALPHA)
        if found.low > 0 or found.high < 0:
            pairs += 1
            alike += (gains[one] - gains[other]) * found.value > 0
    return DecidedPairs(pairs, alike)
