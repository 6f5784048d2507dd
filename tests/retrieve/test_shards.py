"""Exact search of dense, lexical and hybrid collections, however they are cut, against plain Python in float64; sparse
rows, and how they lie in files.

Views of queries, and those of passages, are pairs: vectors and words, of which one may be None.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from midmask.errors import UserError
from midmask.retrieve import lexical
from midmask.retrieve.best import near_best
from midmask.retrieve.dense import DenseShard
from midmask.retrieve.index import IndexConfig, build_faiss_index
from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.sparse import HEADER, heaviest, pack_rows, row_of, top_rows, unpack_rows
from midmask.retrieve.views import Views, load_array
from midmask.store.place import Place
from tests.support.retrieve.vectors import cancelling, collapsed, ids, in_memory

COUNT, WIDTH = 150, 40


def score(views, at: int, row: int) -> float:
    """By the definition, in Python's float64; of words, the terms that both have, ascending."""
    (dense_QD, words), (vectors_ND, rows) = views
    total, dense = 0.0, 0.0
    if words is not None:
        theirs = dict(zip(*(part.tolist() for part in row_of(rows, row)), strict=True))
        for term, weight in zip(*(part.tolist() for part in row_of(words, at)), strict=True):
            total += weight * theirs.get(term, 0.0)
    if dense_QD is not None:
        dense = sum((dense_QD[at].astype(np.float64) * vectors_ND[row].astype(np.float64)).tolist())
    return dense + total


def size_of(parts) -> int:
    return next(part for part in parts if part is not None).shape[0]


def brute_force(views, k):
    """(score in float32, row) of each query, ordered by score descending, id ascending."""
    found = []
    for at in range(size_of(views[0])):
        rounded = [np.float32(score(views, at, row)) for row in range(size_of(views[1]))]
        names = ids(len(rounded)).to_pylist()
        best = sorted(range(len(rounded)), key=lambda row: (-rounded[row], names[row]))[:k]
        found.append([(rounded[row], row) for row in best])
    return found


def pairs(found):
    return [list(zip(scores, rows.tolist(), strict=True)) for scores, rows in zip(*found, strict=True)]


def shard_of(passages, start: int, stop: int, **options):
    """The shard of some rows, whose vectors lie in blocks of 40."""
    vectors_ND, rows = passages
    mine, options = ids(size_of(passages)).slice(start, stop - start), {"first": start, **options}
    if vectors_ND is None:
        return LexicalShard(rows[start:stop], mine, **options)
    blocks = [vectors_ND[at : min(at + 40, stop)] for at in range(start, stop, 40)]
    if rows is None:
        return DenseShard(blocks, mine, **options)
    return LexicalShard(rows[start:stop], mine, vectors=blocks, **options)


def cut_search(views, k, parts, **options):
    """The search over `parts` shards, merged by a plain sort."""
    queries, passages = views
    names, lists = ids(size_of(passages)).to_pylist(), [[] for _ in range(size_of(queries))]
    for start, stop in pairwise(np.linspace(0, len(names), parts + 1).astype(int).tolist()):
        shard = shard_of(passages, start, stop, **options)
        for found, part in zip(lists, pairs(shard.search(Views(*queries), k)), strict=True):
            found += part
    return [sorted(found, key=lambda pair: (-pair[0], names[pair[1]]))[:k] for found in lists]


def sparse_table(draw: np.random.Generator, rows: int, share: float, whole: bool) -> np.ndarray:
    table = np.where(draw.random((rows, WIDTH)) < share, draw.standard_normal((rows, WIDTH)) * 3, 0)
    return (np.round(table) if whole else table).astype(np.float32)


@st.composite
def dense_views(draw):
    """Planted ties: copies of one another, or a few small whole numbers."""
    generator, width = np.random.default_rng(draw(st.integers(0, 10_000))), draw(st.sampled_from([1, 3, 17, 64]))
    vectors_ND = generator.standard_normal((230, width)).astype(np.float32)
    queries_QD = generator.standard_normal((4, width)).astype(np.float32)
    if draw(st.booleans()):
        vectors_ND, queries_QD = np.round(vectors_ND), np.round(queries_QD)
    copies = generator.integers(0, len(vectors_ND), (2, draw(st.integers(0, 200))))
    vectors_ND[copies[0]] = vectors_ND[copies[1]]
    return (queries_QD, None), (vectors_ND, None)


