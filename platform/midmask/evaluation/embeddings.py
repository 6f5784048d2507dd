"""How queries and passages lie to each other, as CoT-MoTE looks at it (Ma et al. 2023, appendix A.1 and Table 1).

Pairs of a query and a relevant passage; cosine distances between all their vectors; t-SNE to two dimensions; a Gaussian
kernel density of either side; KL(queries || passages), and JS = KL(q || m) / 2 + KL(p || m) / 2 with m = (q + p) / 2.
The paper tells neither kernel, perplexity nor seed. Here: scikit-learn's t-SNE of the distances, Scott's rule for the
kernels, densities on a grid around all points, natural logarithms.

t-SNE keeps neighbourhoods, not distances: sizes of clusters and gaps between them mean little, another seed gives
another map, and so another KL. The paper's own JS is KL / 4 in both rows of its table, which is what any two nearly
equal densities give. So cosines, taken before t-SNE, stand beside.

Shapes: N pairs, D width, G grid points.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import gaussian_kde

from midmask.core.arrays import Doubles

PERPLEXITY = 30.0
"""scikit-learn's default; fewer pairs take a third of the points."""

FEWEST = 5
"""Pairs below which there is no density worth the name."""

GRID = 100
"""Points of the grid along each of the two dimensions."""

MARGIN = 0.25
"""By how much of the points' extent the grid reaches beyond them, on each side."""

CAVEAT = (
    "t-SNE keeps neighbourhoods, not distances: sizes of clusters and gaps between them mean little, and another seed "
    "draws another map with another KL. Where the densities are nearly equal, as in the paper, JS is KL / 4 and adds "
    "nothing. An illustration, not evidence."
)


@dataclass(frozen=True)
class Divergence:
    """Divergences of the queries' density and the passages' density, in nats."""

    kl: float  # KL(queries || passages)
    js: float  # Jensen-Shannon, at most ln 2


@dataclass(frozen=True)
class Cosines:
    """Mean cosines, taken before t-SNE."""

    pairs: float  # of each query and its own passage
    others: float  # of queries and passages of other pairs


@dataclass(frozen=True)
class Map:
    """Pairs of a query and a passage as points in the plane; row i of both arrays is one pair."""

    queries_N2: Doubles
    passages_N2: Doubles
    divergence: Divergence
    cosines: Cosines


def embedding_map(queries_ND: NDArray[Any], passages_ND: NDArray[Any], *, perplexity: float, seed: int) -> Map:
    """The map of N pairs, and measures of the vectors and of the map.

    Raises:
        ValueError: for fewer than 5 pairs, a vector of zeros, or points that all lie on a line.
    """
    if len(queries_ND) < FEWEST:
        raise ValueError(f"{len(queries_ND)} pairs of query and passage are too few for a density; it takes {FEWEST}")
    points_ND = np.concatenate([queries_ND, passages_ND]).astype(np.float64)
    if not (np.abs(points_ND).max(axis=1) > 0).all():
        raise ValueError("a vector of zeros has no direction, so no cosine")
    distances_NN = np.clip(cdist(points_ND, points_ND, "cosine"), 0.0, 2.0)
    np.fill_diagonal(distances_NN, 0.0)
    points_N2 = _tsne(distances_NN, perplexity, seed)
    queries_N2, passages_N2 = points_N2[: len(queries_ND)], points_N2[len(queries_ND) :]
    between_NN = 1 - distances_NN[: len(queries_ND), len(queries_ND) :]
    return Map(queries_N2, passages_N2, divergence(queries_N2, passages_N2), _cosines(between_NN))


def divergence(queries_N2: Doubles, passages_N2: Doubles) -> Divergence:
    """KL and JS of two sets of points in the plane, by kernel densities on a common grid.

    Raises:
        ValueError: if the points of a side all lie on a line.
    """
    grid_2G = _grid(np.concatenate([queries_N2, passages_N2]))
    try:
        queries_G, passages_G = (_log_density(points, grid_2G) for points in (queries_N2, passages_N2))
    except np.linalg.LinAlgError:
        raise ValueError("the points of a side all lie on a line, so they have no density in the plane") from None
    middle_G = np.logaddexp(queries_G, passages_G) - np.log(2)
    js = (_kl(queries_G, middle_G) + _kl(passages_G, middle_G)) / 2
    return Divergence(_kl(queries_G, passages_G), js)


def _tsne(distances_NN: Doubles, perplexity: float, seed: int) -> Doubles:
    from sklearn.manifold import TSNE  # here, since it takes seconds to import

    neighbours = min(perplexity, (len(distances_NN) - 1) / 3)
    tsne = TSNE(metric="precomputed", init="random", perplexity=neighbours, random_state=seed)
    return np.asarray(tsne.fit_transform(distances_NN), dtype=np.float64)


def _grid(points_N2: Doubles) -> Doubles:
    low, high = points_N2.min(axis=0), points_N2.max(axis=0)
    extent = np.maximum(high - low, 1e-12) * MARGIN
    axes = [np.linspace(start, end, GRID) for start, end in zip(low - extent, high + extent, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes)])


def _log_density(points_N2: Doubles, grid_2G: Doubles) -> Doubles:
    """The logarithm of the density at the grid's points, made to sum to 1 over them; far tails stay finite."""
    log_G = gaussian_kde(points_N2.T).logpdf(grid_2G)
    return np.asarray(log_G - logsumexp(log_G))


def _kl(log_p_G: Doubles, log_q_G: Doubles) -> float:
    """The sum of p (log p - log q) + q - p: both sum to 1, and no term is below 0, so no rounding is either."""
    p_G, q_G = np.exp(log_p_G), np.exp(log_q_G)
    return float((p_G * (log_p_G - log_q_G) + q_G - p_G).sum())


def _cosines(between_NN: Doubles) -> Cosines:
    count = len(between_NN)
    pairs = float(np.trace(between_NN))
    return Cosines(pairs / count, (float(between_NN.sum()) - pairs) / (count * (count - 1)))
