"""Which pairs people's queries tell apart, against scipy's paired test, and whether a verdict ranks them alike."""

from itertools import combinations

import numpy as np
import pyarrow as pa
from scipy import stats

from midmask.benchmark.results import Result, SystemKey
from midmask.choice.decided_pairs import DecidedPairs, decided_pairs

SYSTEMS = [(name, "dense") for name in "abcdef"]


def result(name: str, values: np.ndarray) -> Result:
    queries = [f"q{number}" for number in range(len(values))]
    table = pa.table({"query_id": queries, "measure": ["nDCG@10"] * len(values), "value": values.tolist()})
    return Result(SystemKey(name, "none", "dense", ""), 0, "people", "test", {"nDCG@10": float(values.mean())}, table)


def test_pairs_are_those_of_a_paired_test_and_ties_of_a_verdict_are_not_alike() -> None:
    draw = np.random.default_rng(5)
    common = draw.normal(0.5, 0.2, 40)
    values = {name: common + draw.normal(0.02 * at, 0.08, 40) for at, name in enumerate(SYSTEMS)}
    gains = {name: value for name, value in zip(SYSTEMS, (0.0, 0.1, 0.1, -0.2, 0.3, 0.2), strict=True)}
    wanted = [0, 0]
    for one, other in combinations(SYSTEMS, 2):
        found = stats.ttest_rel(values[one], values[other])
        if found.pvalue < 0.05:
            wanted[0] += 1
            wanted[1] += (gains[one] - gains[other]) * found.statistic > 0
    judged = {name: result(name[0], own) for name, own in values.items()}
    assert decided_pairs(gains, judged) == DecidedPairs(*wanted)
    assert 0 < wanted[1] < wanted[0] < 15
    assert str(DecidedPairs(9, 7)) == "7 of 9 pairs that people's queries tell apart are ranked alike"
    equal = dict.fromkeys(SYSTEMS, 0.1)
    assert decided_pairs(equal, judged) == DecidedPairs(wanted[0], 0)
