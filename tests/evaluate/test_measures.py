import math

import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.evaluate import measures
from midmask.retrieve import ranked

NAMES = ["nDCG@10", "RR@10", "R@100", "R(rel=2)@3", "AP", "P@5", "Success@1", "nDCG"]

DOCS = [f"d{row}" for row in range(15)]
QUERIES = [f"q{row}" for row in range(5)]

Run = dict[str, dict[str, float]]

runs = st.dictionaries(
    st.sampled_from(QUERIES),
    st.dictionaries(st.sampled_from(DOCS), st.sampled_from([0.0, 0.25, 1.0, 1.0 + 2**-40])),
    max_size=5,
)
judgements = st.dictionaries(
    st.sampled_from(QUERIES), st.dictionaries(st.sampled_from(DOCS), st.integers(0, 4), min_size=1), min_size=1
)


def listed(run: Run) -> pa.Table:
    rows = [(query, doc, score) for query, docs in run.items() for doc, score in docs.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    types = [pa.string(), pa.string(), pa.float32()]
    return ranked.order(
        pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)],
            ["query_id", "doc_id", "score"],
        )
    )


def judged(grades: dict[str, dict[str, int]], split: str = "dev") -> pa.Table:
    rows = [(split, query, doc, grade) for query, docs in grades.items() for doc, grade in docs.items()]
    return pa.table([list(column) for column in zip(*rows, strict=True)], ["split", "query_id", "doc_id", "grade"])


def by_hand(name: str, order: list[str], grades: dict[str, int]) -> float:
    """The measures' definitions, spelt out in float64; relevant is grade >= 1 unless rel= says otherwise."""
    gains = [grades.get(doc, 0) for doc in order]
    least = 2 if "rel=2" in name else 1
    relevant = sum(grade >= least for grade in grades.values())
    cut = int(name.split("@")[1]) if "@" in name else len(order)
    hits = [gain >= least for gain in gains[:cut]]
    if name.startswith("nDCG"):
        ideal = sorted(grades.values(), reverse=True)[: cut if "@" in name else None]
        best = sum(gain / math.log2(place + 2) for place, gain in enumerate(ideal))
        return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:cut])) / best if best else 0.0
    if name.startswith("RR"):
        return 1 / (hits.index(True) + 1) if any(hits) else 0.0
    if name.startswith("R"):
        return sum(hits) / relevant if relevant else 0.0
    if name.startswith("P"):
        return sum(hits) / cut
    if name.startswith("Success"):
        return float(any(hits))
    return (
        sum(sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits) if hit) / relevant
        if relevant
        else 0.0
    )


@settings(max_examples=60, deadline=None)
@given(runs, judgements)
def test_every_measure_is_its_definition_on_the_list_whose_ties_are_broken(run, grades):
    """Scores that differ by 2^-40 are one score in single precision: the document id decides."""
    per_query = measures.evaluate(listed(run), judged(grades), "dev", NAMES).to_pylist()
    assert [(row["query_id"], row["measure"]) for row in per_query] == sorted(
        (query, name) for query in grades for name in NAMES
    )
    for row in per_query:
        docs = run.get(row["query_id"], {})
        order = sorted(docs, key=lambda doc: (-(1.0 if docs[doc] > 1 else docs[doc]), doc))
        assert row["value"] == pytest.approx(by_hand(row["measure"], order, grades[row["query_id"]]), abs=1e-9), row


@settings(max_examples=30, deadline=None)
@given(runs, judgements)
def test_values_are_those_of_trec_eval_on_a_run_without_ties(run, grades):
    strict = {
        query: {doc: -float(place) for place, doc in enumerate(sorted(docs, key=lambda doc: (-docs[doc], doc)))}
        for query, docs in run.items()
    }
    official = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut_10", "recall_100", "map", "recip_rank"}).evaluate(
        strict
    )
    names = {"nDCG@10": "ndcg_cut_10", "R@100": "recall_100", "AP": "map", "RR": "recip_rank"}
    for row in measures.evaluate(listed(strict), judged(grades), "dev", list(names)).to_pylist():
        expected = official.get(row["query_id"], {}).get(names[row["measure"]], 0.0)
        assert row["value"] == pytest.approx(expected, abs=1e-12)


def test_measures_that_ir_measures_computes_in_different_ways_see_one_order():
    """Three equal scores, the relevant document last by id: ir-measures itself says RR@10 = 1/3 and nDCG@10 = 1."""
    values = measures.aggregate(
        measures.evaluate(
            listed({"q": dict.fromkeys("abc", 1.0)}), judged({"q": {"c": 1}}), "dev", ["nDCG@10", "RR@10"]
        )
    )
    assert values == {"RR@10": pytest.approx(1 / 3), "nDCG@10": pytest.approx(0.5)}


def test_queries_without_results_score_0_and_queries_without_judgements_are_counted():
    found, qrels = listed({"q0": {"a": 1.0}, "x": {"a": 1.0}}), judged({"q0": {"a": 1}, "q1": {"a": 1}, "q2": {"b": 0}})
    per_query = measures.evaluate(found, qrels, "dev", ["RR@10"])
    assert measures.by_query(per_query, "RR@10") == {"q0": 1.0, "q1": 0.0, "q2": 0.0}
    assert measures.coverage(found, qrels, "dev") == {"queries": 3, "without_results": 2, "without_relevant": 1, "unjudged": 1}
    assert measures.aggregate(per_query) == {"RR@10": pytest.approx(1 / 3)}


def test_only_the_split_counts():
    qrels = pa.concat_tables([judged({"q": {"a": 1}}), judged({"q": {"b": 1}}, "test")])
    found = listed({"q": {"a": 2.0, "b": 1.0}})
    assert measures.aggregate(measures.evaluate(found, qrels, "test", ["RR@10"])) == {"RR@10": 0.5}
    with pytest.raises(UserError, match=r"split 'tset': no judgements. Known: dev, test\."):
        measures.evaluate(found, qrels, "tset", ["RR@10"])


def test_a_list_whose_ranks_are_not_strict_is_a_bug():
    with pytest.raises(ValueError, match="rank 3"):
        found = listed({"q": {"a": 2.0, "b": 1.0, "c": 0.0}})
        measures.evaluate(found.take([0, 2]), judged({"q": {"a": 1}}), "dev", ["RR@10"])


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nDGC@10", r"unknown measure 'nDGC'; did you mean 'nDCG'\?"),
        ("nDCG@ten", "measure 'nDCG@ten'"),
        ("", "measure ''"),
        ("nDCG(gein=1)@10", "measure 'nDCG"),
        ("NRBP", "nothing installed can compute it"),
    ],
)
def test_a_mistyped_measure_is_one_line(name: str, complaint: str):
    with pytest.raises(UserError, match=complaint) as caught:
        measures.parse([name])
    assert "\n" not in str(caught.value)


def test_one_measure_under_two_names_is_refused():
    with pytest.raises(UserError, match="twice"):
        measures.parse(["RR@10", "MRR@10"])


def test_recall_at_1000_waits_for_a_large_corpus_and_a_deep_list():
    assert measures.default_measures(1398, 1000) == ["nDCG@10", "RR@10", "R@100"]
    assert measures.default_measures(20_958, 100) == ["nDCG@10", "RR@10", "R@100"]
    assert measures.default_measures(20_958, 1000)[-1] == "R@1000"
