from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.retrieve import lexical
from midmask.retrieve.best import candidates
from midmask.retrieve.lexical import LexicalIndex, LexicalShard
from midmask.retrieve.sparse import SparseRows
from tests.support.retrieve.vectors import ids
from tests.support.retrieve.weights import COUNT, WIDTH, lexical_score, pairs, ranking, sparse_table


def brute_force(queries, passages, k):
    return [
        ranking([lexical_score(queries, query, passages, row) for row in range(len(passages))], k)
        for query in range(len(queries))
    ]


def cut_search(queries, passages, k, parts, threads=1):
    """The search over `parts` shards, merged by a plain sort."""
    names, lists = ids(len(passages)).to_pylist(), [[] for _ in range(len(queries))]
    for start, stop in pairwise(np.linspace(0, len(passages), parts + 1).astype(int).tolist()):
        mine = ids(len(passages)).slice(start, stop - start)
        shard = LexicalShard(passages.slice(start, stop), mine, first=start, threads=threads)
        for found, part in zip(lists, pairs(shard.search(queries, k)), strict=True):
            found += part
    return [sorted(found, key=lambda pair: (-pair[0], names[pair[1]]))[:k] for found in lists]


@st.composite
def collections(draw):
    """Weights of both signs; empty rows and queries, rows without a shared term, copies; one query dense in V."""
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    whole = draw(st.booleans())
    passages_NV = sparse_table(generator, COUNT, draw(st.sampled_from([0.02, 0.2, 1.0])), whole)
    queries_QV = sparse_table(generator, 6, draw(st.sampled_from([0.05, 0.4])), whole)
    copies = generator.integers(0, COUNT, (2, 60))
    passages_NV[copies[0]] = passages_NV[copies[1]]
    passages_NV[generator.integers(0, COUNT, 5)] = 0
    queries_QV[1], queries_QV[4] = 0, generator.standard_normal(WIDTH)
    return SparseRows.top(queries_QV, None), SparseRows.top(passages_NV, None)


@settings(max_examples=25)
@given(collections(), st.sampled_from([1, 7, 60, 500]))
def test_any_number_of_shards_equals_brute_force_in_float64_ties_included(collection, k):
    queries, passages = collection
    expected = brute_force(queries, passages, k)
    for parts in (1, 2, 5):
        assert cut_search(queries, passages, k, parts) == expected


@settings(max_examples=15)
@given(collections(), st.sampled_from([1, 20, 140]), st.integers(1, 70), st.integers(1, 5), st.integers(1, 3))
def test_blocks_tiles_and_threads_change_no_bit(collection, k, passages_a_block, tile, threads):
    queries, passages = collection
    expected = pairs(LexicalShard(passages, ids(COUNT)).search(queries, k))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "PASSAGES", passages_a_block)
        patch.setattr(lexical, "TILE", tile)
        patch.setattr(lexical, "QUERIES", 2)
        patch.setattr(lexical, "GATHERED", 11)
        for share in (-1.0, 0.3, 2.0):  # all queries by tile, some, none
            patch.setattr(lexical, "MANY", share)
            assert cut_search(queries, passages, k, 1, threads) == expected


def test_a_passage_without_a_shared_term_scores_zero_above_negative_ones():
    passages = SparseRows.top(np.array([[-1, 0, 0], [0, 0, 5], [2, 0, 0], [0, 0, 0]], np.float32), None)
    queries = SparseRows.top(np.array([[3, 1, 0], [0, 0, 0]], np.float32), None)
    found = pairs(LexicalShard(passages, pa.chunked_array([["b", "d", "c", "a"]]), first=10).search(queries, 9))
    assert found == [[(6, 12), (0, 13), (0, 11), (-3, 10)], [(0, 13), (0, 10), (0, 12), (0, 11)]]


def test_scores_closer_than_float32_can_tell_are_still_ranked_exactly():
    """Queries dense in V whose large products cancel: float32 sums are noise, and the bound asks for what they hide."""
    draw = np.random.default_rng(0)
    along_N1 = draw.integers(-(2**23), 2**23, (600, 1))
    passages_NV = np.concatenate([along_N1, draw.integers(-2, 3, (600, 30)), -along_N1], axis=1).astype(np.float32)
    queries_QV = np.concatenate([np.full((5, 1), 9), draw.integers(-3, 4, (5, 30)), np.full((5, 1), 9)], axis=1)
    queries, passages = SparseRows.top(queries_QV.astype(np.float32), None), SparseRows.top(passages_NV, None)
    expected = brute_force(queries, passages, 20)
    (guessed,) = [list(scores) for _, _, scores in LexicalIndex(passages).scores(queries)]
    assert all(one.scores_N.dtype == np.float32 for one in guessed)
    lost = [
        row
        for one, best in zip(guessed, expected, strict=True)
        for _, row in best
        if row not in one.scores_N.argsort()[-40:]
    ]
    assert lost, "float32 finds every answer, so this test shows nothing"
    assert cut_search(queries, passages, 20, 1) == cut_search(queries, passages, 20, 3) == expected


def test_guesses_are_no_further_from_the_scores_than_they_say():
    draw = np.random.default_rng(1)
    passages = SparseRows.top(draw.standard_normal((300, 64)).astype(np.float32) * 1e3, 50)
    queries = SparseRows.top(draw.standard_normal((4, 64)).astype(np.float32), None)
    for members, block, scores in LexicalIndex(passages).scores(queries):
        for query, guessed in zip(members, scores, strict=True):
            exact = np.array([lexical_score(queries, query, passages, row) for row in block])
            assert np.array_equal(guessed.exact(np.arange(300)), exact)
            assert 0 < np.abs(guessed.scores_N - exact).max() <= guessed.error < 1


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 9), st.sampled_from([1e-3, 0.1, 3.0]), st.booleans())
def test_no_guess_within_its_error_hides_one_of_the_best(seed, count, k, error, opposed):
    """Also where the best are guessed low, and all others high."""
    draw = np.random.default_rng(seed)
    exact_N = draw.standard_normal(count)
    best = np.argsort(-exact_N)[:k]
    off_N = np.ones(count) if opposed else draw.uniform(-1, 1, count)
    off_N[best] = -1 if opposed else off_N[best]
    guessed_N = (exact_N + 0.999 * error * off_N).astype(np.float32)
    assert set(best) <= set(candidates(guessed_N, error, k, np.float32(-np.inf)).tolist())


def test_queries_of_another_vocabulary_are_refused():
    passages = SparseRows.top(np.eye(4, dtype=np.float32), None)
    with pytest.raises(UserError, match="queries over 5 terms and passages over 4"):
        LexicalShard(passages, ids(4)).search(SparseRows.top(np.eye(5, dtype=np.float32), None), 1)
