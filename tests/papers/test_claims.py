"""Every claim, decided where the truth is known, and the page of answers, a point for each experiment."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from midmask.benchmark.presets import PRESETS, Given
from midmask.benchmark.results import Result, Results, SystemKey
from midmask.errors import UserError
from midmask.experiment.costs import Costs
from midmask.store.place import Place
from midmask_papers.answers import Experiment, page, read_experiments
from midmask_papers.claims import CLAIMS
from midmask_papers.masks_and_maps import Statistic
from midmask_papers.published import PAPERS
from midmask_papers.ruling import ClaimPart, Ruling, Term, decide
from tests.support.benchmark.synthetic import LOUD, QUIET, Noise, dense, drawn, elsewhere, results, truth, world

LISTS = sorted(set(CLAIMS) - {"rom.stop_share", "rom.fewer_stops", "cotmote.1_divergences", "cotmote.4_lowest"})
"""Claims on ranked lists."""


@pytest.fixture(scope="module")
def worlds() -> dict[str, dict[str, Ruling]]:
    made = {"right": world(QUIET), "wrong": world(QUIET, turned=True), "noise": world(LOUD), "none": Results([])}
    return {name: {claim.name: claim.decide(found) for claim in CLAIMS.values()} for name, found in made.items()}


def test_claims_hold_or_fail_as_the_truth_has_it(worlds):
    for name in LISTS:
        wanted = {"right": "holds", "wrong": "does not hold", "none": "not measured"}
        if name == "sigir23.e_trec":  # that nothing can be told apart
            wanted |= {"right": "does not hold"}
        if name == "sigir23.i_beir":  # nothing turned is nothing
            wanted |= {"wrong": "holds"}
        assert {case: worlds[case][name].outcome for case in wanted} == wanted, name


@pytest.mark.parametrize(("name", "collapsed"), [
    ("sigir23.b_gaps_shrink", "sigir23_32neg_distil"), ("sigir23.g_teachers", "sigir23_1neg_distil"),
    ("sigir23.f_sparse", "sigir23_32neg"), ("sigir23.h_few_queries", "sigir23_32neg_distil_50k"),
    ("retromae.distilled", "retromae_distil"), ("retromae.ance", "ance"), ("cotmote.5_mined", "cotmote_stage1"),
])  # fmt: skip
def test_a_setting_that_has_learned_nothing_decides_nothing(name, collapsed):
    """All its systems at 0: they differ from those of other settings as clearly as can be, and that tells nothing."""
    levels = {**truth("RR@10", "msmarco"), BM25: 0.19}
    assert any(key.setting == collapsed for key in levels)
    zeros = {key: 0.0 if key.setting == collapsed else value for key, value in levels.items()}
    verdicts_of = [CLAIMS[name].decide(results(drawn(one, noise=QUIET, queries=25))) for one in (levels, zeros)]
    assert [one.outcome for one in verdicts_of] == ["holds", "not decidable"]
    assert f"{collapsed} after" in verdicts_of[1].sentence


def test_pairs_on_trec_that_have_learned_nothing_are_not_alike():
    keys = {dense(name): level for name, level in (("none", 0.001), ("mlm", 0.0011), ("retromae", 0.0009))}
    made = drawn({**keys, BM25: 0.5}, corpus="trec-dl-2019", split="test", measure="nDCG@10", noise=QUIET)
    claim = CLAIMS["sigir23.e_trec"]
    assert claim.decide(results(made)).outcome == "not decidable"
    assert claim.decide(results([one for one in made if one.key != BM25])).outcome != "not decidable"


def test_what_noise_hides_is_not_decided(worlds):
    """At 95%, one of twenty is to be expected; more than three would be too many."""
    found = {name: worlds["noise"][name].outcome for name in LISTS}
    assert found.pop("sigir23.e_trec") == "holds"
    assert list(found.values()).count("not decidable") >= len(found) - 3


def test_with_the_papers_own_numbers_ours_is_the_published_size(worlds):
    """Of claims of several parts, that of the part that decides: the closest one."""
    for name, found in worlds["right"].items():
        if name in LISTS and name != "sigir23.e_trec":
            ours = found.estimate
            assert found.published is None or ours.value == pytest.approx(found.published, abs=2e-4), name
            assert ours.low < ours.value < ours.high and ours.detectable > 0, name
    sizes = {name: found.published for name, found in worlds["right"].items()}
    assert sizes["sigir23.a_mlm"] == pytest.approx(0.015)
    assert sizes["sigir23.b_gaps_shrink"] == pytest.approx(0.022 - 0.007)
    assert sizes["retromae.one_layer"] == pytest.approx(0.3462 - 0.3446)
    assert sizes["retromae.encoder_ratio"] == pytest.approx(0.3553 - 0.3501)
    assert sizes["dupmae.both_tasks"] == pytest.approx(0.4102 - 0.4008)


@pytest.mark.parametrize(("collection", "against"), [("corpus", "none"), ("books", "mlm")])
def test_a_claim_on_collections_is_not_measured_where_all_have_read_the_same(collection, against):
    """RetroMAE on Wikipedia against others on MS MARCO says nothing of all of them on one collection, and RetroMAE on
    the corpus itself nothing of RetroMAE on Wikipedia.
    """
    systems = ("none", "retromae", "mlm", "mlm_cls_tf", "cocondenser", "lexmae")
    found = results(drawn({dense(name, collection=collection): 0.3 for name in systems}, measure="nDCG@10"))
    verdict = CLAIMS["sigir23.k_general"].decide(found)
    assert verdict.outcome == "not measured" and f"retromae against {against}: never measured" in verdict.sentence


def test_a_papers_preset_measures_its_claims():
    """But for TREC DL, BEIR, TripClick and NQ, which are collections to be given."""
    given = {"sigir23.e_trec", "dupmae.out_of_domain", "self_contrast", "sigir23.i_beir", "sigir23.j_scratch"}
    given |= {"sigir23.k_general", "retromae.beir", "retromae.nq", "retromae.in_domain"}
    for name in PAPERS:
        keys = dict.fromkeys(PRESETS[name](Given(pretrain_on=("beir:wiki",))).keys())
        found = results(drawn(dict.fromkeys(keys, 0.3), corpus="squad", queries=4, seeds=1))
        own = [claim for claim in CLAIMS.values() if claim.paper == name and claim.name in LISTS]
        assert {claim.name for claim in own if claim.decide(found).outcome == "not measured"} <= given, name


@pytest.mark.parametrize(("gain", "outcome"), [(0.005, "holds"), (0.02, "does not hold"), (-0.02, "does not hold")])
def test_next_to_nothing_is_at_most_a_point_either_way(gain, outcome):
    keys = {key: 0.496 + gain * (key.system != "none") for key in elsewhere() if key.representation == "splade"}
    made = drawn(keys, noise=QUIET, corpus="scifact", split="test", measure="nDCG@10")
    found = results(drawn(dict.fromkeys(keys, 0.3)), made)
    verdict = CLAIMS["sigir23.i_beir"].decide(found)
    assert verdict.outcome == outcome and verdict.estimate.value == pytest.approx(gain, abs=1e-3)
    loud = results(drawn(dict.fromkeys(keys, 0.3)), drawn(keys, corpus="scifact", split="test", measure="nDCG@10"))
    assert CLAIMS["sigir23.i_beir"].decide(loud).outcome == "not decidable"


def test_a_baseline_that_all_are_held_against_counts_once():
    """Its seeds differ as one system's do, and their spread does not average out."""
    keys = [key for key in elsewhere() if key.representation == "splade"]
    truth = {key: 0.5 + 0.1 * (key.system == "none") for key in keys}
    made = drawn(truth, noise=Noise(seed=0.05, both=0.0), corpus="scifact", split="test", measure="nDCG@10")
    found = results(drawn(dict.fromkeys(keys, 0.3)), made)
    (base,) = (key for key in keys if key.system == "none")
    others = [key for key in keys if key != base]
    terms = (Term(-1.0, base, 0.0), *(Term(1 / len(others), key, 0.0) for key in others))
    wanted = decide(ClaimPart("", terms, "nDCG@10", ("beir13", "test"), elsewhere=True), found)
    verdict = CLAIMS["sigir23.i_beir"].decide(found)
    low, high = verdict.estimate.low, verdict.estimate.high
    assert (low, high) == pytest.approx((wanted.estimate.low, wanted.estimate.high))