@st.composite
def lexical_views(draw):
    """Weights of both signs; empty rows and queries, rows without a shared term, copies; one query dense in V."""
    generator, whole = np.random.default_rng(draw(st.integers(0, 10_000))), draw(st.booleans())
    passages_NV = sparse_table(generator, COUNT, draw(st.sampled_from([0.02, 0.2, 1.0])), whole)
    queries_QV = sparse_table(generator, 6, draw(st.sampled_from([0.05, 0.4])), whole)
    copies = generator.integers(0, COUNT, (2, 60))
    passages_NV[copies[0]] = passages_NV[copies[1]]
    passages_NV[generator.integers(0, COUNT, 5)] = 0
    queries_QV[1], queries_QV[4] = 0, generator.standard_normal(WIDTH)
    return (None, top_rows(queries_QV, None)), (None, top_rows(passages_NV, None))


@st.composite
def hybrid_views(draw):
    """Ties of the whole score too: copies, whole numbers, empty rows, a query dense in V.

    Whole numbers, or parts of them: sums in float64 are exact in any order, as the definition adds in its own.
    """
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    vectors_ND, dense_QD = (generator.integers(-40, 41, (rows, 9)).astype(np.float32) / 8 for rows in (COUNT, 6))
    passages_NV = sparse_table(generator, COUNT, draw(st.sampled_from([0.02, 0.2, 1.0])), True)
    queries_QV = sparse_table(generator, 6, draw(st.sampled_from([0.05, 0.4])), True)
    copies = generator.integers(0, COUNT, (2, 60))
    vectors_ND[copies[0]], passages_NV[copies[0]] = vectors_ND[copies[1]], passages_NV[copies[1]]
    queries_QV[1], queries_QV[4] = 0, generator.integers(1, 5, WIDTH)
    return (dense_QD, top_rows(queries_QV, None)), (vectors_ND, top_rows(passages_NV, None))


KINDS = {"dense": dense_views(), "lexical": lexical_views(), "hybrid": hybrid_views()}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(data=st.data(), k=st.sampled_from([1, 7, 60, 500]), passages_a_block=st.integers(20, 200))
def test_any_number_of_shards_equals_brute_force_ties_included(kind: str, data, k: int, passages_a_block: int):
    views = data.draw(KINDS[kind])
    expected = brute_force(views, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "PASSAGES", passages_a_block)
        for parts in (1, 2, 5):
            assert cut_search(views, k, parts) == expected


@settings(max_examples=15)
@given(lexical_views(), st.sampled_from([1, 20, 140]), st.integers(1, 70), st.integers(1, 3))
def test_blocks_terms_at_once_and_threads_change_no_bit(views, k, passages_a_block, threads):
    expected = cut_search(views, k, 1)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PASSAGES": passages_a_block, "QUERIES": 2}.items():
            patch.setattr(lexical, name, value)
        for terms in (0, 3, WIDTH):  # all queries in one go, some, none
            patch.setattr(lexical, "MANY_TERMS", terms)
            assert cut_search(views, k, 1, threads=threads) == expected


def dense_of(collection):
    queries_QD, vectors_ND = collection(np.random.default_rng(0))
    return (queries_QD, None), (vectors_ND, None)


def with_words(collection, weight: float):
    """The dense collection and lexical views of few words, which move the ranking a little."""
    (queries_QD, _), (vectors_ND, _) = dense_of(collection)
    draw = np.random.default_rng(0)
    rows, queries = (
        top_rows((sparse_table(draw, count, 0.1, True) * weight).astype(np.float32), None)
        for count in (len(vectors_ND), len(queries_QD))
    )
    return (queries_QD, queries), (vectors_ND, rows)


def in_float32(views, at: int) -> np.ndarray:
    (dense_QD, words), (vectors_ND, rows) = views
    dense_N = vectors_ND @ dense_QD[at]
    only_words = (None, words), (None, rows)
    return dense_N if words is None else dense_N + [score(only_words, at, row) for row in range(rows.shape[0])]


CLOSE = {
    "dense, collapsed": lambda: dense_of(collapsed), "dense, cancelling": lambda: dense_of(cancelling),
    "hybrid, collapsed": lambda: with_words(collapsed, 2.0**-20),
    "hybrid, cancelling": lambda: with_words(cancelling, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("case", CLOSE)
def test_scores_closer_than_float32_can_tell_are_still_ranked_exactly(case: str):
    views = CLOSE[case]()
    expected, lost = brute_force(views, 20), []
    for at, best in enumerate(expected):
        guessed = set(np.argsort(in_float32(views, at))[-40:].tolist())
        lost += [row for _, row in best if row not in guessed]
    assert lost, "float32 finds every answer, so this test shows nothing"
    assert cut_search(views, 20, 1) == cut_search(views, 20, 3) == expected


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 9), st.sampled_from([1e-3, 0.1, 3.0]), st.booleans())
def test_no_guess_within_its_error_hides_one_of_the_best(seed, count, k, error, opposed):
    """Also where the best are guessed low, and all others high."""
    draw = np.random.default_rng(seed)
    exact_N = draw.standard_normal(count)
    best = np.argsort(-exact_N)[:k]
    off_N = np.ones(count) if opposed else draw.uniform(-1, 1, count)
    off_N[best] = -1 if opposed else off_N[best]
    guessed_N = (exact_N + 0.999 * error * off_N).astype(np.float32)
    assert set(best) <= set(near_best(guessed_N, error, k, np.float32(-np.inf)).tolist())


