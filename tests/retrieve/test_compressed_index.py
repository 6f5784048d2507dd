"""Compressed indexes from vectors to ranked lists: what they learn from, how they are opened, and whose scores rank."""

from pathlib import Path

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.coded import CodedShard
from midmask.retrieve.dense import load_faiss
from midmask.retrieve.index import IndexConfig, build_faiss_index, open_faiss_index
from midmask.retrieve.index_training import VectorBlocks
from midmask.retrieve.search import SearchConfig, search
from tests.support.retrieve.collection import encoded, with_index
from tests.support.retrieve.vectors import ids

DEPTH, ROWS, WIDTH = 10, 3000, 32
FACTORIES = ("SQ8", "HNSW8,SQ8", "IVF4,PQ8x4")


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


@pytest.fixture(scope="module")
def cloud() -> tuple[np.ndarray, np.ndarray]:
    """Queries [8, 32] and passages [3000, 32]."""
    draw = np.random.default_rng(3)
    return tuple(draw.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (8, ROWS))  # type: ignore[return-value]


def scores_of(queries_QD: np.ndarray, vectors_ND: np.ndarray) -> np.ndarray:
    return queries_QD.astype(np.float64) @ vectors_ND.astype(np.float64).T


def test_an_index_learns_from_the_whole_of_a_sorted_collection_however_it_is_cut():
    """One half of the passages lies around one point, the other around its opposite; faiss gives centres length 1."""
    draw = np.random.default_rng(0)
    around_ND = np.repeat([[5.0, 0.0], [-5.0, 0.0]], 1000, axis=0) + draw.standard_normal((2000, 2)) / 4
    vectors_ND = around_ND.astype(np.float32)
    config = IndexConfig(index="IVF2,Flat", training_rows=100)
    index = build_faiss_index(VectorBlocks.of(vectors_ND), config)
    centres_KD = index.quantizer.reconstruct_n(0, 2)
    np.testing.assert_allclose(sorted(centres_KD.tolist()), [[-1, 0], [1, 0]], atol=0.05)
    faiss = load_faiss()
    cut = build_faiss_index(VectorBlocks.of(vectors_ND[:1], vectors_ND[1:1300], vectors_ND[1300:]), config)
    assert np.array_equal(faiss.serialize_index(cut), faiss.serialize_index(index))
    whole = build_faiss_index(VectorBlocks.of(vectors_ND), IndexConfig(index="IVF2,Flat"))
    assert not np.array_equal(whole.quantizer.reconstruct_n(0, 2), centres_KD), "all passages are more than 100"


@pytest.mark.parametrize(
    ("factory", "advised"),
    [
        ("IVF16,Flat", 624),
        ("SQ8", None),
    ],
)
def test_one_line_says_that_an_index_learns_from_few_passages(cloud, factory, advised, caplog, capfd):
    """And the index is faiss's own, to the last byte."""
    few_ND = cloud[1][:300]
    index = build_faiss_index(VectorBlocks.of(few_ND), IndexConfig(index=factory))
    assert "clustering" not in capfd.readouterr().err, "faiss says it once for each part, from C++"
    said = [f"index = {factory} learns from 300 passages; faiss advises at least {advised}"] if advised else []
    assert caplog.messages == said
    faiss = load_faiss()
    own = faiss.index_factory(WIDTH, factory, faiss.METRIC_INNER_PRODUCT)
    own.train(few_ND)
    own.add(few_ND)
    assert np.array_equal(faiss.serialize_index(index), faiss.serialize_index(own))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's list of mapped files")
@pytest.mark.parametrize("factory", FACTORIES)
def test_an_opened_index_is_a_mapped_file_that_finds_the_same(cloud, tmp_path: Path, factory: str):
    queries_QD, vectors_ND = cloud
    index = build_faiss_index(VectorBlocks.of(vectors_ND), IndexConfig(index=factory))
    (tmp_path / "index").mkdir()
    file = tmp_path / "index" / "passages.faiss"
    load_faiss().write_index(index, str(file))
    opened = open_faiss_index(tmp_path / "index")
    assert str(file) in Path("/proc/self/maps").read_text()
    for expected, found in zip(index.search(queries_QD, 9), opened.search(queries_QD, 9), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_compressed_search_ends_in_exact_scores_or_reads_its_codes_alone(vectors, out: Place, factory: str):
    """More candidates that are scored again find more; with none, the index is all that is searched."""
    given = with_index(vectors, out, IndexConfig(index=factory), SearchConfig(depth=DEPTH))
    recall, sizes = [], []
    for rescore in (0, 1, 8):
        result = search(SearchConfig(depth=DEPTH, index=factory, rescore=rescore), given, out / f"{rescore}")
        recall.append(result["recall"]["at_10"])
        sizes.append(result["bytes_per_passage"])
    assert recall == sorted(recall) and recall[-1] > 0.99
    assert sizes[0] == round(given["index"].result["bytes"] / 300, 2)
    stored = (given["passages"].place / "dense").size()
    assert sizes[1] == sizes[2] == pytest.approx(sizes[0] + stored / 300, abs=0.02)
    exact = ranked.read(given["exact"].place / "ranked" / "train.parquet").to_pydict()
    known = dict(zip(zip(exact["query_id"], exact["doc_id"], strict=True), exact["score"], strict=True))
    found = ranked.read(out / "8" / "ranked" / "train.parquet").to_pydict()
    pairs = zip(found["query_id"], found["doc_id"], found["score"], strict=True)
    assert all(known.get((query, document), score) == score for query, document, score in pairs)


def test_without_rescoring_the_scores_are_those_of_the_decoded_vectors(cloud):
    queries_QD, vectors_ND = cloud
    index = build_faiss_index(VectorBlocks.of(vectors_ND), IndexConfig(index="SQ8"))
    expected_QN = scores_of(queries_QD, index.reconstruct_n(0, ROWS))
    scores, rows = CodedShard(index, ids(ROWS)).search(queries_QD, 50)
    np.testing.assert_allclose(scores, -np.sort(-expected_QN, axis=1)[:, :50], rtol=1e-5)
    np.testing.assert_allclose(scores, np.take_along_axis(expected_QN, rows, axis=1), rtol=1e-5)
    assert np.abs(scores - np.take_along_axis(scores_of(queries_QD, vectors_ND), rows, axis=1)).max() > 1e-4
    few = build_faiss_index(VectorBlocks.of(vectors_ND), IndexConfig(index="IVF64,SQ8"))
    scores, rows = CodedShard(few, ids(ROWS)).search(queries_QD, ROWS)
    assert (rows == -1).any() and np.isneginf(scores[rows == -1]).all() and np.isfinite(scores[rows >= 0]).all()
    with pytest.raises(UserError, match="an index of 3000 vectors for 9 passages"):
        CodedShard(index, ids(9))
