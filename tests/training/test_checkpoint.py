"""Heads and experts lie beside the model, the next run takes what fits; a fresh MLM head's bias begins with counts."""

import logging
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray

from midmask.core.config import override
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.encoders.experts import FILE
from midmask.encoders.representation import Side
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from midmask.retrieve.blocks import token_rows
from midmask.retrieve.encode import Encode, EncodeConfig
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from midmask.training.setup import unigram_log_probabilities
from tests.support.benchmark.tiny import write_collection
from tests.support.training.fixtures import artifacts
from tests.support.training.runs import Stopped, assert_same_run, run_here, setup_of, spec_of, trace_of

TENSORS = 16
"""Of RetroMAE's one decoder layer: six linear layers and two norms, weight and bias each."""


@pytest.fixture(scope="module")
def trained(tokens, tmp_path_factory) -> Path:
    """RetroMAE after 8 steps, its decoder away from its fresh weights."""
    out = tmp_path_factory.mktemp("trained")
    result = run_here(spec_of(tokens, out, objective={"name": "retromae"}, train={"steps": 8}))
    assert (result["heads_taken"], result["heads_fresh"]) == (0, TENSORS)
    return out


def going_on(tokens: Place, out: Path, folder: Path, objective: dict[str, Any], **train: Any) -> dict[str, Any]:
    backbone = {"name": str(folder / "model"), "dropout": 0.0}
    return spec_of(tokens, out, objective=objective, backbone=backbone, train={"steps": 3, **train})


def heads_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model" / "heads.safetensors")


def taken(result: dict[str, Any]) -> tuple[int, int]:
    return result["heads_taken"], result["heads_fresh"]


def test_going_on_with_the_same_method_begins_where_it_ended(tokens, trained, tmp_path):
    """A learning rate of next to nothing: the first losses of a run that goes on, twice, are those of the end."""
    retromae = {"name": "retromae"}
    first = run_here(going_on(tokens, tmp_path / "a", trained, retromae, learning_rate=1e-30))
    assert taken(first) == taken(run_here(going_on(tokens, tmp_path / "b", tmp_path / "a", retromae))) == (TENSORS, 0)
    one, other = trace_of(tmp_path / "a")[0], trace_of(tmp_path / "b")[0]
    assert one["rows"] == other["rows"] and one["loss"] == other["loss"]
    for name, tensor in heads_of(trained).items():
        assert torch.equal(tensor, heads_of(tmp_path / "a")[name]), name