def test_a_mean_over_systems_is_over_those_that_were_measured():
    """RetroMAE gains 4 points, BERT 2; the others were not run."""
    gains = {("none", "none"): 0.02, ("retromae", "corpus"): 0.04}
    truth = {
        SystemKey(*system, representation, setting): 0.3 + gain * (representation == "splade")
        for system, gain in gains.items()
        for representation in ("dense", "splade")
        for setting in ("sigir23_1neg", "sigir23_32neg", "sigir23_1neg_distil", "sigir23_32neg_distil")
    }
    found = results(drawn(truth, noise=QUIET))
    verdict = CLAIMS["sigir23.f_sparse"].decide(found)
    assert verdict.outcome == "holds" and "sigir23_1neg (BERT, RetroMAE MS)" in verdict.sentence
    assert verdict.estimate.value == pytest.approx(0.02, abs=2e-3), "of the part that decides"


def test_names_of_the_corpus_and_the_papers_own_conditions_are_known():
    keys = [dense("retromae", collection=name, setting="sigir23_1neg") for name in ("squad", "wiki")]
    found = results(drawn(dict(zip(keys, (0.4, 0.3), strict=True)), corpus="squad", noise=QUIET))
    assert CLAIMS["sigir23.collection"].decide(found).outcome == "holds", "pre-trained on squad is on the corpus"
    exact = {dense("none", setting="sigir23_1neg"): 0.3, dense("mlm", setting="sigir23_1neg"): 0.2}
    found = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4, **exact}, noise=QUIET))
    assert CLAIMS["sigir23.a_mlm"].decide(found).outcome == "does not hold", "the paper's own conditions go first"
    found = results(drawn({dense("none"): 0.3, dense("retromae"): 0.4}, noise=QUIET))
    assert CLAIMS["sigir23.b_gaps_shrink"].decide(found).outcome == "not measured", "of two settings only one"
    verdict = CLAIMS["retromae.encoder_ratio"].decide(found)
    assert "retromae[encoder_mask_ratio=0.15] (dense)" in verdict.sentence and "--preset retromae" in verdict.sentence
    apart = results(drawn({dense("none", setting="ance"): 0.3, dense("mlm", setting="dpr"): 0.3}))
    assert CLAIMS["sigir23.a_mlm"].decide(apart).outcome == "not measured", "never under the same conditions"


