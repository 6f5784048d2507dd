"""Which source would have ranked systems as people's judgements do."""

import pyarrow as pa
import pytest
from scipy import stats

from midmask.benchmark.results import Result, SystemKey
from midmask.choice.assess import Counterparts
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
