from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.retrieve import lexical
from midmask.retrieve.hybrid import HybridShard
from midmask.retrieve.index import IndexConfig, build_faiss_index
from midmask.retrieve.index_training import VectorBlocks
from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.sparse import SparseRows
from tests.support.retrieve.vectors import cancelling, collapsed, ids
from tests.support.retrieve.weights import COUNT, WIDTH, lexical_score, pairs, ranking, sparse_table


def dense_score(query_D, vector_D) -> float:
    return sum((query_D.astype(np.float64) * vector_D.astype(np.float64)).tolist())


def brute_force(views, k):
    """Scores and rows by plain Python over float64: both parts added, then the cut."""
    (dense_QD, lexical_Q), (vectors_ND, rows) = views
    return [
        ranking(
            [
                dense_score(query_D, vector_D) + lexical_score(lexical_Q, at, rows, row)
                for row, vector_D in enumerate(vectors_ND)
            ],
            k,
        )
        for at, query_D in enumerate(dense_QD)
    ]


def cut_search(views, k, parts, **options):
    """The search over `parts` shards of blocks of 40 vectors, merged by a plain sort."""
    (dense_QD, lexical_Q), (vectors_ND, rows) = views
    names, lists = ids(len(rows)).to_pylist(), [[] for _ in dense_QD]
    for start, stop in pairwise(np.linspace(0, len(rows), parts + 1).astype(int).tolist()):
        blocks = [vectors_ND[at : min(at + 40, stop)] for at in range(start, stop, 40)]
        mine = ids(len(rows)).slice(start, stop - start)
        shard = HybridShard(blocks, rows.slice(start, stop), mine, first=start, **options)
        for found, part in zip(lists, pairs(shard.search(dense_QD, lexical_Q, k)), strict=True):
            found += part
    return [sorted(found, key=lambda pair: (-pair[0], names[pair[1]]))[:k] for found in lists]


@st.composite
def collections(draw):
    """Both views with planted ties, of the whole score too: copies, whole numbers, empty rows, a query dense in V.

    Whole numbers, or halves of them: sums in float64 are exact in any order, as the definition adds in its own.
    """
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    vectors_ND, dense_QD = (generator.integers(-40, 41, (rows, 9)).astype(np.float32) / 8 for rows in (COUNT, 6))
    passages_NV = sparse_table(generator, COUNT, draw(st.sampled_from([0.02, 0.2, 1.0])), True)
    queries_QV = sparse_table(generator, 6, draw(st.sampled_from([0.05, 0.4])), True)
    copies = generator.integers(0, COUNT, (2, 60))
    vectors_ND[copies[0]], passages_NV[copies[0]] = vectors_ND[copies[1]], passages_NV[copies[1]]
    queries_QV[1], queries_QV[4] = 0, generator.integers(1, 5, WIDTH)
    return (dense_QD, SparseRows.top(queries_QV, None)), (vectors_ND, SparseRows.top(passages_NV, None))


@settings(max_examples=20)
@given(collections(), st.sampled_from([1, 7, 60, 500]), st.integers(20, 200))
def test_any_number_of_shards_and_blocks_equals_brute_force_in_float64_ties_included(views, k, passages_a_block):
    expected = brute_force(views, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "PASSAGES", passages_a_block)
        for parts in (1, 2, 5):
            assert cut_search(views, k, parts) == expected


def with_words(dense, seed: int, weight: float):
    """The dense collection and lexical views of few words, which move the ranking a little."""
    queries_QD, vectors_ND = dense
    draw = np.random.default_rng(seed)
    rows, queries = (
        SparseRows.top((sparse_table(draw, count, 0.1, True) * weight).astype(np.float32), None)
        for count in (len(vectors_ND), len(queries_QD))
    )
    return (queries_QD, queries), (vectors_ND, rows)


@pytest.mark.parametrize(("dense", "weight"), [(collapsed, 2.0**-20), (cancelling, 1.0)])
def test_scores_closer_than_float32_can_tell_are_still_ranked_exactly(dense, weight):
    views = with_words(dense(np.random.default_rng(0)), 0, weight)
    (dense_QD, queries), (vectors_ND, rows) = views
    expected = brute_force(views, 20)
    lost = []
    for at, found in enumerate(expected):
        words_N = [lexical_score(queries, at, rows, row) for row in range(len(rows))]
        guessed = np.argsort(vectors_ND @ dense_QD[at] + words_N)[-40:]
        lost += [row for _, row in found if row not in guessed]
    assert lost, "float32 finds every answer, so this test shows nothing"
    assert cut_search(views, 20, 1) == expected
    assert cut_search(views, 20, 3, threads=2) == expected


def test_the_best_of_the_sum_is_found_though_it_is_not_among_the_best_of_a_part():
    draw = np.random.default_rng(2)
    dense_N, lexical_N = np.zeros(300, np.float32), np.zeros(300, np.float32)
    dense_N[:100], lexical_N[100:200] = 10 + draw.random(100), 10 + draw.random(100)
    dense_N[250], lexical_N[250] = 9, 9
    rows = SparseRows.top(lexical_N[:, None], None)
    shard = HybridShard([dense_N[:, None]], rows, ids(300))
    _, found = shard.search(np.ones((1, 1), np.float32), SparseRows.top(np.ones((1, 1), np.float32), None), 5)
    assert found[0, 0] == 250


@pytest.mark.parametrize("factory", ["IVF8,Flat", "HNSW16"])
def test_an_approximate_index_scores_exactly_what_either_part_proposes(factory: str):
    draw = np.random.default_rng(3)
    vectors_ND, dense_QD = (draw.standard_normal((rows, 16)).astype(np.float32) for rows in (500, 4))
    rows, queries = (SparseRows.top(sparse_table(draw, count, 0.1, False), None) for count in (500, 4))
    blocks = [vectors_ND[:200], vectors_ND[200:]]
    shard = HybridShard(
        blocks, rows, ids(500), index=build_faiss_index(VectorBlocks.of(*blocks), IndexConfig(index=factory))
    )
    found = pairs(shard.search(dense_QD, queries, 30))
    best_lexical = LexicalShard(rows, ids(500)).search(queries, 30)[1]
    for query, (mine, words) in enumerate(zip(found, best_lexical.tolist(), strict=True)):
        everything = {
            row: np.float32(dense_score(dense_QD[query], vectors_ND[row]) + lexical_score(queries, query, rows, row))
            for row in range(500)
        }
        np.testing.assert_allclose([score for score, _ in mine], [everything[row] for _, row in mine], rtol=1e-6)
        assert mine == sorted(mine, key=lambda pair: -pair[0]) and len({row for _, row in mine}) == 30
        missed = [row for row in words if row not in {row for _, row in mine}]
        assert all(everything[row] <= mine[-1][0] for row in missed)