@pytest.mark.parametrize(
    ("objective", "expected"),
    [({"name": "dupmae", "query_stream": "paper"}, (TENSORS, 0)), ({"name": "mlm"}, (0, 0)),
     ({"name": "retromae", "decoding": "basic", "decoder_layers": 2}, (TENSORS, TENSORS))],
)  # fmt: skip
def test_another_method_takes_what_fits(objective, expected, tokens, trained, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    assert taken(run_here(going_on(tokens, tmp_path, trained, objective, learning_rate=1e-30))) == expected
    assert (f"heads: {expected[0]} tensors taken over, {expected[1]} fresh" in caplog.text) == (expected[0] > 0)
    if expected[0]:
        one, other = (heads_of(folder)["decoder.0.feed_in.weight"] for folder in (tmp_path, trained))
        assert torch.equal(one, other)


def test_heads_that_are_missing_or_of_another_width_or_not_wanted_are_fresh(tokens, trained, tmp_path):
    retromae, folder = {"name": "retromae"}, tmp_path / "mini"
    run_here(spec_of(tokens, folder, backbone={"name": "mini"}, train={"steps": 1}))
    assert not (folder / "model" / "heads.safetensors").exists()
    assert taken(run_here(going_on(tokens, tmp_path / "none", folder, retromae, steps=1))) == (0, TENSORS)
    shutil.copy(trained / "model" / "heads.safetensors", folder / "model")
    assert taken(run_here(going_on(tokens, tmp_path / "wide", folder, retromae, steps=1))) == (0, TENSORS)
    (folder / "model" / "heads.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"heads.safetensors: no heads can be read there"):
        run_here(going_on(tokens, tmp_path / "half", folder, retromae))
    backbone = {"name": str(trained / "model"), "fresh": True}
    spec = spec_of(tokens, tmp_path / "fresh", objective=retromae, backbone=backbone, train={"steps": 1})
    assert taken(run_here(spec)) == (0, TENSORS)


def test_heads_are_part_of_a_folders_identity(trained, tmp_path):
    folder = shutil.copytree(trained / "model", tmp_path / "model")
    places = {"corpus.name": write_collection(tmp_path / "tiny"), "backbone.name": str(folder)}
    recipe = override(RECIPES["retromae"](), places)
    before = plan(recipe).pretrained
    safetensors.torch.save_file({"decoder.0.query.bias": torch.zeros(128)}, folder / "heads.safetensors")
    assert before.fingerprint != plan(recipe).pretrained.fingerprint


def test_shares_are_those_of_the_passages_without_special_tokens(tokens):
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())
    counts: Counter[int] = Counter()
    for name in (tokens / "passages").names():
        for row in pq.read_table((tokens / "passages" / name).uri)["ids"].to_pylist():
            counts.update(row)
    special = set(vocabulary.special_V.nonzero().flatten().tolist())
    expected = [1 if token in special else 1 + counts[token] for token in range(vocabulary.size)]
    found = unigram_log_probabilities(tokens, vocabulary)
    assert found.dtype == torch.float32 and found.exp().sum().item() == pytest.approx(1, abs=1e-5)
    for token, count in enumerate(expected):
        assert found[token].item() == pytest.approx(math.log(count / sum(expected)), rel=1e-5)


@pytest.mark.parametrize("bias", ["zero", "unigram"])
def test_only_a_head_that_was_missing_begins_with_them(bias, tokens, tmp_path):
    tokenizer, without_head = (tokens / "tokenizer").local(), str(tmp_path)
    vocabulary = Vocabulary.of(tokenizer)
    build_backbone(BackboneConfig(), vocabulary, seed=1).encoder.save_pretrained(tmp_path)
    load_tokenizer(tokenizer).save_pretrained(tmp_path)
    for name in (without_head, "tiny"):
        backbone, _, _ = setup_of(spec_of(tokens, tmp_path, backbone={"name": name, "head_bias": bias})).build()
        from_counts = name == without_head and bias == "unigram"
        expected = unigram_log_probabilities(tokens, vocabulary) if from_counts else torch.zeros(vocabulary.size)
        assert torch.equal(backbone.output_bias_V.detach(), expected)


SPLIT = {"name": "tiny", "dropout": 0.0, "experts": "ffn"}


def pretraining(tokens: Place, queries: Place, out: Path, **changes: Any) -> dict[str, Any]:
    train = {"steps": 6, "checkpoint_every": 3, "learning_rate": 3e-4, "batch_size": 15, **changes.pop("train", {})}
    base = {"objective": {"name": "cotmote"}, "backbone": SPLIT, "pseudo_queries": str(queries)}
    return spec_of(tokens, out, train=train, **{**base, **changes})


@pytest.fixture(scope="module")
def whole(tokens, pseudo_queries, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_here(pretraining(tokens, pseudo_queries, folder))
    return folder


def experts_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model" / FILE)


def test_micro_batches_and_a_kill_change_nothing(tokens, pseudo_queries, whole, tmp_path):
    run_here(pretraining(tokens, pseudo_queries, tmp_path / "micro", train={"micro_batch": 4}))
    with pytest.raises(Stopped):
        run_here(pretraining(tokens, pseudo_queries, tmp_path / "killed"), stop_at=5)
    run_here(pretraining(tokens, pseudo_queries, tmp_path / "killed"))
    for name in ("micro", "killed"):
        assert_same_run(trace_of(tmp_path / name), trace_of(whole), within=1e-4)
    same, killed = experts_of(whole), experts_of(tmp_path / "killed")
    assert all(torch.allclose(killed[name], tensor, atol=1e-6) for name, tensor in same.items())


def test_queries_are_trained_saved_and_searched_in_their_own_expert(tokens, corpus, whole, tmp_path):
    train = {"steps": 6, "learning_rate": 3e-4, "batch_size": 15}
    tuned = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
    backbone = {**SPLIT, "name": "start"}
    run_here(spec_of(tokens, tmp_path / "tuned", **tuned, train=train, backbone=backbone, start=str(whole)))
    before, after = experts_of(whole), experts_of(tmp_path / "tuned")
    assert before.keys() == after.keys() and not any(torch.equal(before[name], after[name]) for name in before)
    passages = safetensors.torch.load_file(tmp_path / "tuned" / "model" / "model.safetensors")
    assert not any(torch.equal(passages[name], tensor) for name, tensor in after.items())

    model = Place(str(tmp_path / "tuned" / "model"))
    inputs = artifacts(corpus, model=model, tokens=tokens)
    configs = {"query": EncodeConfig(side="queries", split="dev"), "passage": EncodeConfig(side="passages")}
    for side, other in (("query", "passage"), ("passage", "query")):
        work = Encode(configs[side], inputs, Place(str(tmp_path / side)))
        assert work.begin() and work.encode(0) == 1
        found, rows = np.load(tmp_path / side / "dense" / "00000.npy"), token_rows(work.blocks[0].read(["ids"])["ids"])
        np.testing.assert_allclose(found, vectors(model, rows, side), atol=1e-5)
        assert np.abs(found - vectors(model, rows, other)).max() > 1e-3


@torch.no_grad()
def vectors(model: Place, rows: list[NDArray[np.int32]], side: Side) -> NDArray[np.float32]:
    """[CLS] of each row alone."""
    backbone = load_backbone(Path(model.uri), dropout=0.0).eval()
    texts = (torch.from_numpy(row.astype(np.int64))[None] for row in rows)
    return torch.stack([backbone.hidden(ids, torch.tensor([ids.shape[1]]), side)[0, 0] for ids in texts]).numpy()
