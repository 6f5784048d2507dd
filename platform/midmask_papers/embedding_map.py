"""Figure 4 of CoT-MoTE (Ma et al. 2023), and the divergences of its Table 1: how queries lie to their passages.

    python -m midmask_papers.embedding_map --out benchmarks/cotmote cotmae=EVALUATION 'cotmae[experts=all]=EVALUATION'

EVALUATION is the artifact of an evaluation with dense vectors (`midmask.artifact` among its run's tags); a system may
be named once for each seed. Writes `figures/embeddings.png` and `statistics.yaml`, from which the benchmark's report,
made again, decides the claims about KL and JS, and prints it.

400 pairs of a query and a relevant passage; cosine distances; t-SNE to the plane; a Gaussian kernel density of either
side; KL(queries || passages), and JS by their mean. The paper tells neither kernel, perplexity nor seed. Here:
scikit-learn's t-SNE, Scott's rule, densities on a grid, natural logarithms. An illustration, not evidence: t-SNE keeps
neighbourhoods, not distances; another seed gives another KL; and JS is KL / 4 where densities are nearly equal.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import gaussian_kde

from midmask.core.arrays import Doubles, Floats
from midmask.core.randomness import numpy_stream
from midmask.retrieve.blocks import SELECTION, Block, blocks_in, passage_blocks
from midmask.retrieve.searched_queries import relevant_passages
from midmask.retrieve.views import read_views
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place

PAIRS, DRAWS, PERPLEXITY = 400, (0, 1, 2, 3, 4), 30.0
"""Pairs at most; seeds of t-SNE; scikit-learn's default, less for few pairs."""

GRID, MARGIN = 100, 0.25
"""Points of the grid in each dimension, and how far it reaches beyond the points, as a share of their extent."""


def read_pairs(evaluation: Artifact) -> tuple[Floats, Floats]:
    """The vectors of at most 400 queries, and of a relevant passage of each, both [N, D]."""
    searched, corpus = _input(evaluation, "ranked"), _input(evaluation, "corpus")
    if "encoder" in searched.record["inputs"]:  # BM25's list is joined with the encoder's
        searched = _input(searched, "encoder")
    queries, passages, tokens = (_input(searched, role) for role in ("queries", "passages", "tokens"))
    query_blocks, texts = blocks_in([queries.place / SELECTION]), passage_blocks(tokens.place)
    known = {name for block in query_blocks for name in block.read(["query_id"])["query_id"].to_pylist()}
    relevant: dict[str, list[str]] = {}
    for pair in relevant_passages(corpus.place, evaluation.record["config"]["split"]).to_pylist():
        if pair["query_id"] in known:
            relevant.setdefault(pair["query_id"], []).append(pair["doc_id"])
    names, rng = sorted(relevant), numpy_stream(0)
    chosen = [names[at] for at in sorted(rng.choice(len(names), min(PAIRS, len(names)), replace=False))]
    drawn = [str(rng.choice(sorted(relevant[name]))) for name in chosen]
    return _vectors(queries.place, query_blocks, "query_id", chosen), _vectors(passages.place, texts, "doc_id", drawn)


def _input(artifact: Artifact, role: str) -> Artifact:
    return load(Place(artifact.record["inputs"][role]))


def _vectors(place: Place, blocks: Sequence[Block], column: str, ids: Sequence[str]) -> Floats:
    """The dense vectors of these texts, in their order."""
    needed, vectors = set(ids), dict[str, Floats]()
    for block in blocks:
        dense_ND = np.asarray(read_views(place, block.name, ["dense"]).dense_ND)
        rows = zip(block.read([column])[column].to_pylist(), dense_ND, strict=True)
        vectors |= {name: vector_D for name, vector_D in rows if name in needed}
    return np.stack([vectors[name] for name in ids])