def test_other_conditions_than_the_papers_are_taken_and_told():
    systems = {dense("none"): 0.3, dense("mlm", collection="wiki"): 0.4}
    double = drawn({key: 2 * value for key, value in systems.items()}, corpus="squad", split="test")
    places = (("squad", "dev"), ("cranfield", "test"))
    found = results(double, *(drawn(systems, corpus=corpus, split=split) for corpus, split in places))
    verdict = CLAIMS["sigir23.a_mlm"].decide(found)
    assert verdict.outcome == "holds" and verdict.estimate.value == pytest.approx(0.2, abs=0.05), "test, not dev"
    for told in ("squad test (100 queries, 3 seeds)", "in_batch (paper: sigir23_1neg)", "wiki (paper: corpus)"):
        assert told in verdict.sentence


def test_what_is_claimed_out_of_domain_is_decided_elsewhere():
    ours, other = SystemKey("dupmae", "corpus", "hybrid", "dupmae"), dense("retromae", setting="dupmae")
    steps = {"squad": 0.1, "scifact": 0.1, "nfcorpus": -0.1, "fiqa": 0.1}
    parts = [
        drawn({ours: 0.4 + step, other: 0.4}, corpus=corpus, split="test", measure="nDCG@10", noise=QUIET)
        for corpus, step in steps.items()
    ]
    found = results(*parts, drawn({ours: 0.4}, corpus="scidocs", split="test", measure="nDCG@10"))
    verdict = CLAIMS["dupmae.out_of_domain"].decide(found)
    assert "on scifact test, nfcorpus test, fiqa test" in verdict.sentence, "not where it was fine-tuned"


BM25 = SystemKey("bm25", "none", "bm25", "none")
ENCODERS = ("cotmae", "cotmae[experts=all]", "cotmote", "cotmote_siamese", "cotmote_separate")


def learned(**levels: float) -> Results:
    """Dense results of the encoders whose embeddings are compared, at half of BM25 unless told otherwise."""
    truth = {dense(name, setting="cotmote"): levels.get(name, 0.3) for name in ENCODERS}
    return results(drawn({**truth, BM25: 0.6}, corpus="squad", split="test", queries=1000))


def share(system: str, value: float, *, count: int = 100_000, corpus: str = "wiki") -> Statistic:
    return Statistic(measure="stop share", system=system, corpus=corpus, values=(value,), count=count, source="a run")


def divergences(values: dict[str, tuple[float, ...]]) -> list[Statistic]:
    """KL and JS of each system, a value a draw."""
    pairs = [(measure, name, own) for measure in ("KL", "JS") for name, own in values.items()]
    about = {"corpus": "squad", "source": "a run"}
    return [Statistic(measure=measure, system=name, values=own, **about) for measure, name, own in pairs]