def test_queries_without_the_passages_view_are_refused():
    rows = top_rows(np.eye(4, dtype=np.float32), None)
    with pytest.raises(ValueError, match="there is no lexical view"):
        LexicalShard(rows, ids(4)).search(Views(np.eye(4, dtype=np.float32), None), 1)


@pytest.mark.parametrize("factory", ["IVF8,Flat", "HNSW16"])
def test_an_approximate_index_scores_exactly_what_it_finds(factory: str):
    generator = np.random.default_rng(2)
    vectors_ND = generator.standard_normal((700, 16)).astype(np.float32)
    queries_QD = generator.standard_normal((6, 16)).astype(np.float32)
    blocks = [vectors_ND[:300], vectors_ND[300:]]
    index = build_faiss_index(in_memory(*blocks), IndexConfig(index=factory))
    scores, rows = DenseShard(blocks, ids(700), index=index).search(Views(queries_QD, None), 200)
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


def entries(rows: csr_array) -> list[list[tuple[int, float]]]:
    found = [row_of(rows, index) for index in range(rows.shape[0])]
    return [list(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in found]


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([None, 1, 2, 5, 12, 30]))
def test_the_largest_weights_stay_of_equal_ones_the_smaller_terms(seed, k):
    weights_NV = np.random.default_rng(seed).integers(-3, 4, (9, 12)).astype(np.float32)
    expected = []
    for row in weights_NV.tolist():
        kept = sorted(range(12), key=lambda term: (-row[term], term))[:k]
        expected.append([(term, row[term]) for term in sorted(kept) if row[term] != 0])
    assert entries(top_rows(weights_NV, k)) == expected


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([1, 3, 12]))
def test_the_heaviest_of_rows_are_the_largest_of_their_table(seed, k):
    weights_NV = np.random.default_rng(seed).integers(0, 4, (9, 12)).astype(np.float32)
    assert entries(heaviest(top_rows(weights_NV, None), k)) == entries(top_rows(weights_NV, k))


def same(left: csr_array, right: csr_array) -> bool:
    arrays = [(left.indptr, right.indptr), (left.indices, right.indices), (left.data, right.data)]
    return left.shape == right.shape and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


@st.composite
def tables(draw):
    """Dense tables with a share of zeros; widths on both sides of a power of two, rows of one length among them."""
    seed, count = draw(st.integers(0, 10_000)), draw(st.integers(0, 40))
    width = draw(st.sampled_from([1, 2, 3, 31, 32, 33, 255, 256, 257, 3000]))
    generator = np.random.default_rng(seed)
    filled = generator.random((count, width)) < draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    return np.where(filled, generator.standard_normal((count, width)), 0).astype(np.float32)


@settings(max_examples=60)
@given(tables())
def test_rows_come_back_as_they_were(table):
    rows = top_rows(table, None)
    packed = pack_rows(rows)
    assert same(unpack_rows(packed), rows)
    assert packed == pack_rows(rows)
    bits, lengths = max(1, int(np.ceil(np.log2(table.shape[1])))), np.diff(rows.indptr)
    spread = int(lengths.max(initial=0) - lengths.min(initial=10**9)) if len(lengths) else 0
    sizes = [32 * rows.nnz, bits * rows.nnz, spread.bit_length() * len(table)]
    assert len(packed) == HEADER.size + sum(-(-size // 8) for size in sizes)


def test_more_numbers_than_are_packed_at_once_come_back():
    generator = np.random.default_rng(0)
    rows = top_rows(generator.standard_normal((700, 30_522)).astype(np.float32), 260)
    assert rows.nnz > 2 * (1 << 16)
    assert same(unpack_rows(pack_rows(rows)), rows)


GOOD = pack_rows(top_rows(np.random.default_rng(2).standard_normal((5, 40)).astype(np.float32), 7))
FOREIGN = "no file of lexical views of version 1"
BAD = {
    "empty": (b"", FOREIGN), "foreign": (b"\x93NUMPY" + GOOD[6:], FOREIGN), "header cut": (GOOD[:50], FOREIGN),
    "newer": (GOOD[:16] + b"\x02" + GOOD[17:], FOREIGN),
    "cut": (GOOD[:-1], "checksum is wrong"), "joined": (GOOD + GOOD, "checksum is wrong"),
    "changed": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], "checksum is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_whole_is_refused(name: str):
    content, message = BAD[name]
    with pytest.raises(UserError, match=message):
        unpack_rows(content)