def project(queries_ND: Floats, passages_ND: Floats, seed: int) -> tuple[Doubles, Doubles]:
    """The queries and the passages as points in the plane, both [N, 2]: t-SNE of all cosine distances."""
    from sklearn.manifold import TSNE  # here, since it takes seconds to import

    points_ND = np.concatenate([queries_ND, passages_ND]).astype(np.float64)
    distances_NN = np.clip(cdist(points_ND, points_ND, "cosine"), 0.0, 2.0)
    np.fill_diagonal(distances_NN, 0.0)
    perplexity = min(PERPLEXITY, (len(points_ND) - 1) / 3)
    tsne = TSNE(metric="precomputed", init="random", perplexity=perplexity, random_state=seed)
    queries_N2, passages_N2 = np.split(np.asarray(tsne.fit_transform(distances_NN), dtype=np.float64), 2)
    return queries_N2, passages_N2


def divergences(queries_N2: Doubles, passages_N2: Doubles) -> tuple[float, float]:
    """KL and JS of two sets of points in the plane, in nats, by kernel densities on a common grid."""
    points_N2 = np.concatenate([queries_N2, passages_N2])
    low, high = points_N2.min(axis=0), points_N2.max(axis=0)
    edge = np.maximum(high - low, 1e-12) * MARGIN
    axes = [np.linspace(start, end, GRID) for start, end in zip(low - edge, high + edge, strict=True)]
    grid_2G = np.stack([axis.ravel() for axis in np.meshgrid(*axes)])
    logs = [gaussian_kde(side_N2.T).logpdf(grid_2G) for side_N2 in (queries_N2, passages_N2)]
    queries_G, passages_G = (log_G - logsumexp(log_G) for log_G in logs)  # far tails stay finite
    middle_G = np.logaddexp(queries_G, passages_G) - np.log(2)
    return _kl(queries_G, passages_G), (_kl(queries_G, middle_G) + _kl(passages_G, middle_G)) / 2


def _kl(log_p_G: Doubles, log_q_G: Doubles) -> float:
    """The sum of p (log p - log q) + q - p: both sum to 1, and no term is below 0, so no rounding is either."""
    p_G, q_G = np.exp(log_p_G), np.exp(log_q_G)
    return float((p_G * (log_p_G - log_q_G) + q_G - p_G).sum())


def draw(maps: Mapping[str, tuple[Doubles, Doubles]], path: Path) -> None:
    """Draws a panel for each system."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * len(maps), 3.3), dpi=200, layout="constrained")
    for number, (system, sides) in enumerate(maps.items(), 1):
        axes = figure.add_subplot(1, len(maps), number, xticks=[], yticks=[], title=system)
        for side_N2, name in zip(sides, ("queries", "passages"), strict=True):
            axes.scatter(side_N2[:, 0], side_N2[:, 1], s=3, label=name, linewidths=0)
        axes.legend(fontsize=6, frameon=False, markerscale=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Figure 4 of CoT-MoTE: t-SNE of queries and passages, KL and JS.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the benchmark's report")
    parser.add_argument("systems", nargs="+", metavar="SYSTEM=EVALUATION")
    options = parser.parse_args(arguments)
    maps: dict[str, tuple[Doubles, Doubles]] = {}
    measured: dict[tuple[str, str], list[list[tuple[float, float]]]] = {}
    for system, _, folder in (text.rpartition("=") for text in options.systems):
        evaluation = load(Place.named(folder))
        key, vectors = (system, evaluation.result["corpus"]), read_pairs(evaluation)
        points = [project(*vectors, seed) for seed in DRAWS]
        maps.setdefault(", ".join(key), points[0])
        measured.setdefault(key, []).append([divergences(*sides) for sides in points])
    draw(maps, options.out / "figures" / "embeddings.png")
    entries = [entry for key, seeds in measured.items() for entry in _statistics(*key, seeds)]
    (options.out / "statistics.yaml").write_text(yaml.safe_dump(entries), encoding="utf-8")
    print(yaml.safe_dump(entries))


def _statistics(system: str, corpus: str, seeds: list[list[tuple[float, float]]]) -> list[dict[str, object]]:
    """KL and JS as `statistics.yaml` lists them: a value for each seed; of a single one, for each draw."""
    values = np.array(seeds[0]) if len(seeds) == 1 else np.mean(seeds, axis=1)
    about = {"system": system, "corpus": corpus, "source": f"midmask_papers.embedding_map, t-SNE with seeds {DRAWS}"}
    return [{"measure": name, **about, "values": values[:, at].tolist()} for at, name in enumerate(("KL", "JS"))]


if __name__ == "__main__":
    main()
