"""Approximate search by words: what the index proposes is scored as an exact search scores it."""

from pathlib import Path

import numpy as np
import pytest

from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.index import IndexConfig
from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.search import search
from midmask.retrieve.search_config import SearchConfig
from midmask.retrieve.seismic import ENDING, NAMES, NARROW, SeismicIndex, SeismicShard, build_seismic_index
from midmask.retrieve.sparse import SparseRows
from midmask.store.place import Place
from tests.support.retrieve.collection import encoded, with_index, write_bi_encoder
from tests.support.retrieve.vectors import ids

pytest.importorskip("seismic", reason="pip install -c constraints.txt -e '.[seismic]'")

PASSAGES, QUERIES, WORDS, DEPTH = 3000, 30, 400, 20
ALL = {"query_cut": WORDS, "heap_factor": 0.0}
"""Every list of a query is searched, and no block is passed over."""


def rows_of(draw: np.random.Generator, count: int, width: int, entries: int) -> SparseRows:
    """Made-up views; every tenth has no word, and some weights are equal."""
    weights_NV = np.zeros((count, width), dtype=np.float32)
    chance_V = 1 / np.arange(1, width + 1)
    for row in range(count):
        if row % 10 != 3:
            words = draw.choice(width, draw.integers(1, entries), replace=False, p=chance_V / chance_V.sum())
            weights_NV[row, words] = draw.integers(1, 30, len(words)) / 7
    return SparseRows.top(weights_NV, None)


@pytest.fixture(scope="module")
def collection() -> tuple[SparseRows, SparseRows]:
    draw = np.random.default_rng(5)
    return rows_of(draw, PASSAGES, WORDS, 40), rows_of(draw, QUERIES, WORDS, 15)


@pytest.fixture(scope="module")
def folder(collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    own: Path = tmp_path_factory.mktemp("seismic")
    passages, _ = collection
    blocks = [passages.slice(at, at + 700) for at in range(0, PASSAGES, 700)]
    assert build_seismic_index(blocks, own, threads=2) == PASSAGES
    return own


def shard(passages: SparseRows, folder: Path, *, rescore: int = 1, threads: int = 1, **fields) -> SeismicShard:
    index = SeismicIndex(folder, fields.get("query_cut"), fields.get("heap_factor"))
    return SeismicShard(passages, ids(len(passages)), index, rescore=rescore, threads=threads)


def test_searched_to_the_end_it_ranks_as_the_exact_search_to_the_last_bit(collection, folder):
    """But for passages that share no word with a query, which have a score of 0 there and are not found here."""
    passages, queries = collection
    expected = LexicalShard(passages, ids(PASSAGES)).search(queries, DEPTH)
    for threads in (1, 2):
        scores_QK, rows_QK = shard(passages, folder, rescore=20, threads=threads, **ALL).search(queries, DEPTH)
        is_scored_QK = expected[0] > 0
        assert np.array_equal(rows_QK >= 0, is_scored_QK) and is_scored_QK.any(axis=1).sum() == 27
        assert np.array_equal(rows_QK[is_scored_QK], expected[1][is_scored_QK])
        assert np.array_equal(scores_QK[is_scored_QK], expected[0][is_scored_QK])
        assert np.isneginf(scores_QK[~is_scored_QK]).all()


def test_scores_are_sums_in_float64_whatever_is_found(collection, folder):
    passages, queries = collection
    scores_QK, rows_QK = shard(passages, folder, query_cut=2, heap_factor=1.0).search(queries, DEPTH)
    for query in range(QUERIES):
        asked = dict(zip(*(part.tolist() for part in queries.row(query)), strict=True))
        for score, row in zip(scores_QK[query], rows_QK[query], strict=True):
            if row >= 0:
                terms, weights = passages.row(row)
                summed = sum(asked.get(term, 0.0) * float(weight) for term, weight in zip(terms, weights, strict=True))
                assert score == np.float32(summed)
        found = rows_QK[query][rows_QK[query] >= 0]
        assert len(set(found.tolist())) == len(found) and (np.diff(scores_QK[query][: len(found)]) <= 0).all()


def test_words_of_a_large_vocabulary_are_not_mixed_up(tmp_path: Path):
    """65,536 and 0 are one number of 16 bits."""
    width = NARROW + 10
    rows = SparseRows(np.arange(3), np.array([0, NARROW + 1], np.int32), np.ones(2, np.float32), width)
    build_seismic_index([rows], tmp_path, threads=1)
    assert [file.name for file in tmp_path.iterdir()] == [f"{NAMES[True]}{ENDING}"]
    _, found = shard(rows, tmp_path, **ALL).search(rows, 2)
    assert found.tolist() == [[0, -1], [1, -1]]


def test_a_negative_weight_is_refused_in_passages_and_in_queries(collection, folder, tmp_path: Path):
    passages, queries = collection
    below = SparseRows(queries.offsets, queries.terms, -queries.weights, WORDS)
    with pytest.raises(UserError, match=r"index = Seismic: a word of a query weighs -4.143, .* leave it at Flat"):
        shard(passages, folder).search(below, DEPTH)
    with pytest.raises(UserError, match=r"a word of a passage weighs -4.143"):
        build_seismic_index([passages, below], tmp_path, threads=1)


def test_more_lists_and_less_trust_find_more(collection, folder):
    passages, queries = collection
    exact = LexicalShard(passages, ids(PASSAGES)).search(queries, DEPTH)[1]

    def found(**fields) -> int:
        own = shard(passages, folder, **fields).search(queries, DEPTH)[1]
        return sum(len(set(one.tolist()) & set(other.tolist())) for one, other in zip(own, exact, strict=True))

    few, usual, most = found(query_cut=1, heap_factor=1.0), found(), found(**ALL)
    assert few < 0.8 * usual and usual <= most


def test_an_index_of_other_passages_or_of_words_for_vectors_is_refused(collection, folder, inputs, tmp_path: Path):
    with pytest.raises(UserError, match=r"an index of 2700 passages that have words, for 90; delete it"):
        shard(collection[0].slice(0, 100), folder)
    model = write_bi_encoder(Place(str(tmp_path / "model")), inputs["tokens"], Representation(lexical="splade"))
    both = encoded({**inputs, "model": model}, Place(str(tmp_path)))
    with pytest.raises(UserError, match=r"index = Seismic: words are not all that is searched; leave it at Flat"):
        others = {"index": both["passages"], "exact": both["passages"]}
        search(SearchConfig(depth=10, index="Seismic"), {**both, **others}, Place(str(tmp_path / "out")))


def test_the_step_ranks_by_an_index_and_measures_its_recall(inputs, out: Place):
    words = Representation(dense=None, lexical="splade")
    vectors = encoded({**inputs, "model": write_bi_encoder(out / "model", inputs["tokens"], words)}, out)
    config = SearchConfig(depth=10, index="Seismic", rescore=3, query_cut=1000, heap_factor=0.0)
    given = with_index(vectors, out, IndexConfig(index="Seismic"), config, queries=8)
    result = search(config, given, out / "found")
    assert result["recall"]["at_10"] > 0.99 and given["index"].result["passages"] == 300
    search(SearchConfig(depth=10), vectors, out / "all")
    own, best = (ranked.read(out / name / "ranked" / "train.parquet") for name in ("found", "all"))
    assert own.equals(best)
