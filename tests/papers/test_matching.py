"""Intervals over seeds and queries: against formulas, by simulation from known truths, and by what must not matter."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from midmask.benchmark.results import Result, Results, SystemKey
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import IntervalEstimate
from midmask_papers.matching import Match, Term
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

A, B, BM25 = dense("retromae"), dense("mlm"), SystemKey("bm25", "none", "bm25", "none")
HOME = (("msmarco", "dev"),)


def difference(found: Results, better: SystemKey = A, worse: SystemKey = B, **options) -> IntervalEstimate:
    terms = (Term(1, better), Term(-1, worse))
    return Match(terms, options.pop("corpora", HOME)).estimate(found, "RR@10", **options)


def table(values: list[float], names: list[str] | None = None) -> pa.Table:
    ids = names or [f"q{number}" for number in range(len(values))]
    return pa.table({"query_id": ids, "measure": ["RR@10"] * len(values), "value": values})


def given_values(rows: dict[SystemKey, list[list[float]]], corpus: str = "msmarco") -> list[Result]:
    return [
        Result(key, seed, corpus, "dev", {"RR@10": float(np.mean(values))}, table(values))
        for key, own in rows.items()
        for seed, values in enumerate(own)
    ]


def test_one_seed_each_is_the_paired_t_interval():
    found = results(drawn({A: 0.4, B: 0.35}, seeds=1))
    a, b = (np.array(one.per_query["value"]) for one in found)
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    ours = difference(found)
    assert (ours.low, ours.high) == pytest.approx((wanted.low, wanted.high))
    assert ours.value == pytest.approx((a - b).mean()) and not ours.floor and ours.queries == 100


def test_seeds_that_differ_much_give_welchs_interval():
    """Queries that all behave alike leave the seeds' means, of two systems: Welch's t."""
    rows = {A: [[0.50] * 9, [0.52] * 9, [0.57] * 9], B: [[0.40] * 9, [0.41] * 9]}
    ours = difference(results(given_values(rows)))
    a, b = ([own[0] for own in rows[key]] for key in (A, B))
    wanted = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((wanted.low, wanted.high))
    assert ours.floor and ours.seeds == 2


def test_a_system_run_once_borrows_how_much_the_others_seeds_differ():
    rows = {A: [[0.50] * 9, [0.54] * 9, [0.58] * 9], B: [[0.40] * 9]}
    ours = difference(results(given_values(rows)))
    spread = 0.04**2
    wanted = stats.t.ppf(0.975, (spread / 3 + spread) ** 2 / ((spread / 3) ** 2 / 2 + spread**2 / 2))
    assert ours.high - ours.value == pytest.approx(wanted * math.sqrt(spread / 3 + spread))
    assert ours.seeds == 1 and ours.floor


def test_bm25_has_no_seed_to_differ_by():
    rows = {A: [[0.50] * 9, [0.54] * 9], BM25: [[0.40] * 9]}
    ours = difference(results(given_values(rows)), A, BM25)
    assert ours.high - ours.value == pytest.approx(stats.t.ppf(0.975, 1) * math.sqrt(0.04**2 / 2 / 2))
    assert ours.seeds == 2


def test_corpora_weigh_the_same_however_many_queries_they_have():
    noise = Noise(seed=0.0, both=0.0)
    parts = [
        drawn({A: 0.4 + step, B: 0.4}, noise=noise, queries=queries, seeds=1, draw=draw, corpus=corpus)
        for draw, (corpus, queries, step) in enumerate([("one", 400, 0.1), ("two", 40, 0.3)])
    ]
    ours = difference(results(*parts), corpora=(("one", "dev"), ("two", "dev")))
    apart = [difference(results(part), corpora=((part[0].corpus, "dev"),)) for part in parts]
    assert ours.value == pytest.approx(np.mean([one.value for one in apart])) and ours.queries == 440
    variances = [((one.high - one.value) / stats.t.ppf(0.975, one.queries - 1)) ** 2 for one in apart]
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 399 + variances[1] ** 2 / 39)
    assert ours.high - ours.value == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(sum(variances)) / 2)


@pytest.mark.parametrize("noise", [Noise(seed=0.0), Noise(seed=0.05, both=0.05)])
def test_intervals_cover_the_truth_at_least_as_often_as_they_say(noise):
    """300 draws a case; 0.93 is 1.6 standard errors below 0.95."""
    covered = [
        found.low <= 0.03 <= found.high
        for draw in range(300)
        for found in [difference(results(drawn({A: 0.43, B: 0.4}, noise=noise, queries=60, draw=draw)))]
    ]
    assert 0.93 <= np.mean(covered) <= 0.995


@settings(max_examples=30)
@given(draw=st.integers(0, 10**6), seeds=st.integers(1, 4), step=st.floats(-0.2, 0.2))
def test_systems_that_change_places_flip_the_sign_and_order_of_seeds_and_queries_is_nothing(draw, seeds, step):
    found = results(drawn({A: 0.4 + step, B: 0.4}, queries=20, seeds=seeds, draw=draw))
    one, other = difference(found), difference(found, B, A)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
    assert one.detectable == pytest.approx(other.detectable)
    turned = [
        Result(r.key, r.seed, r.corpus, r.split, r.measures, r.per_query.take(list(range(19, -1, -1)))) for r in found
    ]
    assert difference(Results(reversed(turned))).low == pytest.approx(one.low)


def test_what_cannot_be_paired_is_refused():
    one = [Result(A, 0, "msmarco", "dev", {"RR@10": 0.5}, table([0.5, 0.5], ["q1", "q2"]))]
    other = [Result(B, 0, "msmarco", "dev", {"RR@10": 0.5}, table([0.5, 0.5], ["q1", "q3"]))]
    with pytest.raises(UserError, match="mlm and retromae cannot be paired: 1 queries are only in the first"):
        difference(results(one, other))
    with pytest.raises(ValueError, match=r"no result of .*mlm"):
        difference(results(one))
    with pytest.raises(UserError, match="retromae, seed 2 and retromae, seed 1 cannot be paired"):
        difference(results(one, [Result(A, 1, "msmarco", "dev", {"RR@10": 0.5}, table([0.5], ["q1"]))], other))
    far = drawn({A: 0, B: 0}, seeds=2, corpus="two")
    with pytest.raises(ValueError, match="same seeds on all corpora"):
        difference(results(drawn({A: 0, B: 0}, corpus="one"), far), corpora=(("one", "dev"), ("two", "dev")))


def test_one_query_decides_nothing():
    found = difference(results(given_values({A: [[0.9]], B: [[0.1]]})))
    assert (found.value, found.low, found.detectable) == (pytest.approx(0.8), -math.inf, math.inf)
