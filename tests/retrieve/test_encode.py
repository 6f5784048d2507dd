import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve.encode import (
    Encoding,
    _batches,
    blocks_of,
    encode_passages,
    encode_queries,
    encode_rows,
    load_encoder,
    read_block,
    token_rows,
)
from midmask.vocabulary import Vocabulary


@pytest.fixture
def encoder(inputs):
    return load_encoder(inputs["model"].place.local() / "model")


@pytest.fixture
def encoding(inputs) -> Encoding:
    vocabulary = Vocabulary.of(inputs["tokens"].place.local() / "tokenizer")
    return Encoding(pad_id=vocabulary.pad_id, normalise=False, batch_tokens=500)


def alone(encoder, row, *, normalise: bool) -> np.ndarray:
    """One row without padding, in float64."""
    with torch.inference_mode():
        vector = encoder.double()(input_ids=torch.tensor([row.tolist()])).last_hidden_state[0, 0].numpy()
    encoder.float()
    return vector / np.sqrt((vector**2).sum()) if normalise else vector


def digests(folder: Place) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read()).hexdigest() for name in folder.names()}


def test_blocks_are_the_row_groups_of_all_shards_in_order(inputs):
    tokens = inputs["tokens"].place
    blocks = blocks_of(tokens)
    ids = [name for block in blocks for name in read_block(tokens, block)["doc_id"].to_pylist()]
    whole = [pq.read_table((tokens / "passages" / name).uri) for name in (tokens / "passages").names()]
    assert ids == pa.concat_tables(whole)["doc_id"].to_pylist()
    assert [(block.start, block.rows) for block in blocks[:4]] == [(0, 40), (40, 40), (80, 40), (120, 40)]
    assert blocks[-1].start + blocks[-1].rows == len(ids) == 300


@pytest.mark.parametrize("normalise", [False, True])
def test_a_batch_gives_what_each_row_gives_alone_in_float64(inputs, encoder, encoding, normalise):
    rows = token_rows(read_block(inputs["tokens"].place, blocks_of(inputs["tokens"].place)[2])["ids"])
    vectors = encode_rows(encoder, rows, Encoding(**{**vars(encoding), "normalise": normalise}))
    expected = np.stack([alone(encoder, row, normalise=normalise) for row in rows])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert vectors.dtype == np.float32


def test_a_shorter_length_keeps_the_first_tokens_and_the_last(encoder, encoding, inputs):
    rows = token_rows(read_block(inputs["tokens"].place, blocks_of(inputs["tokens"].place)[0])["ids"])
    cut = [row if len(row) <= 16 else np.array([*row[:15], row[-1]]) for row in rows]
    assert any(len(row) > 16 for row in rows) and any(len(row) < 16 for row in rows)
    short = encode_rows(encoder, rows, Encoding(**{**vars(encoding), "max_length": 16}))
    np.testing.assert_array_equal(short, encode_rows(encoder, cut, encoding))


def test_bits_depend_neither_on_threads_nor_on_who_encodes_which_block(inputs, encoder, encoding, tmp_path: Path):
    tokens = inputs["tokens"]
    blocks = blocks_of(tokens.place)
    before = torch.get_num_threads()
    encode_passages(encoder, tokens, Place(str(tmp_path / "one")), encoding)
    threads = Encoding(**{**vars(encoding), "threads": 2})
    for part in (blocks[5:], blocks[2:5], blocks[:2]):
        encode_passages(encoder, tokens, Place(str(tmp_path / "two")), threads, blocks=part)
    one, two = (digests(Place(str(tmp_path / name)) / "embeddings") for name in ("one", "two"))
    assert one == two and len(one) == len(blocks)
    assert torch.get_num_threads() == before


def test_a_block_that_is_there_is_not_encoded_again(inputs, encoder, encoding, tmp_path: Path):
    out = Place(str(tmp_path))
    planted = np.zeros((40, 32), dtype=np.float32)
    with (out / "embeddings" / "00001.npy").writing() as stream:
        np.save(stream, planted)
    count = len(blocks_of(inputs["tokens"].place))
    assert encode_passages(encoder, inputs["tokens"], out, encoding) == count - 1
    assert encode_passages(encoder, inputs["tokens"], out, encoding) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "embeddings" / "00001.npy"), planted)


def test_batches_hold_every_row_once_and_no_more_tokens_than_asked():
    lengths = np.random.default_rng(0).integers(2, 60, 200)
    batches = _batches(lengths, 400)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    assert all(len(batch) * lengths[batch].max() <= 400 for batch in batches)
    assert [len(batch) for batch in _batches(np.array([30, 2, 2]), 5)] == [2, 1], "a long row goes alone"
    assert _batches(np.array([], dtype=np.int64), 5) == []


def test_a_vector_that_is_not_finite_names_its_passages(inputs, encoder, encoding, tmp_path: Path):
    tokens = inputs["tokens"]
    table = read_block(tokens.place, blocks_of(tokens.place)[3])
    rows = token_rows(table["ids"])
    word = int(rows[7][1])
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight[word] = float("nan")
    bad = [name for name, row in zip(table["doc_id"].to_pylist(), rows, strict=True) if word in row]
    with pytest.raises(UserError) as caught:
        encode_passages(encoder, tokens, Place(str(tmp_path)), encoding, blocks=blocks_of(tokens.place)[3:4])
    assert f"for {len(bad)} passages, among them {', '.join(map(repr, bad[:5]))};" in str(caught.value)
    assert Place(str(tmp_path / "embeddings")).names() == []


def test_queries_come_in_the_order_of_their_table(inputs, encoder, encoding):
    queries = pq.read_table((inputs["tokens"].place / "queries.parquet").uri)
    names, vectors = encode_queries(encoder, queries, encoding)
    assert names == queries["query_id"].to_pylist()
    row = pc.index(queries["query_id"], "q5").as_py()
    expected = alone(encoder, token_rows(queries["ids"])[row], normalise=False)
    np.testing.assert_allclose(vectors[row], expected, atol=1e-5)


def test_a_folder_without_a_model_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match=r"^encoder .*no model can be read there") as caught:
        load_encoder(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_model_is_read_without_unpickling(inputs: dict[str, Artifact]):
    names = (inputs["model"].place / "model").names()
    assert "model.safetensors" in names and not any(name.endswith(".bin") for name in names)