def test_shares_of_stop_words_are_held_against_about_40_percent():
    def outcome(*given: Statistic) -> str:
        return CLAIMS["rom.stop_share"].decide(Results([]), given).outcome

    assert outcome(share("mlm", 0.41)) == "holds"
    assert outcome(share("mlm", 0.41), share("mlm", 0.55, corpus="pydocs")) == "does not hold"
    assert outcome(share("mlm", 0.44, count=100)) == "not decidable"
    assert outcome(share("rom", 0.41)) == "not measured"
    fewer = CLAIMS["rom.fewer_stops"].decide(Results([]), [share("mlm", 0.41), share("rom", 0.1)])
    assert fewer.outcome == "holds" and fewer.estimate.value == pytest.approx(0.31)


def test_divergences_are_compared_over_draws():
    def outcome(near: tuple[float, ...], far: tuple[float, ...]) -> str:
        given = divergences({"cotmae": near, "cotmae[experts=all]": far})
        return CLAIMS["cotmote.1_divergences"].decide(learned(), given).outcome

    near, far = (7.2e-5, 7.3e-5, 7.1e-5), (1.4e-4, 1.5e-4, 1.6e-4)
    assert (outcome(near, far), outcome(far, near)) == ("holds", "does not hold")
    assert outcome((1e-4, 9e-4, 1e-5), (2e-4, 8e-4, 1e-5)) == outcome((7e-5,), (9e-5,)) == "not decidable"
    assert CLAIMS["cotmote.1_divergences"].decide(Results([])).outcome == "not measured"


def test_experts_divergences_are_held_against_both_controls():
    def outcome(*means: float) -> str:
        names = ("cotmote", "cotmote_siamese", "cotmote_separate")
        given = divergences({name: (m, 1.01 * m, 0.99 * m) for name, m in zip(names, means, strict=False)})
        return CLAIMS["cotmote.4_lowest"].decide(learned(), given).outcome

    assert outcome(1e-4, 2e-4, 3e-4) == "holds"
    assert outcome(2e-4, 1e-4, 3e-4) == outcome(2e-4, 3e-4, 1e-4) == "does not hold"
    assert outcome(1e-4, 2e-4) == "not measured"


@pytest.mark.parametrize(("claim", "weak"), [("1_divergences", "cotmae"), ("4_lowest", "cotmote_separate")])
def test_divergences_of_encoders_that_have_not_learned_decide_nothing(claim, weak):
    """Nor are they decided where the results do not show whether they have; without statistics, they cannot be."""
    values = dict(zip(ENCODERS, (1e-4, 3e-4, 1e-4, 2e-4, 3e-4), strict=True))
    given = divergences({name: (value, 1.01 * value) * 50 for name, value in values.items()})
    name = f"cotmote.{claim}"
    check = partial(CLAIMS[name].decide, statistics=given)
    assert check(learned()).outcome == "holds"
    poor = check(learned(**{weak: 0.01}))
    assert poor.outcome == "not decidable" and poor.estimate.low > 0 and "too little to decide it" in poor.sentence
    lacking = Results([one for one in learned() if one.key.system != weak])
    assert check(lacking).outcome == check(Results([])).outcome == "not decidable"
    assert check(Results([one for one in learned() if one.key != BM25])).outcome == "not decidable"
    assert CLAIMS[name].decide(learned()).outcome == "not measured"
    assert CLAIMS[name].decide(learned(**{weak: 0.01})).outcome == "not decidable"


ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TRAINED = {dense("none"): 0.3, dense("mlm"): 0.4, dense("retromae"): 0.2}


@pytest.fixture(scope="module")
def recorded() -> list[Experiment]:
    return read_experiments(DOCS / "results" / "records")


