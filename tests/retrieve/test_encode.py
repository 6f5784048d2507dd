"""What is encoded, by whoever, for every view, and late interaction: against transformers and loops in float64."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM

from midmask.encoders.experts import put_query_expert
from midmask.encoders.representation import Representation, Side
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION, passage_blocks, token_rows
from midmask.retrieve.bm25.search import Bm25Config
from midmask.retrieve.encode import Encode, EncodeConfig, encode
from midmask.retrieve.search import Search, SearchConfig, search
from midmask.retrieve.text_encoder import length_batches, open_encoder
from midmask.retrieve.units import SearchWorker
from midmask.retrieve.views import CodedTokens, read_coded, read_views
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from tests.support.corpora.collections import contents
from tests.support.retrieve.collection import encoded, made, ranked_by_bm25, write_bi_encoder

PASSAGES = EncodeConfig(side="passages")
QUERIES = EncodeConfig(side="queries", split="dev")


@pytest.fixture
def encoder(inputs):
    folder = inputs["model"].place.local() / "model"
    opened = open_encoder(folder, Vocabulary.of(inputs["tokens"].place.local() / "tokenizer"), "passage")
    return replace(opened, batch_tokens=500)


def test_a_shorter_length_keeps_the_first_tokens_and_the_last(encoder, inputs):
    rows = token_rows(passage_blocks(inputs["tokens"].place)[0].read(["ids"])["ids"])
    cut = [row if len(row) <= 16 else np.array([*row[:15], row[-1]]) for row in rows]
    assert any(len(row) > 16 for row in rows) and any(len(row) < 16 for row in rows)
    short = replace(encoder, max_length=16).encode(rows)
    np.testing.assert_array_equal(short.dense_ND, encoder.encode(cut).dense_ND)


@pytest.mark.parametrize("config", [PASSAGES, QUERIES])
def test_bits_depend_neither_on_threads_nor_on_who_encodes_which_block(inputs, tmp_path: Path, config: EncodeConfig):
    one, two = (Place(str(tmp_path / name)) for name in ("one", "two"))
    torch.set_num_threads(3)
    encode(config, inputs, one)
    parts = [Encode(config.model_copy(update={"threads": threads}), inputs, two) for threads in (2, 1)]
    blocks = max(part.begin() for part in parts)
    for block in reversed(range(blocks)):
        assert parts[block % 2].encode(block) == 1
    first, second = (contents(tmp_path / name / "dense") for name in ("one", "two"))
    assert first == second and len(first) == blocks
    assert torch.get_num_threads() == 3


def test_a_block_that_is_there_is_not_encoded_again(inputs, out):
    planted = np.zeros((40, 32), dtype=np.float32)
    with (out / "dense" / "00001.npy").writing() as stream:
        np.save(stream, planted)
    work = Encode(PASSAGES, inputs, out)
    assert sum(work.encode(block) for block in range(work.begin())) == len(work.blocks) - 1
    assert sum(work.encode(block) for block in range(work.begin())) == 0
    np.testing.assert_array_equal(np.load(out.local() / "dense" / "00001.npy"), planted)


def test_a_vector_that_is_not_finite_names_its_passages(inputs, out, tmp_path: Path):
    table = passage_blocks(inputs["tokens"].place)[3].read(["doc_id", "ids"])
    rows = token_rows(table["ids"])
    word = int(rows[7][1])
    shutil.copytree(inputs["model"].place.local() / "model", tmp_path / "broken")
    weights = load_file(tmp_path / "broken" / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][word] = np.float32(3e38)
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    broken = Artifact(Place(str(tmp_path / "broken")), {"fingerprint": "broken"})
    bad = [name for name, row in zip(table["doc_id"].to_pylist(), rows, strict=True) if word in row]
    with pytest.raises(UserError) as caught:
        Encode(PASSAGES, {**inputs, "model": broken}, out).encode(3)
    said = str(caught.value)
    named = said.partition("of the passages ")[2].partition(";")[0].replace("'", "").split(", ")
    assert "not finite" in said and set(named) <= set(bad)
    assert (out / "dense").names() == []


def test_bf16_gives_nearly_the_same_vectors(encoder, inputs):
    rows = token_rows(passage_blocks(inputs["tokens"].place)[0].read(["ids"])["ids"])
    exact = encoder.encode(rows).dense_ND
    fast = replace(encoder, precision="bf16").encode(rows).dense_ND
    cosine = (exact * fast).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(fast, axis=1)
    assert fast.dtype == np.float32 and cosine.min() > 0.999 and not np.array_equal(exact, fast)


def test_batches_hold_every_row_once_and_no_more_tokens_than_asked():
    lengths = np.random.default_rng(0).integers(2, 60, 200)
    batches = length_batches(lengths, 400)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    assert all(len(batch) * lengths[batch].max() <= 400 for batch in batches)
    assert [len(batch) for batch in length_batches(np.array([30, 2, 2]), 5)] == [2, 1], "a long row goes alone"
    assert length_batches(np.array([], dtype=np.int64), 5) == []


KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "cls": ("dense", {}, {}),
    "mean, projected": ("dense", {"dense": "mean", "width": 12, "normalise": True}, {}),
    "splade": ("lexical", {"dense": None, "lexical": "splade", "specials": False, "passage_terms": 20}, {}),
    "logits": ("hybrid", {"width": 16, "lexical": "logits", "passage_terms": 24}, {}),
    "experts": ("hybrid", {"lexical": "splade", "query_terms": 6}, {"experts": "ffn"}),
}
"""How its lists are called, representation, and backbone of each."""


class Reference:
    """The views of one text in float64, written from the definitions."""

    def __init__(self, folder: Path, representation: Representation, vocabulary: Vocabulary, side: Side) -> None:
        self.representation, self.side = representation, side
        self.special_V = vocabulary.special_V.numpy()
        if representation.lexical is None:  # of a dense model the encoder alone is kept
            self.model = AutoModel.from_pretrained(folder)
        else:
            self.model = AutoModelForMaskedLM.from_pretrained(folder)
        if side == "query":
            put_query_expert(self.model.base_model, folder)
        self.model.double().eval()
        file = folder / "2_Dense" / "model.safetensors"
        self.projection = safetensors.torch.load_file(file)["linear.weight"].double() if file.exists() else None

    @torch.no_grad()
    def __call__(self, row: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Dense [D] and lexical [V]; zeros of length 1 where a view is missing."""
        wanted = self.representation
        output = self.model(input_ids=torch.tensor([row]), output_hidden_states=True)
        hidden_LD = output.hidden_states[-1][0]
        dense_D, lexical_V = torch.zeros(1), np.zeros(1)
        if wanted.dense is not None:
            dense_D = hidden_LD[0] if wanted.dense == "cls" else hidden_LD.mean(0)
            dense_D = dense_D if self.projection is None else self.projection @ dense_D
            dense_D = dense_D / dense_D.norm() if wanted.normalise else dense_D
        if wanted.lexical is not None:
            pooled = [at for at, word in enumerate(row) if wanted.specials or not self.special_V[word]]
            lexical_V = output.logits[0][pooled].max(0).values.numpy()
            lexical_V = np.log1p(np.maximum(lexical_V, 0)) if wanted.lexical == "splade" else lexical_V
            terms = wanted.terms(self.side) or len(lexical_V)
            least = np.sort(lexical_V)[-terms]
            lexical_V = np.where(lexical_V >= least, lexical_V, 0)
        return dense_D.numpy(), lexical_V


