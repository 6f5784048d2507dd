"""Results whose truth is known: the papers' own numbers, or their opposite, with a given noise."""

from collections.abc import Mapping
from dataclasses import replace

from midmask.benchmark.results import Result, Results, SystemKey
from midmask_papers.published import PAPERS, key_of, pick, published
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

QUIET, LOUD = Noise().scaled(1e-3), Noise().scaled(10)
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
    """DupMAE's averages on BEIR with RetroMAE's, and SIGIR'23's of SPLADE."""
    rows = {label: pick("dupmae", "2", label=label, corpus="beir18") for label in ("DupMAE", "RetroMAE", "BM25")}
    rows |= {label: pick("retromae", "BEIR", label=label) for label in ("Condenser", "SEED", "BERT")}
    found = {replace(key_of(row), setting=row.setting or "dupmae_stage2"): row.value for row in rows.values()}
    sparse = (one for one in published("sigir23", "3") if (one.representation, one.corpus) == ("splade", "beir13"))
    return {**found, **{key_of(number): number.value for number in sparse}}


def on_nq() -> dict[SystemKey, float]:
    """RetroMAE's gains on NQ over the best baseline."""
    gains = {key: pick("retromae", "text", setting=key, corpus="nq").value for key in ("dpr", "ance")}
    names = {"retromae": 1.0, "condenser": 0.0}
    return {
        dense(name, collection="wiki", setting=setting): 0.7 + share * gain
        for setting, gain in gains.items()
        for name, share in names.items()
    }


def world(noise: Noise, *, turned: bool = False) -> Results:
    """Results as if the papers were right; or, `turned`, as if the opposite were."""

    def made(found: Mapping[SystemKey, float], corpus: str, split: str, measure: str, draw: int = 0) -> list[Result]:
        seen = {key: 1 - value for key, value in found.items()} if turned else found
        return drawn(seen, noise=noise, queries=25, draw=draw, corpus=corpus, split=split, measure=measure)

    head = [one for one in published("sigir23", "7") if one.split == "test.head-dctr" and one.system]
    frequent = {key_of(number): number.value for number in head}
    trec = {key: value for key, value in truth("nDCG@10", "trec-dl-2020").items() if key.setting == "sigir23_1neg"}
    return results(
        made(truth("RR@10", "msmarco"), "msmarco", "dev", "RR@10"),
        made(trec, "trec-dl-2020", "test", "nDCG@10"),
        made(elsewhere(), "scifact", "test", "nDCG@10"),
        made(elsewhere(), "nfcorpus", "test", "nDCG@10", draw=1),
        made(elsewhere(), "scidocs", "test", "nDCG@10", draw=2),
        made(on_nq(), "nq", "test", "Success@10"),
        made(frequent, "tripclick", "test.head-dctr", "nDCG@10"),
    )
