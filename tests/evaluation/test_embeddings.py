"""KL and JS of two clouds of points, against kernels and sums written out in float64; what the map rests on."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.evaluation.embeddings import GRID, MARGIN, divergence, embedding_map


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
    found = divergence(queries, passages)
    assert (found.kl, found.js) == (pytest.approx(kl, rel=1e-9), pytest.approx(js, rel=1e-9))


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), shift=st.floats(0, 30))
def test_bounds_and_symmetries(seed: int, shift: float) -> None:
    queries, passages = cloud(seed, 12), cloud(seed + 1, 15, shift)
    found, swapped = divergence(queries, passages), divergence(passages, queries)
    assert found.kl >= 0 and 0 <= found.js <= math.log(2) + 1e-12 and math.isfinite(found.kl)
    assert swapped.js == pytest.approx(found.js, rel=1e-6, abs=1e-12)
    moved = divergence(queries + 100, passages + 100)
    assert moved.kl == pytest.approx(found.kl, rel=1e-6, abs=1e-9)
    alike = divergence(queries, queries.copy())
    assert (alike.kl, alike.js) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))


def pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(count, 16)).astype(np.float32)
    return queries, queries * rng.uniform(0.5, 2, (count, 1)).astype(np.float32) + np.float32(0.1)


def test_a_seed_draws_one_map_and_lengths_do_not_matter() -> None:
    queries, passages = pairs(20)
    first = embedding_map(queries, passages, perplexity=30, seed=0)
    again = embedding_map(queries * 4, passages * 0.5, perplexity=30, seed=0)
    assert np.array_equal(first.queries_N2, again.queries_N2), "powers of two change no cosine"
    assert first.divergence == again.divergence
    assert not np.allclose(first.queries_N2, embedding_map(queries, passages, perplexity=30, seed=1).queries_N2)


def test_cosines_are_those_of_the_vectors() -> None:
    queries, passages = pairs(6)
    found = embedding_map(queries, passages, perplexity=30, seed=0).cosines
    cosine = [
        [float(q @ p / np.sqrt((q @ q) * (p @ p))) for p in passages.astype(float)] for q in queries.astype(float)
    ]
    own = [cosine[n][n] for n in range(6)]
    others = [cosine[n][m] for n in range(6) for m in range(6) if n != m]
    assert (found.pairs, found.others) == (pytest.approx(np.mean(own)), pytest.approx(np.mean(others)))


def test_what_has_no_map_is_refused() -> None:
    queries, passages = pairs(6)
    with pytest.raises(ValueError, match="it takes 5"):
        embedding_map(queries[:4], passages[:4], perplexity=30, seed=0)
    with pytest.raises(ValueError, match="no cosine"):
        embedding_map(np.zeros_like(queries), passages, perplexity=30, seed=0)
    line = np.stack([np.arange(8.0), np.arange(8.0)], axis=1)
    with pytest.raises(ValueError, match="on a line"):
        divergence(line, cloud(1, 8))