@pytest.mark.parametrize("kind", KINDS)
def test_views_and_ranking_are_those_of_the_definitions(inputs, tmp_path: Path, kind: str):
    source, chosen, backbone = KINDS[kind]
    representation = Representation(**chosen)
    model = write_bi_encoder(Place(str(tmp_path / "m")), inputs["tokens"], representation, **backbone)
    given = {**inputs, "model": model}
    sides = {"passages": PASSAGES, "queries": QUERIES}
    vectors = {name: made(encode, config, given, Place(str(tmp_path / name))) for name, config in sides.items()}
    result = search(SearchConfig(depth=15), {**vectors, "tokens": inputs["tokens"]}, Place(str(tmp_path / "found")))
    assert result["source"].split("-")[0] == source

    vocabulary = Vocabulary.of(inputs["tokens"].place.local() / "tokenizer")
    folder = tmp_path / "m" / "model"
    tokens = inputs["tokens"].place
    files = [pq.read_table((tokens / "passages" / name).uri) for name in (tokens / "passages").names()]
    tables = {"passages": pa.concat_tables(files), "queries": pq.read_table(tmp_path / "queries" / "selection.parquet")}
    truth = {}
    for name, side in (("passages", "passage"), ("queries", "query")):
        reference = Reference(folder, representation, vocabulary, side)
        rows = [reference(row) for row in tables[name]["ids"].to_pylist()]
        truth[name] = (np.stack([dense for dense, _ in rows]), np.stack([lexical for _, lexical in rows]))
        views = read_views(vectors[name].place, "00000", vectors[name].result["views"])
        if views.dense_ND is not None:
            np.testing.assert_allclose(views.dense_ND, truth[name][0][: len(views.dense_ND)], atol=2e-5)
        if views.lexical is not None:
            found = views.lexical.toarray()
            np.testing.assert_allclose(found, truth[name][1][: len(found)], atol=2e-5)
    scores_QN = sum(left @ right.T for left, right in zip(truth["queries"], truth["passages"], strict=True))
    listed = ranked.read(Place(str(tmp_path / "found" / "ranked" / "dev.parquet"))).to_pylist()
    doc_ids = tables["passages"]["doc_id"].to_pylist()
    for query, query_id in enumerate(tables["queries"]["query_id"].to_pylist()):
        own = [row for row in listed if row["query_id"] == query_id]
        np.testing.assert_allclose([row["score"] for row in own], np.sort(scores_QN[query])[::-1][:15], atol=2e-3)
        of_doc = dict(zip(doc_ids, scores_QN[query].tolist(), strict=True))
        np.testing.assert_allclose([row["score"] for row in own], [of_doc[row["doc_id"]] for row in own], atol=2e-3)


