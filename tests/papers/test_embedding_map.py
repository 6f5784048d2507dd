"""KL and JS of two clouds of points, against kernels and sums written out in float64; what the map rests on."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.layout import lay_out
from midmask.benchmark.records import collect
from midmask.store.place import Place
from midmask_papers.answers import additions
from midmask_papers.claims import CLAIMS
from midmask_papers.embedding_map import DRAWS, GRID, MARGIN, divergences, main, project
from midmask_papers.masks_and_maps import read_statistics
from tests.support.benchmark.tiny import SHORT, run_here, write_collection


def cloud(seed: int, count: int, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, 2)) * [scale, 0.5]
    return points + np.array([shift, 0.0])


def by_hand(queries: np.ndarray, passages: np.ndarray) -> tuple[float, float]:
    """KL and JS by Scott's rule, a kernel at a time, sums without rounding (math.fsum)."""
    low, high = np.vstack([queries, passages]).min(0), np.vstack([queries, passages]).max(0)
    axes = [
        [low[k] - MARGIN * (high[k] - low[k]) + step * (1 + 2 * MARGIN) * (high[k] - low[k]) / (GRID - 1)
         for step in range(GRID)]
        for k in range(2)
    ]  # fmt: skip
    densities = []
    for points in (queries, passages):
        centred = points - points.mean(0)
        covariance = centred.T @ centred / (len(points) - 1) * len(points) ** (-2 / 6)
        inverse = np.linalg.inv(covariance)
        values = []
        for x, y in product(*axes):
            away = points - [x, y]
            values.append(math.fsum(np.exp(-0.5 * np.einsum("ni,ij,nj->n", away, inverse, away))))
        total = math.fsum(values)
        densities.append([value / total for value in values])
    q, p = densities
    m = [(a + b) / 2 for a, b in zip(q, p, strict=True)]

    def kl(first: list[float], second: list[float]) -> float:
        return math.fsum(a * math.log(a / b) for a, b in zip(first, second, strict=True) if a > 0)

    return kl(q, p), (kl(q, m) + kl(p, m)) / 2


@pytest.mark.parametrize("shift, scale", [(0.0, 1.0), (0.4, 1.0), (1.0, 1.5)])
def test_as_computed_by_hand(shift: float, scale: float) -> None:
    queries, passages = cloud(1, 40), cloud(2, 60, shift, scale)
    kl, js = by_hand(queries, passages)
    assert divergences(queries, passages) == (pytest.approx(kl, rel=1e-9), pytest.approx(js, rel=1e-9))


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), shift=st.floats(0, 30))
def test_bounds_and_symmetries(seed: int, shift: float) -> None:
    queries, passages = cloud(seed, 12), cloud(seed + 1, 15, shift)
    (kl, js), (_, swapped) = divergences(queries, passages), divergences(passages, queries)
    assert kl >= 0 and 0 <= js <= math.log(2) + 1e-12 and math.isfinite(kl)
    assert swapped == pytest.approx(js, rel=1e-6, abs=1e-12)
    assert divergences(queries + 100, passages + 100)[0] == pytest.approx(kl, rel=1e-6, abs=1e-9)
    assert divergences(queries, queries.copy()) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))


def test_a_seed_draws_one_map_and_lengths_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(20, 16)).astype(np.float32)
    passages = queries * rng.uniform(0.5, 2, (20, 1)).astype(np.float32) + np.float32(0.1)
    first, again = project(queries, passages, 0), project(queries * 4, passages * 0.5, 0)
    assert all(map(np.array_equal, first, again)), "powers of two change no cosine"
    assert not np.allclose(first[0], project(queries, passages, 1)[0])


PILOT = ("cotmae", "cotmae[experts=all]")


def test_a_benchmarks_encoders_are_mapped_and_the_claim_is_weighed(tmp_path: Path) -> None:
    """CoT-MAE with one encoder, fine-tuned twice, and with two."""
    changes = {**SHORT, "spans.span_length": 8, "stages.*.train.steps": 2, "stages.*.train.batch_size": 4}
    settings = {"cotmae": Setting(protocols={"dense": "in_batch"})}
    tried = {"title": "A pilot", "systems": ("bm25", "none", *PILOT), "splits": ("dev",), "seeds": (0, 1)}
    corpus, storage = write_collection(tmp_path / "tiny"), Place(str(tmp_path / "store"))
    layout = lay_out(Benchmark(name="pilot", corpus=corpus, settings=settings, changes=changes, **tried))
    run_here(layout, storage)
    name = layout.cells[0].recipe.corpus.short_name
    steps = [(cell.key.system, cell.evaluations[name, "dev"]) for cell in layout.cells if cell.key.system in PILOT]
    main(["--out", str(tmp_path / "out"), *(f"{system}={step.place(storage)}" for system, step in steps[:3])])
    assert (tmp_path / "out" / "figures" / "embeddings.png").read_bytes().startswith(b"\x89PNG")

    found = read_statistics(tmp_path / "out" / "statistics.yaml")
    told = [(one.measure, one.system, one.corpus, len(one.values)) for one in found]
    seeds_then_draws = [(PILOT[0], 2), (PILOT[1], len(DRAWS))]
    assert told == [(measure, system, name, n) for system, n in seeds_then_draws for measure in ("KL", "JS")]
    # Queries 24 to 35 ask for the passages of their numbers, which are stored in order: 12 pairs, all in the sample.
    inputs = steps[2][1].inputs["ranked"].inputs
    (queries,), (passages,) = (
        [np.load(path) for path in Path(inputs[side].place(storage).uri).glob("dense/*.npy")]
        for side in ("queries", "passages")
    )
    own = [divergences(*project(queries, passages[24:36], seed)) for seed in DRAWS]
    assert [one.values for one in found[2:]] == [pytest.approx(values) for values in zip(*own, strict=True)]
    results = collect(layout.cells, storage)
    additions(results, layout.benchmark, tmp_path / "out")
    assert "**cotmote.1_divergences**, " in (tmp_path / "out" / "claims.md").read_text()
    assert CLAIMS["cotmote.1_divergences"].decide(results, found).outcome != "not measured"
