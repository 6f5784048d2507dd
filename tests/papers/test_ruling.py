"""Intervals over seeds and queries, by formulas and simulation; what they and a published size decide."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from midmask.benchmark.results import Result, Results, SystemKey
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import IntervalEstimate
from midmask_papers.claims import CLAIMS
from midmask_papers.ruling import ClaimPart, Match, Ruling, Term, combine, decide, judge, within
from tests.support.benchmark.synthetic import Noise, dense, drawn, results, truth


@settings(max_examples=20)
@given(draw=st.integers(0, 10**6), step=st.floats(0.005, 0.2), seeds=st.integers(1, 3), scale=st.floats(0.01, 3))
def test_swapped_systems_never_both_hold_and_less_noise_decides(draw, step, seeds, scale):
    a, b = dense("retromae"), dense("mlm")
    part = ClaimPart("", (Term(1, a, 0.3), Term(-1, b, 0.29)), "RR@10", ("msmarco", "dev"))
    turned = replace(part, terms=(Term(1, b, 0.3), Term(-1, a, 0.29)))
    truth = {a: 0.3 + step, b: 0.3}
    found = results(drawn(truth, noise=Noise().scaled(scale), queries=30, seeds=seeds, draw=draw))
    one, other = (decide(each, found) for each in (part, turned))
    assert one.estimate.value == pytest.approx(-other.estimate.value)
    assert (one.outcome == "holds") <= (other.outcome == "does not hold")
    sure = results(drawn(truth, noise=Noise().scaled(1e-4), queries=30, seeds=seeds, draw=draw))
    assert [decide(each, sure).outcome for each in (part, turned)] == ["holds", "does not hold"]


@pytest.mark.parametrize(("of_bm25", "learned"), [(0.11, True), (0.09, False)])
def test_systems_that_have_hardly_learned_to_search_decide_nothing(of_bm25, learned):
    """By the better one of them on each place; which of the two that is does not matter."""
    a, b, bm25 = A, B, BM25
    size, tiny = 0.6, Noise().scaled(1e-4)
    truth = {a: of_bm25 * size, b: 0.0, bm25: size}
    part = ClaimPart("", (Term(1, a, 0.3), Term(-1, b, 0.2)), "RR@10", ("msmarco", "dev"))
    turned = replace(part, terms=(Term(1, b, 0.3), Term(-1, a, 0.2)))
    found = results(drawn(truth, noise=tiny))
    outcomes = [decide(each, found).outcome for each in (part, turned)]
    assert outcomes == (["holds", "does not hold"] if learned else ["not decidable"] * 2)
    assert ("too little to decide it" in decide(part, found).sentence) is not learned
    assert within(part, found, 1.0, "rom").outcome == ("holds" if learned else "not decidable")
    assert decide(part, Results([one for one in found if one.key != bm25])).outcome == "holds", "nothing to hold it to"
    elsewhere = [drawn(truth, noise=tiny, corpus=name) for name in ("x", "y")]
    anywhere, without_bm25 = replace(part, elsewhere=True), [one for one in elsewhere[1] if one.key != bm25]
    assert (decide(anywhere, results(found, *elsewhere)).outcome == "holds") is learned
    partly = decide(anywhere, results(found, elsewhere[0], without_bm25))
    assert (partly.outcome == "holds") is learned, "where BM25 is known it counts"


def test_every_place_has_to_be_learned():
    """A mean over places would let one that was learned speak for one that was not."""
    levels, quiet = {"home": 0.5, "near": 0.5, "far": 0.01}, Noise().scaled(1e-4)
    truths = {name: {A: level, B: level / 2, BM25: 0.6} for name, level in levels.items()}
    found = results(*(drawn(truth, noise=quiet, corpus=name) for name, truth in truths.items()))
    ruling = decide(ClaimPart("", (Term(1, A), Term(-1, B)), "RR@10", ("home", "dev"), elsewhere=True), found)
    assert ruling.outcome == "not decidable" and ruling.estimate.low > 0
    assert [weak.place for weak in ruling.weak] == ["far dev (BM25 0.6000)"]


def test_a_condition_is_a_fine_tuning_a_representation_and_what_was_read():
    """none belongs to every condition of its fine-tuning; what another collection has taught does not speak for it."""
    corpus, wiki, none = dense("retromae"), dense("retromae", collection="wiki"), dense("none")

    def outcome(better: SystemKey, worse: SystemKey, *levels: float) -> str:
        truth = dict(zip((corpus, wiki, none, BM25), (*levels, 0.6), strict=True))
        part = ClaimPart("", (Term(1, better), Term(-1, worse)), "RR@10", ("msmarco", "dev"))
        return decide(part, results(drawn(truth, noise=Noise().scaled(1e-4)))).outcome

    assert outcome(corpus, wiki, 0.3, 0.2, 0.0) == "holds"
    assert outcome(corpus, wiki, 0.3, 0.01, 0.0) == outcome(wiki, corpus, 0.3, 0.01, 0.0) == "not decidable"
    assert outcome(corpus, none, 0.3, 0.0, 0.0) == "holds"
    assert outcome(wiki, none, 0.0, 0.01, 0.02) == "not decidable"


@given(value=st.floats(-1, 1), half=st.floats(0, 1), size=st.none() | st.floats(0.001, 1), factor=st.floats(0.001, 1))
def test_judging_is_monotonous(value, half, size, factor):
    """A narrower interval that lies within never turns one decision into the other."""
    wide = judge(IntervalEstimate(value, value - half, value + half, 0, 1), size)
    narrow = judge(IntervalEstimate(value, value - factor * half, value + factor * half, 0, 1), size)
    assert wide == narrow or wide == "not decidable" or (wide, narrow) == ("does not hold", "holds")
    point = judge(IntervalEstimate(value, value, value, 0, 1), size)
    assert point != "not decidable" or value == 0 or (size and value >= size)


@pytest.mark.parametrize(("low", "high", "size", "outcome"), [
    (0.01, 0.02, 0.05, "holds"), (-0.02, -0.01, 0.05, "does not hold"), (-0.01, 0.04, 0.05, "does not hold"),
    (-0.01, 0.06, 0.05, "not decidable"), (-0.01, 0.06, None, "not decidable"),
])  # fmt: skip
def test_judgements_by_hand(low, high, size, outcome):
    assert judge(IntervalEstimate((low + high) / 2, low, high, 0, 1), size) == outcome


def test_of_several_parts_the_worst_counts_and_parts_share_the_level():
    said = {one: Ruling(one, one) for one in ("holds", "not decidable", "not measured", "does not hold")}
    assert combine([said["holds"], said["not decidable"]]).outcome == "not decidable"
    assert combine([said["not decidable"], said["not measured"]]).outcome == "not measured"
    assert combine([said["not measured"], said["does not hold"], said["holds"]]).outcome == "does not hold"
    far, near = IntervalEstimate(0.3, 0.2, 0.4, 0.1, 0.01), IntervalEstimate(0.5, 0.1, 0.9, 0.4, 0.02)
    assert combine([Ruling("holds", "", far), Ruling("holds", "", near)]).estimate == near
    systems = {key: value for key, value in truth("RR@10", "msmarco").items() if "retromae" in key.system}
    names = ("enhanced", "one_layer")
    one, two = (CLAIMS[f"retromae.{name}"].decide(results(drawn(systems))).estimate for name in names)
    assert (two.high - two.low) / two.detectable > (one.high - one.low) / one.detectable


A, B, BM25 = dense("retromae"), dense("mlm"), SystemKey("bm25", "none", "bm25", "none")
HOME = (("msmarco", "dev"),)


def difference(found: Results, better: SystemKey = A, worse: SystemKey = B, **options) -> IntervalEstimate:
    terms = (Term(1, better), Term(-1, worse))
    return Match(terms, options.pop("corpora", HOME)).estimate(found, "RR@10", **options)


def table(values: list[float], names: list[str] | None = None) -> pa.Table:
    ids = names or [f"q{number}" for number in range(len(values))]
    return pa.table({"query_id": ids, "measure": ["RR@10"] * len(values), "value": values})


def given_values(rows: dict[SystemKey, list[list[float]]], corpus: str = "msmarco") -> list[Result]:
    seeds = [(key, seed, values) for key, own in rows.items() for seed, values in enumerate(own)]
    return [Result(key, seed, corpus, "dev", {"RR@10": np.mean(v)}, table(v)) for key, seed, v in seeds]


def test_one_seed_each_is_the_paired_t_interval():
    found = results(drawn({A: 0.4, B: 0.35}, seeds=1))
    a, b = (np.array(one.per_query["value"]) for one in found)
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    ours = difference(found)
    assert (ours.low, ours.high) == pytest.approx((wanted.low, wanted.high))
    assert ours.value == pytest.approx((a - b).mean()) and not ours.floor and ours.queries == 100


def test_what_seeds_do_to_single_queries_is_counted_once():
    """Two-way analysis of variance by hand: of the seeds' means, what they do to all queries is left."""
    random = np.random.default_rng(0)
    values = {
        key: base + random.normal(0, 0.1, 30) + np.array([[-0.1], [0.0], [0.1]]) + random.normal(0, 0.2, (3, 30))
        for key, base in ((A, 0.5), (B, 0.4))
    }
    parts = [((values[A].mean(0) - values[B].mean(0)).var(ddof=1) / 30, 29)]
    for own in values.values():
        rest = own - own.mean(0) - own.mean(1, keepdims=True) + own.mean()
        parts.append(((own.mean(1).var(ddof=1) - (rest**2).sum() / (2 * 29) / 30) / 3, 2))
        assert parts[-1][0] > 0
    variance, freedom = sum(part for part, _ in parts), sum(part**2 / degrees for part, degrees in parts)
    ours = difference(results(given_values({key: own.tolist() for key, own in values.items()})))
    assert ours.high - ours.value == pytest.approx(stats.t.ppf(0.975, variance**2 / freedom) * math.sqrt(variance))


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
    given = (drawn({A: 0.43, B: 0.4}, noise=noise, queries=60, draw=draw) for draw in range(300))
    covered = [found.low <= 0.03 <= found.high for found in (difference(results(one)) for one in given)]
    assert 0.93 <= np.mean(covered) <= 0.995


@settings(max_examples=30)
@given(draw=st.integers(0, 10**6), seeds=st.integers(1, 4), step=st.floats(-0.2, 0.2))
def test_systems_that_change_places_flip_the_sign_and_order_of_seeds_and_queries_is_nothing(draw, seeds, step):
    found = results(drawn({A: 0.4 + step, B: 0.4}, queries=20, seeds=seeds, draw=draw))
    one, other = difference(found), difference(found, B, A)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
    assert one.detectable == pytest.approx(other.detectable)
    turned = [replace(one, per_query=one.per_query.take(list(range(19, -1, -1)))) for one in found]
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
