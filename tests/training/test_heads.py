"""Continued pre-training: heads lie beside the model, and another method's run takes over those that fit."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.identity import override
from midmask.recipes import RECIPES
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
    second = run_here(going_on(tokens, tmp_path / "b", tmp_path / "a", retromae))
    assert taken(first) == taken(second) == (TENSORS, 0)
    one, other = trace_of(tmp_path / "a")[0], trace_of(tmp_path / "b")[0]
    assert one["rows"] == other["rows"] and one["loss"] == other["loss"]
    for name, tensor in heads_of(trained).items():
        assert torch.equal(tensor, heads_of(tmp_path / "a")[name]), name


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ({"name": "dupmae", "query_stream": "paper"}, (TENSORS, 0)),
        ({"name": "retromae", "decoding": "basic", "decoder_layers": 2}, (TENSORS, TENSORS)),
        ({"name": "mlm"}, (0, 0)),
    ],
)
def test_another_method_takes_what_fits(objective, expected, tokens, trained, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    result = run_here(going_on(tokens, tmp_path, trained, objective, learning_rate=1e-30))
    assert taken(result) == expected
    assert (f"heads: {expected[0]} tensors taken over, {expected[1]} fresh" in caplog.text) == (expected[0] > 0)
    if expected[0]:
        assert torch.equal(
            heads_of(tmp_path)["decoder.0.feed_in.weight"], heads_of(trained)["decoder.0.feed_in.weight"]
        )


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
