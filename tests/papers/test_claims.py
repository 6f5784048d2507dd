"""Every claim, decided on results whose truth is known: the papers' own numbers, their opposite, noise, nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.benchmark.presets import PRESETS, Given
from midmask.benchmark.results import Result, Results, SystemKey
from midmask.evaluation.statistics.intervals import IntervalEstimate
from midmask_papers.claims import CLAIMS, claims, claims_report, verdicts
from midmask_papers.matching import Term, key_of
from midmask_papers.published import PAPERS, published
from midmask_papers.statistics import Statistic
from midmask_papers.verdict import ClaimPart, Ruling, combine, decide, judge, pick
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

QUIET, LOUD = Noise().scaled(1e-3), Noise().scaled(10)
LISTS = sorted(set(CLAIMS) - {"rom.stop_share", "rom.fewer_stops", "cotmote.1_divergences"})
"""Claims on ranked lists."""

OWN = {dense("rom"): 0.35, dense("mlm"): 0.34, dense("none"): 0.32, dense("retromae"): 0.37, dense("ict"): 0.335}
"""Where no number is printed; SimCSE as none."""


def truth(measure: str, corpus: str) -> dict[SystemKey, float]:
    """What the papers print, each system once; doubtful numbers left out."""
    found = {dense("simcse"): 0.32, **OWN} if measure == "RR@10" else {}
    for number in (one for name in PAPERS for one in published(name)):
        if (number.measure, number.corpus, number.note) == (measure, corpus, "") and number.system and number.setting:
            found.setdefault(key_of(number), number.value)
    return found


def elsewhere() -> dict[SystemKey, float]:
    """DupMAE's averages on BEIR."""
    rows = {label: pick("dupmae", "2", label=label, corpus="beir18") for label in ("DupMAE", "RetroMAE", "BM25")}
    return {replace(key_of(row), setting=row.setting or "dupmae_stage2"): row.value for row in rows.values()}


def world(noise: Noise, *, turned: bool = False) -> Results:
    """Results as if the papers were right; or, `turned`, as if the opposite were."""

    def made(found: Mapping[SystemKey, float], corpus: str, split: str, measure: str, draw: int = 0) -> list[Result]:
        seen = {key: 1 - value for key, value in found.items()} if turned else found
        return drawn(seen, noise=noise, queries=25, draw=draw, corpus=corpus, split=split, measure=measure)

    trec = {key: value for key, value in truth("nDCG@10", "trec-dl-2020").items() if key.setting == "sigir23_1neg"}
    return results(
        made(truth("RR@10", "msmarco"), "msmarco", "dev", "RR@10"),
        made(trec, "trec-dl-2020", "test", "nDCG@10"),
        made(elsewhere(), "scifact", "test", "nDCG@10"),
        made(elsewhere(), "nfcorpus", "test", "nDCG@10", draw=1),
    )


@pytest.fixture(scope="module")
def worlds() -> dict[str, dict[str, Ruling]]:
    made = {"right": world(QUIET), "wrong": world(QUIET, turned=True), "noise": world(LOUD), "none": Results([])}
    return {name: {claim.name: verdict for claim, verdict in verdicts(found)} for name, found in made.items()}


@pytest.mark.parametrize("name", LISTS)
def test_a_claim_holds_or_fails_as_the_truth_has_it(worlds, name):
    wanted = {"right": "holds", "wrong": "does not hold", "none": "not measured"}
    if name == "sigir23.e_trec":  # that nothing can be told apart
        wanted |= {"right": "does not hold"}
    assert {case: worlds[case][name].outcome for case in wanted} == wanted


def test_what_noise_hides_is_not_decided(worlds):
    """At 95%, one of twenty is to be expected; more than three would be too many."""
    found = {name: worlds["noise"][name].outcome for name in LISTS}
    assert found.pop("sigir23.e_trec") == "holds"
    assert list(found.values()).count("not decidable") >= len(found) - 3


