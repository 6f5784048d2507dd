"""Results drawn from a known truth: every system's mean, and how much queries, seeds and both together add to it."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa

from midmask.benchmark.results import Result, Results, SystemKey
from midmask.evaluation.measures import aggregate


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