def points(text: str) -> dict[str, list[str]]:
    """Claim -> its cells, from the tables of the page."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {found[1]: row[1:] for row in rows if (found := re.search(r"\((\w+(?:\.\w+)?)\)$", row[0].strip()))}


def with_tokens(found: list[Result], tokens: int) -> list[Result]:
    """The results with what their middle training read."""
    read = {key: 0 if key.system == "none" else tokens for key in dict.fromkeys(one.key for one in found)}
    return [replace(one, costs=Costs(0.0, 0.0, 0.0, read[one.key], 0, None, None)) for one in found]


def write(folder: Path, name: str, found: list[Result]) -> None:
    """Records as a benchmark leaves them, a file for each system."""
    (folder / name).mkdir(parents=True)
    for number, key in enumerate(dict.fromkeys(one.key for one in found)):
        about = {"identity": f"{name}{number}", "fingerprint": "f", "precision": "fp32", "processor": "p"}
        own = Results(one for one in found if one.key == key)
        own.write(Place(str(folder / name / f"{number}.parquet")), about)


def state(folder: Path, *lines: str) -> None:
    (folder / "runs.yaml").write_text("\n".join(f"- {{{line}, source: a.md}}" for line in lines), "utf-8")


def test_every_claim_has_one_row_and_a_point_where_it_was_measured():
    short, long = (results(drawn(levels, draw=1)) for levels in (TRAINED, {**TRAINED, dense("mlm"): 0.2}))
    text = page([Experiment("a corpus", "nothing", 400_000, short), Experiment("a corpus", "nothing", 3_000_000, long)])
    rows = points(text)
    assert sorted(rows) == sorted(CLAIMS)
    first, second = (CLAIMS["sigir23.a_mlm"].decide(one) for one in (short, long))
    assert (first.outcome, second.outcome) == ("holds", "does not hold")
    representation, *cells = (cell.strip() for cell in rows["sigir23.a_mlm"])
    assert representation == "dense" and len(cells) == 2
    for cell, ruling in zip(cells, (first, second), strict=True):
        value, low = (100 * number for number in (ruling.estimate.value, ruling.estimate.low))
        assert cell.startswith(f"{ruling.outcome} {value:+.2f} [{low:+.2f}, ")
        assert cell.endswith("published +1.50")
    assert re.search(r"- 1 hold at one point and not at another: sigir23\.a_mlm\n", text)
    assert "0.4 M tokens" in text and "3 M tokens" in text
    assert [cell.strip() for cell in rows["sigir23.e_trec"]] == ["—"] * 3


def test_records_of_one_collection_start_and_length_are_one_experiment(tmp_path):
    """Each folder alone has half of a claim; together they decide it, with the measures of both."""
    found = with_tokens(drawn(TRAINED), 1_534_000)
    more = with_tokens(drawn({**TRAINED, dense("rom"): 0.5}), 1_535_500)
    write(tmp_path, "one", [one for one in found if one.key.system != "mlm"])
    write(tmp_path, "two", more)
    write(tmp_path, "again", with_tokens(drawn(TRAINED, measure="nDCG@10"), 1_534_000))
    write(tmp_path, "long", with_tokens(drawn(TRAINED, draw=5), 3_000_000))
    about = "collection: c, start: s"
    state(tmp_path, *(f"records: {name}, {about}" for name in ("one", "two", "again", "long")))
    joined, long = read_experiments(tmp_path)
    assert (joined.tokens, long.tokens) == (1_500_000, 3_000_000)
    assert set(joined.results.names("system")) == {"none", "mlm", "retromae", "rom"}
    assert len(joined.results) == len(more)
    (mlm, *_) = joined.results.where(system="mlm")
    assert {*mlm.measures} == {*mlm.per_query["measure"].to_pylist()} == {"RR@10", "nDCG@10"}
    with pytest.raises(UserError, match=r"two: other values of .*none"):
        write(tmp_path, "other", with_tokens(drawn({dense("none"): 0.31, dense("mlm"): 0.4}), 1_534_000))
        state(tmp_path, *(f"records: {name}, {about}" for name in ("other", "two", "again", "one", "long")))
        read_experiments(tmp_path)


def test_records_that_no_line_is_of_and_lengths_that_do_not_compare_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no runs\.yaml; give the folder of all records"):
        read_experiments(tmp_path)
    lengths = {"mlm": 400_000, "retromae": 3_000_000}
    found = [one for name, read in lengths.items() for one in with_tokens(drawn({dense(name): 0.3}), read)]
    write(tmp_path, "mixed", found)
    for lines, said in (
        (["records: other, collection: c, start: s"], "mixed has records and no line"),
        (["records: mixed, collection: c"], "start"),
        (["records: mixed, collection: c, start: s"], "400,000 to 3,000,000 tokens"),
    ):
        state(tmp_path, *lines)
        with pytest.raises(UserError, match=said):
            read_experiments(tmp_path)


def test_the_page_is_what_the_records_give(recorded):
    assert (DOCS / "results" / "papers.md").read_text("utf-8") == page(recorded), "write the command's output into it"
    titles = [one.title for one in recorded]
    assert len(titles) == len(set(titles)) and all(one.tokens > 100_000 for one in recorded)
    costs = [one.costs for experiment in recorded for one in experiment.results]
    assert costs and sum(cost.gpu_hours for cost in costs) == 0, "the page says that no GPU took part"