@pytest.mark.parametrize("name", [name for name in LISTS if name != "sigir23.e_trec"])
def test_with_the_papers_own_numbers_ours_is_the_published_size(worlds, name):
    found = worlds["right"][name]
    if found.published is not None:
        assert found.estimate == pytest.approx(found.published, abs=2e-4)
    assert found.low < found.estimate < found.high and found.detectable > 0


def test_published_sizes_are_those_that_the_papers_tell_of(worlds):
    """The sentence of methods.md 14.3 and, of claims of several parts, the part that decides: the closest one."""
    sizes = {name: found.published for name, found in worlds["right"].items()}
    assert sizes["sigir23.a_mlm"] == pytest.approx(0.015)
    assert sizes["sigir23.b_gaps_shrink"] == pytest.approx(0.022 - 0.007)
    assert sizes["retromae.one_layer"] == pytest.approx(0.3462 - 0.3446)
    assert sizes["retromae.encoder_ratio"] == pytest.approx(0.3553 - 0.3501)
    assert sizes["dupmae.both_tasks"] == pytest.approx(0.4102 - 0.4008)


def test_what_is_missing_is_named_with_the_preset_that_measures_it():
    found = results(drawn({dense("none"): 0.3, dense("mlm"): 0.3}))
    verdict = CLAIMS["retromae.encoder_ratio"].check(found)
    assert verdict.outcome == "not measured"
    assert "not among the results: retromae (dense), retromae[encoder_mask_ratio=0.15] (dense)." in verdict.sentence
    assert "--preset retromae` measures it" in verdict.sentence
    apart = results(drawn({dense("none", setting="ance"): 0.3, dense("mlm", setting="dpr"): 0.3}))
    assert "never measured under the same conditions" in CLAIMS["sigir23.a_mlm"].check(apart).sentence


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_a_papers_preset_measures_its_claims(name):
    """But for TREC DL and BEIR, which are collections to be given."""
    keys = dict.fromkeys(PRESETS[name](Given(pretrain_on=("beir:wiki",))).keys())
    found = results(drawn(dict.fromkeys(keys, 0.3), corpus="squad", queries=4, seeds=1))
    own = [claim for claim in CLAIMS.values() if claim.paper == name and claim.name in LISTS]
    missing = {claim.name for claim in own if claim.check(found).outcome == "not measured"}
    assert missing <= {"sigir23.e_trec", "dupmae.out_of_domain", "self_contrast"}


def test_a_corpus_may_be_called_by_its_name_or_as_the_corpus():
    keys = [dense("retromae", collection=name, setting="sigir23_1neg") for name in ("squad", "wiki")]
    found = results(drawn(dict(zip(keys, (0.4, 0.3), strict=True)), corpus="squad", noise=QUIET))
    verdict = CLAIMS["sigir23.collection"].check(found)
    assert verdict.outcome == "holds" and "(paper:" not in verdict.sentence


def test_other_conditions_than_the_papers_are_taken_and_told():
    systems = {dense("none"): 0.3, dense("mlm", collection="wiki"): 0.4}
    found = results(
        drawn(systems, corpus="squad", split="dev"),
        drawn({key: 2 * value for key, value in systems.items()}, corpus="squad", split="test"),
        drawn(systems, corpus="cranfield", split="test"),
    )
    verdict = CLAIMS["sigir23.a_mlm"].check(found)
    assert verdict.outcome == "holds" and verdict.estimate == pytest.approx(0.2, abs=0.05), "test, not dev"
    assert "on squad test (100 queries, 3 seeds)" in verdict.sentence
    assert "fine-tuned as in_batch (paper: sigir23_1neg)" in verdict.sentence
    assert "pre-trained on wiki (paper: corpus)" in verdict.sentence


