"""Results drawn from a known truth: every system's mean, and how much queries, seeds and both together add to it; the
truth may be the papers' own numbers, or their opposite.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

import numpy as np
import pyarrow as pa

from midmask.benchmark.results import Result, Results, SystemKey
from midmask.evaluation.measures import aggregate
from midmask_papers.published import PAPERS, key_of, pick, published


@dataclass(frozen=True)
class Noise:
    """Standard deviations: of a query for all systems, of one on a query, of a seed's mean, of a seed on a query; and
    of a middle training's mean, where each has several seeds.
    """

    query: float = 0.3
    system: float = 0.1
    seed: float = 0.01
    both: float = 0.1
    pretrain: float = 0.02

    def scaled(self, factor: float) -> "Noise":
        return Noise(*(factor * value for value in astuple(self)))


def drawn(
    truth: Mapping[SystemKey, float],
    *,
    noise: Noise = Noise(),
    queries: int = 100,
    seeds: int = 3,
    pretrain_seeds: int = 1,
    draw: int = 0,
    corpus: str = "msmarco",
    split: str = "dev",
    measure: str = "RR@10",
) -> list[Result]:
    """One result per system and seed; with several middle trainings each of them has that many seeds of its own, and
    `none`, which has no middle training, all of them. Values are not cut to [0, 1], so that means are the truth's."""
    rng = np.random.default_rng(draw)
    shared_Q = rng.normal(0, noise.query, queries)
    ids = pa.array([f"q{number}" for number in range(queries)])
    measures = pa.array([measure] * queries)
    found = []
    for key, mean in truth.items():
        own_Q = mean + shared_Q + rng.normal(0, noise.system, queries)
        nested = pretrain_seeds > 1 and key.system not in ("none", "bm25")
        for seed in range(1 if key.system == "bm25" else seeds * pretrain_seeds):
            if seed % seeds == 0:
                middle = rng.normal(0, noise.pretrain) if nested else 0.0
            values_Q = own_Q + middle + rng.normal(0, noise.seed) + rng.normal(0, noise.both, queries)
            table = pa.table({"query_id": ids, "measure": measures, "value": values_Q})
            pretrain = seed // seeds if nested else None
            found.append(Result(key, seed, corpus, split, aggregate(table), table, pretrain_seed=pretrain))
    return found


def dense(system: str, *, collection: str = "corpus", setting: str = "in_batch") -> SystemKey:
    return SystemKey(system, "none" if system == "none" else collection, "dense", setting)


def results(*parts: list[Result]) -> Results:
    return Results([one for part in parts for one in part])


def table(values, measure: str = "RR@10") -> pa.Table:
    names = [f"q{row}" for row in range(len(values))]
    return pa.table({"query_id": names, "measure": [measure] * len(values), "value": [*map(float, values)]})


def noisy(seed: int, count: int = 40, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 0.2, count)


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
