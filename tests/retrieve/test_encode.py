import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve.batches import length_batches
from midmask.retrieve.blocks import passage_blocks, token_rows
from midmask.retrieve.encode import Encode, EncodeConfig, EncodeWorker, encode
from midmask.retrieve.models import load_base_model, open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.vocabulary import Vocabulary

PASSAGES = EncodeConfig(side="passages")
QUERIES = EncodeConfig(side="queries", split="dev")


@pytest.fixture
def encoder(inputs):
    folder = inputs["model"].place.local() / "model"
    return open_encoder(folder, Vocabulary.of(inputs["tokens"].place.local() / "tokenizer"), "passage")


@pytest.fixture
def encoding(inputs) -> Encoding:
    vocabulary = Vocabulary.of(inputs["tokens"].place.local() / "tokenizer")
    return Encoding(pad_id=vocabulary.pad_id, batch_tokens=500)


@pytest.fixture
def model(inputs):
    return load_base_model(inputs["model"].place.local() / "model").double()


def alone(model, row) -> np.ndarray:
    """One row without padding, in float64."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([row.tolist()])).last_hidden_state[0, 0].numpy()


def digests(folder: Place) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read()).hexdigest() for name in folder.names()}


def test_a_batch_gives_what_each_row_gives_alone_in_float64(inputs, encoder, encoding, model):
    rows = token_rows(passage_blocks(inputs["tokens"].place)[2].read(["ids"])["ids"])
    views = encode_rows(encoder, rows, encoding)
    np.testing.assert_allclose(views.dense_ND, np.stack([alone(model, row) for row in rows]), atol=1e-5)
    assert views.dense_ND.dtype == np.float32 and views.lexical is None


def test_a_shorter_length_keeps_the_first_tokens_and_the_last(encoder, encoding, inputs):
    rows = token_rows(passage_blocks(inputs["tokens"].place)[0].read(["ids"])["ids"])
    cut = [row if len(row) <= 16 else np.array([*row[:15], row[-1]]) for row in rows]
    assert any(len(row) > 16 for row in rows) and any(len(row) < 16 for row in rows)
    short = encode_rows(encoder, rows, Encoding(**{**vars(encoding), "max_length": 16}))
    np.testing.assert_array_equal(short.dense_ND, encode_rows(encoder, cut, encoding).dense_ND)


@pytest.mark.parametrize("config", [PASSAGES, QUERIES])
def test_bits_depend_neither_on_threads_nor_on_who_encodes_which_block(inputs, tmp_path: Path, config: EncodeConfig):
    one, two = (Place(str(tmp_path / name)) for name in ("one", "two"))
    torch.set_num_threads(3)
    encode(config, inputs, one)
    parts = [Encode(config.model_copy(update={"threads": threads}), inputs, two) for threads in (2, 1)]
    blocks = max(part.begin() for part in parts)
    for block in reversed(range(blocks)):
        assert EncodeWorker(parts[block % 2]).encode(block) == 1
    assert digests(one / "dense") == digests(two / "dense") and len((one / "dense").names()) == blocks
    assert torch.get_num_threads() == 3


def test_a_block_that_is_there_is_not_encoded_again(inputs, out):
    planted = np.zeros((40, 32), dtype=np.float32)
    with (out / "dense" / "00001.npy").writing() as stream:
        np.save(stream, planted)
    work = Encode(PASSAGES, inputs, out)
    worker = EncodeWorker(work)
    assert sum(worker.encode(block) for block in range(work.begin())) == len(work.blocks) - 1
    assert sum(worker.encode(block) for block in range(work.begin())) == 0
    np.testing.assert_array_equal(np.load(out.local() / "dense" / "00001.npy"), planted)


def test_a_vector_that_is_not_finite_names_its_passages(inputs, out, tmp_path: Path):
    from safetensors.numpy import load_file, save_file

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
        EncodeWorker(Encode(PASSAGES, {**inputs, "model": broken}, out)).encode(3)
    assert f"for {len(bad)} passages, among them {', '.join(map(repr, bad[:5]))};" in str(caught.value)
    assert (out / "dense").names() == []


def test_bf16_gives_nearly_the_same_vectors(encoder, encoding, inputs):
    rows = token_rows(passage_blocks(inputs["tokens"].place)[0].read(["ids"])["ids"])
    exact = encode_rows(encoder, rows, encoding).dense_ND
    fast = encode_rows(encoder, rows, replace(encoding, precision="bf16")).dense_ND
    cosine = (exact * fast).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(fast, axis=1)
    assert fast.dtype == np.float32 and cosine.min() > 0.999 and not np.array_equal(exact, fast)


def test_batches_hold_every_row_once_and_no_more_tokens_than_asked():
    lengths = np.random.default_rng(0).integers(2, 60, 200)
    batches = length_batches(lengths, 400)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    assert all(len(batch) * lengths[batch].max() <= 400 for batch in batches)
    assert [len(batch) for batch in length_batches(np.array([30, 2, 2]), 5)] == [2, 1], "a long row goes alone"
    assert length_batches(np.array([], dtype=np.int64), 5) == []