def test_fewer_words_are_searched_without_encoding_again(inputs, tmp_path: Path):
    lists: list[tuple[bytes, float]] = []
    for kept, cut in (({"passage_terms": 8, "query_terms": 8}, {}), ({}, {"query_terms": 8, "passage_terms": 8})):
        root, sides = Place(str(tmp_path / f"{len(lists)}")), {"passages": PASSAGES, "queries": QUERIES}
        representation = Representation(lexical="splade", **kept)
        given = {**inputs, "model": write_bi_encoder(root / "m", inputs["tokens"], representation)}
        vectors = {name: made(encode, side, given, root / name) for name, side in sides.items()}
        found = search(SearchConfig(depth=9, **cut), {**vectors, "tokens": inputs["tokens"]}, root / "found")
        lists.append(((root / "found" / "ranked" / "dev.parquet").read(), found["bytes_per_passage"]))
        encoded_bytes = vectors["passages"].result["bytes_per_passage"]
    assert lists[0] == lists[1] and lists[1][1] < encoded_bytes
    only = SearchConfig(depth=9, views="dense")
    found = search(only, {**vectors, "tokens": inputs["tokens"]}, root / "dense")
    assert found["bytes_per_passage"] == round((vectors["passages"].place / "dense").size() / 300, 2)
    with pytest.raises(UserError, match=r"query_terms = 8: no lexical view is searched"):
        config = SearchConfig(depth=9, query_terms=8, views="dense")
        search(config, {**vectors, "tokens": inputs["tokens"]}, Place(str(tmp_path / "none")))


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
        config = SearchConfig(depth=DEPTH, threads=count)
        work = Search(config, {**vectors, "candidates": bm25}, Place(f"{tmp_path}/{count}"))
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
