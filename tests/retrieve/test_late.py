"""Late interaction as it is encoded, stored and searched, against loops over tokens in float64."""

from collections.abc import Iterator

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers import AutoModel

from midmask.artifact import Artifact, Place
from midmask.encoders.representation import Representation
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION
from midmask.retrieve.bm25 import Bm25Config
from midmask.retrieve.coded_tokens import CodedTokens, read_coded
from midmask.retrieve.search import Search, SearchConfig, SearchWorker, search
from tests.support.retrieve.bm25 import ranked_by_bm25
from tests.support.retrieve.collection import encoded, made, write_bi_encoder

WIDTH, DEPTH, POOL = 24, 10, 30
Pair = tuple[str, str]


@pytest.fixture(scope="module")
def vectors(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    root = tmp_path_factory.mktemp("late")
    model = write_bi_encoder(Place(str(root / "m")), inputs["tokens"], Representation(dense=None, tokens=WIDTH))
    return {**encoded({**inputs, "model": model}, Place(str(root))), "model": model}


@pytest.fixture(scope="module")
def bm25(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    config = Bm25Config(splits=("train",), depth=POOL, judged="relevant")
    return made(ranked_by_bm25, config, inputs, Place(str(tmp_path_factory.mktemp("bm25"))))


def rows_of(vectors: dict[str, Artifact], name: str) -> Iterator[tuple[str, list[int]]]:
    """Ids and token rows of the texts, in order."""
    if name == "queries":
        files, column = [vectors["queries"].place / SELECTION], "query_id"
    else:
        folder = vectors["tokens"].place / "passages"
        files, column = [folder / file for file in folder.names()], "doc_id"
    for file in files:
        for row in pq.read_table(file.uri, columns=[column, "ids"]).to_pylist():
            yield row[column], row["ids"]


def stored(vectors: dict[str, Artifact], name: str) -> dict[str, np.ndarray]:
    """Id of each text -> its token vectors as the files have them, float64 [L, D]."""
    folder = vectors[name].place / "late"
    texts: list[np.ndarray] = []
    for block in sorted({file.split(".")[0] for file in folder.names()}):
        coded = read_coded(folder, block)
        values = coded.records_T["codes"].astype(float) * coded.records_T["scale"].astype(float)[:, None]
        texts += np.split(values, np.cumsum(coded.lengths_N)[:-1])
    return dict(zip((own for own, _ in rows_of(vectors, name)), texts, strict=True))


@pytest.fixture(scope="module")
def brute(vectors: dict[str, Artifact]) -> dict[Pair, float]:
    """MaxSim of every query and passage over what is stored, token by token."""
    queries, passages = stored(vectors, "queries"), stored(vectors, "passages")
    return {
        (query, passage): sum(float((others @ token).max()) for token in tokens)
        for query, tokens in queries.items()
        for passage, others in passages.items()
    }


def assert_ranked(out: Place, brute: dict[Pair, float], candidates: dict[str, list[str]]) -> None:
    """Each query's list is its best candidates by a plain sort of their scores; ties go by id."""
    listed = ranked.read(out / "ranked" / "train.parquet").to_pylist()
    for query, own in candidates.items():
        found = [row for row in listed if row["query_id"] == query]
        order = sorted(own, key=lambda passage: (-np.float32(brute[query, passage]), passage))[:DEPTH]
        assert [row["doc_id"] for row in found] == order, query
        np.testing.assert_allclose([row["score"] for row in found], [brute[query, doc] for doc in order], rtol=3e-7)
    assert {row["query_id"] for row in listed} <= set(candidates)


def test_stored_vectors_are_those_of_the_model(vectors: dict[str, Artifact]) -> None:
    folder = vectors["model"].place.local() / "model"
    model = AutoModel.from_pretrained(folder).double().eval()
    projection = safetensors.torch.load_file(folder / "2_Dense" / "model.safetensors")["linear.weight"].double()
    for name in ("queries", "passages"):
        texts = stored(vectors, name)
        for text, ids in list(rows_of(vectors, name))[:10]:
            with torch.no_grad():
                states = model(input_ids=torch.tensor([ids])).last_hidden_state[0] @ projection.t()
            unit = (states / states.norm(dim=1, keepdim=True)).numpy()
            assert texts[text].shape == unit.shape == (len(ids), WIDTH)
            half = np.abs(unit).max(axis=1, keepdims=True) / 127 / 2
            assert (np.abs(texts[text] - unit) <= half * (1 + 1e-4) + 1e-6).all()


def test_all_passages_are_ranked_as_by_brute_force(vectors, brute, out) -> None:
    search(SearchConfig(depth=DEPTH), vectors, out)
    passages = [own for own, _ in rows_of(vectors, "passages")]
    assert_ranked(out, brute, {own: passages for own, _ in rows_of(vectors, "queries")})


def test_a_pool_is_ranked_as_by_a_loop_over_its_candidates_in_any_shards(vectors, bm25, brute, tmp_path) -> None:
    lists = ranked.read(bm25.place / "ranked" / "train.parquet").to_pylist()
    candidates: dict[str, list[str]] = {own: [] for own, _ in rows_of(vectors, "queries")}
    for row in lists:
        candidates[row["query_id"]].append(row["doc_id"])
    files = []
    for count in (1, 3):
        work = Search(
            SearchConfig(depth=DEPTH, threads=count), {**vectors, "candidates": bm25}, Place(f"{tmp_path}/{count}")
        )
        blocks, shards = work.begin(), work.shards(count)
        assert len(shards) == count
        for shard in shards:
            worker = SearchWorker(work, shard)
            assert [worker.search(block) for block in range(blocks)] == [1] * blocks
        work.finish(shards, range(blocks))
        assert_ranked(work.out, brute, candidates)
        files.append((work.out / "ranked" / "train.parquet").read())
    assert files[0] == files[1]


coded_vectors = arrays(np.float32, st.tuples(st.integers(1, 9), st.just(7)), elements=st.floats(-1, 1, width=32))


@given(coded_vectors)
@settings(max_examples=80)
def test_codes_use_their_whole_range_and_are_off_by_half_a_scale_at_most(vectors_TD: np.ndarray) -> None:
    coded = CodedTokens.code(vectors_TD, np.array([len(vectors_TD)], np.int32))
    codes, scale = coded.records_T["codes"].astype(float), coded.records_T["scale"].astype(float)[:, None]
    largest = np.abs(vectors_TD).max(axis=1)
    usual = largest > 1e-30  # smaller ones have no exact reciprocal in float32
    assert (np.abs(codes).max(axis=1)[usual] == 127).all()
    assert (np.abs(codes * scale - vectors_TD) <= 0.5001 * scale + 1e-30).all()