def test_the_papers_own_conditions_go_before_others():
    exact = {dense("none", setting="sigir23_1neg"): 0.3, dense("mlm", setting="sigir23_1neg"): 0.2}
    found = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4, **exact}, noise=QUIET))
    verdict = CLAIMS["sigir23.a_mlm"].check(found)
    assert verdict.outcome == "does not hold" and "(paper:" not in verdict.sentence


def test_settings_are_not_mixed_up_where_a_claim_is_about_two():
    """Only one setting: differences between settings would be 0 of themselves."""
    systems = {dense("none"): 0.3, dense("retromae"): 0.4}
    found = results(drawn(systems, noise=QUIET))
    assert CLAIMS["sigir23.b_gaps_shrink"].check(found).outcome == "not measured"


def test_wins_are_counted_over_all_corpora_that_have_both():
    ours, other = SystemKey("dupmae", "corpus", "hybrid", "dupmae"), dense("retromae", setting="dupmae")
    steps = {"squad": 0.1, "scifact": 0.1, "nfcorpus": -0.1, "fiqa": 0.1}
    parts = [
        drawn({ours: 0.4 + step, other: 0.4}, corpus=corpus, split="test", measure="nDCG@10", noise=QUIET)
        for corpus, step in steps.items()
    ]
    found = results(*parts, drawn({ours: 0.4}, corpus="scidocs", split="test", measure="nDCG@10"))
    assert "Higher on 3 of 4 corpora than retromae by nDCG@10." in CLAIMS["dupmae.in_domain"].check(found).sentence
    verdict = CLAIMS["dupmae.out_of_domain"].check(found)
    assert "on scifact test, nfcorpus test, fiqa test" in verdict.sentence, "not where it was fine-tuned"
    assert "(paper: 13 of 18 and 15 of 18)" in verdict.sentence


def test_a_single_seed_is_said_to_leave_the_spread_of_seeds_open():
    found = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4}, seeds=1))
    assert "1 seed, how much seeds differ is not known" in CLAIMS["sigir23.a_mlm"].check(found).sentence


@settings(max_examples=20, deadline=None)
@given(draw=st.integers(0, 10**6), step=st.floats(0.005, 0.2), seeds=st.integers(1, 3), scale=st.floats(0.01, 3))
def test_swapped_systems_never_both_hold_and_less_noise_decides(draw, step, seeds, scale):
    a, b = dense("retromae"), dense("mlm")
    part = ClaimPart("", (Term(1, a, 0.3), Term(-1, b, 0.29)), "RR@10", ("msmarco", "dev"))
    turned = replace(part, terms=(Term(1, b, 0.3), Term(-1, a, 0.29)))
    truth = {a: 0.3 + step, b: 0.3}
    found = results(drawn(truth, noise=Noise().scaled(scale), queries=30, seeds=seeds, draw=draw))
    one, other = (decide(each, found) for each in (part, turned))
    assert one.estimate == pytest.approx(-other.estimate)
    assert (one.outcome == "holds") <= (other.outcome == "does not hold")
    sure = results(drawn(truth, noise=Noise().scaled(1e-4), queries=30, seeds=seeds, draw=draw))
    assert [decide(each, sure).outcome for each in (part, turned)] == ["holds", "does not hold"]


@given(value=st.floats(-1, 1), half=st.floats(0, 1), size=st.none() | st.floats(0.001, 1), factor=st.floats(0.001, 1))
def test_judging_is_monotonous(value, half, size, factor):
    """A narrower interval that lies within never turns one decision into the other."""
    wide = judge(IntervalEstimate(value, value - half, value + half, 0), size)
    narrow = judge(IntervalEstimate(value, value - factor * half, value + factor * half, 0), size)
    assert wide == narrow or wide == "not decidable" or (wide, narrow) == ("does not hold", "holds")
    assert (
        judge(IntervalEstimate(value, value, value, 0), size) != "not decidable"
        or value == 0
        or (size and value >= size)
    )


