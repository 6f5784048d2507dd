"""Which pairs and which sources rank systems as people do, against scipy."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.benchmark.results import Result, SystemKey
from midmask.choice.assess import Counterparts
from midmask.choice.decided_pairs import DecidedPairs, decided_pairs
from midmask.choice.source_agreement import agreement_by_source

QUERIES = {"t1": "titles", "t2": "titles", "k1": "keyphrases", "k2": "keyphrases", "k3": "keyphrases", "d1": "titles"}
JUDGED = {("a", "dense"): 0.4, ("b", "dense"): 0.5, ("c", "dense"): 0.3, ("base", "dense"): 0.35}


def result(name: str, values: dict[str, float], split: str = "test") -> Result:
    table = pa.table({"query_id": list(values), "measure": ["nDCG@10"] * len(values), "value": list(values.values())})
    key = SystemKey(name, "none", "dense", "")
    return Result(key, 0, "made", split, {"nDCG@10": sum(values.values()) / len(values)}, table)


BASE = {"t1": 0.5, "t2": 0.2, "k1": 0.1, "k2": 0.3, "k3": 0.6}
MADE = {
    ("a", "dense"): result("a", {"t1": 0.6, "t2": 0.3, "k1": 0.9, "k2": 0.9, "k3": 0.9}),
    ("b", "dense"): result("b", {"t1": 0.8, "t2": 0.4, "k1": 0.1, "k2": 0.2, "k3": 0.6}),
    ("c", "dense"): result("c", {"d1": 0.1}, "dev"),
    ("base", "dense"): result("base", BASE),
}
COUNTERPARTS = Counterparts({"test": MADE["base", "dense"], "dev": result("base", {"d1": 0.4}, "dev")})


def test_each_source_ranks_by_its_own_queries_and_against_its_own_split() -> None:
    (titles,) = agreement_by_source(QUERIES, MADE, COUNTERPARTS, JUDGED)
    gains = [(0.1 + 0.1) / 2, (0.3 + 0.2) / 2, 0.1 - 0.4, 0.0]
    assert titles.source == "titles" and titles.queries == 1, "no keyphrase among c's queries, so none is compared"
    assert titles.kendall_tau == pytest.approx(stats.kendalltau(gains, list(JUDGED.values())).statistic)
    assert (titles.chosen, titles.regret) == ("b · dense", 0.0)

    two = {name: value for name, value in JUDGED.items() if name[0] != "c"}
    keyphrases, titles = agreement_by_source(QUERIES, MADE, COUNTERPARTS, two)
    assert (keyphrases.queries, keyphrases.chosen) == (3, "a · dense")
    assert keyphrases.regret == pytest.approx(0.1) and titles.queries == 2


RANKED = [(name, "dense") for name in "abcdef"]


def judged_result(name: str, values: np.ndarray) -> Result:
    queries = [f"q{number}" for number in range(len(values))]
    table = pa.table({"query_id": queries, "measure": ["nDCG@10"] * len(values), "value": values.tolist()})
    return Result(SystemKey(name, "none", "dense", ""), 0, "people", "test", {"nDCG@10": float(values.mean())}, table)


def test_pairs_are_those_of_a_paired_test_and_ties_of_a_verdict_are_not_alike() -> None:
    draw = np.random.default_rng(5)
    common = draw.normal(0.5, 0.2, 40)
    values = {name: common + draw.normal(0.02 * at, 0.08, 40) for at, name in enumerate(RANKED)}
    gains = {name: value for name, value in zip(RANKED, (0.0, 0.1, 0.1, -0.2, 0.3, 0.2), strict=True)}
    wanted = [0, 0]
    for one, other in combinations(RANKED, 2):
        found = stats.ttest_rel(values[one], values[other])
        if found.pvalue < 0.05:
            wanted[0] += 1
            wanted[1] += (gains[one] - gains[other]) * found.statistic > 0
    judged = {name: judged_result(name[0], own) for name, own in values.items()}
    assert decided_pairs(gains, judged) == DecidedPairs(*wanted)
    assert 0 < wanted[1] < wanted[0] < 15
    assert str(DecidedPairs(9, 7)) == "7 of 9 pairs that people's queries tell apart are ranked alike"
    equal = dict.fromkeys(RANKED, 0.1)
    assert decided_pairs(equal, judged) == DecidedPairs(wanted[0], 0)
