"""Heads lie beside the model, another method's run takes those that fit; a fresh MLM head's bias begins with counts."""

import logging
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from midmask.artifact import Place
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.identity import override
from midmask.objectives import PRETRAINING
from midmask.recipes import RECIPES
from midmask.training.examples import PassageExamples
from midmask.training.optimiser import TrainConfig
from midmask.training.setup import PretrainSetup
from midmask.training.unigrams import unigram_log_probabilities
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.benchmark.tiny import write_collection
from tests.support.training.runs import run_here, spec_of, trace_of

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
        setup = PretrainSetup(
            objective=PRETRAINING["mlm"].Config(),
            train=TrainConfig(steps=1, batch_size=2, learning_rate=1e-3),
            backbone=BackboneConfig(name=name, head_bias=bias),
            tokens=tokens,
            rows=PassageExamples(tokens, "tokens"),
        )
        backbone, _, _ = setup.build()
        from_counts = name == without_head and bias == "unigram"
        expected = unigram_log_probabilities(tokens, vocabulary) if from_counts else torch.zeros(vocabulary.size)
        assert torch.equal(backbone.output_bias_V.detach(), expected)