@pytest.mark.parametrize(
    ("low", "high", "size", "outcome"),
    [
        (0.01, 0.02, 0.05, "holds"),
        (-0.02, -0.01, 0.05, "does not hold"),
        (-0.01, 0.04, 0.05, "does not hold"),
        (-0.01, 0.06, 0.05, "not decidable"),
        (-0.01, 0.06, None, "not decidable"),
    ],
)
def test_judgements_by_hand(low, high, size, outcome):
    assert judge(IntervalEstimate((low + high) / 2, low, high, 0), size) == outcome


def test_of_several_parts_the_worst_counts_and_parts_share_the_level():
    said = {one: Ruling(one, one, low=0.1) for one in ("holds", "not decidable", "not measured", "does not hold")}
    assert combine([said["holds"], said["not decidable"]]).outcome == "not decidable"
    assert combine([said["not decidable"], said["not measured"]]).outcome == "not measured"
    assert combine([said["not measured"], said["does not hold"], said["holds"]]).outcome == "does not hold"
    nearest = combine([Ruling("holds", "", 0.5, low=0.4), Ruling("holds", "", 0.3, low=0.1)])
    assert nearest.estimate == 0.3
    systems = {key: value for key, value in truth("RR@10", "msmarco").items() if "retromae" in key.system}
    one, two = (CLAIMS[f"retromae.{name}"].check(results(drawn(systems))) for name in ("enhanced", "one_layer"))
    assert (two.high - two.low) / two.detectable > (one.high - one.low) / one.detectable


def share(system: str, value: float, *, count: int = 100_000, corpus: str = "wiki") -> Statistic:
    return Statistic(measure="stop share", system=system, corpus=corpus, values=(value,), count=count, source="a run")


def test_shares_of_stop_words_are_held_against_about_40_percent():
    def outcome(*given: Statistic) -> str:
        return claims(given)["rom.stop_share"].check(Results([])).outcome

    assert outcome(share("mlm", 0.41)) == "holds"
    assert outcome(share("mlm", 0.41), share("mlm", 0.55, corpus="pydocs")) == "does not hold"
    assert outcome(share("mlm", 0.44, count=100)) == "not decidable"
    assert outcome(share("rom", 0.41)) == "not measured"
    fewer = claims([share("mlm", 0.41), share("rom", 0.1)])["rom.fewer_stops"].check(Results([]))
    assert fewer.outcome == "holds" and fewer.estimate == pytest.approx(0.31)


def test_divergences_are_compared_over_draws():
    def outcome(near: tuple[float, ...], far: tuple[float, ...]) -> str:
        given = [
            Statistic(measure=measure, system=system, corpus="squad", values=values, source="a run")
            for measure in ("KL", "JS")
            for system, values in (("cotmae", near), ("cotmae[experts=all]", far))
        ]
        return claims(given)["cotmote.1_divergences"].check(Results([])).outcome

    near, far = (7.2e-5, 7.3e-5, 7.1e-5), (1.4e-4, 1.5e-4, 1.6e-4)
    assert (outcome(near, far), outcome(far, near)) == ("holds", "does not hold")
    assert outcome((1e-4, 9e-4, 1e-5), (2e-4, 8e-4, 1e-5)) == outcome((7e-5,), (9e-5,)) == "not decidable"
    assert CLAIMS["cotmote.1_divergences"].check(Results([])).outcome == "not measured"


def test_the_report_has_every_claim_in_its_table_and_in_a_paragraph():
    found = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4}))
    text = claims_report(found)
    for claim, verdict in verdicts(found):
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {claim.name} "))
        assert row.split("|")[2].strip() == verdict.outcome
        assert f"**{claim.name}** {claim.text}\n*{verdict.outcome.capitalize()}.* {verdict.sentence}" in text
    assert text.count("\n## ") == len(PAPERS)
    assert "| sigir23.a_mlm " in claims_report(Results([]))
