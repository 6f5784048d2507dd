from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.retrieve.coded_tokens import load_array
from midmask.retrieve.dense import MARGIN, DenseShard
from midmask.retrieve.index import IndexConfig, build_faiss_index
from midmask.retrieve.index_training import VectorBlocks
from tests.support.retrieve.vectors import cancelling, collapsed, ids

COUNT = 230


def brute_force(queries_QD, vectors_ND, names, k):
    """Scores and rows by plain Python over float64, ordered by (score in float32 descending, id ascending)."""
    found = []
    for query in queries_QD.astype(np.float64):
        scores = [np.float32(sum((query * vector).tolist())) for vector in vectors_ND.astype(np.float64)]
        best = sorted(range(len(names)), key=lambda row: (-scores[row], names[row]))[:k]
        found.append([(scores[row], row) for row in best])
    return found


def cut_search(queries_QD, vectors_ND, k, parts, **options):
    """The search over `parts` shards, merged by a plain sort."""
    names = ids(len(vectors_ND)).to_pylist()
    edges = np.linspace(0, len(vectors_ND), parts + 1).astype(int)
    lists = [[] for _ in queries_QD]
    for start, stop in pairwise(edges):
        blocks = [vectors_ND[at : min(at + 50, stop)] for at in range(start, stop, 50)]
        shard = DenseShard(blocks, ids(len(vectors_ND)).slice(start, stop - start), first=start, **options)
        for query, (scores, rows) in enumerate(zip(*shard.search(queries_QD, k), strict=True)):
            lists[query] += list(zip(scores, rows.tolist(), strict=True))
    return [sorted(found, key=lambda pair: (-pair[0], names[pair[1]]))[:k] for found in lists]


@st.composite
def collections(draw):
    """Vectors with planted ties: copies of one another, or a few small whole numbers."""
    seed, width = draw(st.integers(0, 10_000)), draw(st.sampled_from([1, 3, 17, 64]))
    generator = np.random.default_rng(seed)
    vectors_ND = generator.standard_normal((COUNT, width)).astype(np.float32)
    queries_QD = generator.standard_normal((4, width)).astype(np.float32)
    if draw(st.booleans()):
        vectors_ND, queries_QD = np.round(vectors_ND), np.round(queries_QD)
    copies = generator.integers(0, COUNT, (2, draw(st.integers(0, 200))))
    vectors_ND[copies[0]] = vectors_ND[copies[1]]
    return queries_QD, vectors_ND


@settings(max_examples=20)
@given(collections(), st.sampled_from([1, 7, 60, 500]))
def test_any_number_of_shards_equals_brute_force_in_float64_ties_included(collection, k):
    queries_QD, vectors_ND = collection
    expected = brute_force(queries_QD, vectors_ND, ids(COUNT).to_pylist(), k)
    for parts in (1, 2, 5):
        assert cut_search(queries_QD, vectors_ND, k, parts) == expected


@pytest.mark.parametrize("collection", [collapsed, cancelling])
def test_scores_closer_than_float32_can_tell_are_still_ranked_exactly(collection):
    """faiss's own order is noise here: only a search that is widened until it is proven finds the best."""
    queries_QD, vectors_ND = collection(np.random.default_rng(0))
    expected = brute_force(queries_QD, vectors_ND, ids(2000).to_pylist(), 20)
    _, guessed = DenseShard([vectors_ND], ids(2000))._index.search(queries_QD, 20 + MARGIN)
    lost = [row for found, near in zip(expected, guessed, strict=True) for _, row in found if row not in near]
    assert lost, "the first proposals hold every answer, so this test shows nothing"
    assert cut_search(queries_QD, vectors_ND, 20, 1) == expected
    assert cut_search(queries_QD, vectors_ND, 20, 3) == expected


@pytest.mark.parametrize("factory", ["IVF8,Flat", "HNSW16"])
def test_an_approximate_index_scores_exactly_what_it_finds(factory: str):
    generator = np.random.default_rng(2)
    vectors_ND = generator.standard_normal((700, 16)).astype(np.float32)
    queries_QD = generator.standard_normal((6, 16)).astype(np.float32)
    blocks = [vectors_ND[:300], vectors_ND[300:]]
    index = build_faiss_index(VectorBlocks.of(*blocks), IndexConfig(index=factory))
    scores, rows = DenseShard(blocks, ids(700), index=index).search(queries_QD, 200)
    found = rows >= 0
    expected = np.einsum("qd,nd->qn", queries_QD.astype(np.float64), vectors_ND.astype(np.float64)).astype(np.float32)
    assert found[:, 0].all() and (factory == "HNSW16" or not found.all())
    np.testing.assert_array_equal(scores[found], np.take_along_axis(expected, np.maximum(rows, 0), 1)[found])
    assert np.isneginf(scores[~found]).all()
    assert (scores[:, 1:] <= scores[:, :-1]).all()


def test_vectors_are_mapped_from_a_path_and_read_from_a_uri(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    mapped, read = load_array(Place(str(tmp_path / "a.npy"))), load_array(Place(f"file://{tmp_path}/a.npy"))
    assert isinstance(mapped, np.memmap) and not isinstance(read, np.memmap)
    assert np.array_equal(mapped, read)
