"""Averaging a middle-trained encoder with its start: each weight's mean in float64, and where it stands in a plan."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.errors import UserError
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.merge import MergeConfig, merge
from midmask.experiment.plan import plan
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.vocabulary import Vocabulary
from tests.support.encoders.tokenizers import write_tokenizer
from tests.support.unread import Unread


def artifact(folder: Path, tokenizer: Path, seed: int) -> Artifact:
    backbone = build_backbone(BackboneConfig(), Vocabulary.of(tokenizer), seed=seed)
    backbone.save(folder / "model", tokenizer)
    return Artifact(Place(str(folder)), {"fingerprint": folder.name})


def test_every_weight_of_the_encoder_is_the_mean_and_the_head_is_the_trained_one(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", "bert")
    inputs = {name: artifact(tmp_path / name, tokenizer, seed) for seed, name in enumerate(("initial", "start"))}
    merge(MergeConfig(start_share=0.25), inputs, Place(str(tmp_path / "out")))
    start, end, found = (
        safetensors.torch.load_file(tmp_path / name / "model" / "model.safetensors")
        for name in ("initial", "start", "out")
    )
    assert found.keys() == end.keys() and any(name.startswith("cls.") for name in found)
    for name, tensor in found.items():
        mean = 0.25 * start[name].double() + 0.75 * end[name].double()
        torch.testing.assert_close(tensor.double(), mean if name.startswith("bert.") else end[name].double())
    load_backbone(tmp_path / "out" / "model", dropout=0.0)


def test_fine_tuning_and_the_untuned_retriever_begin_with_it() -> None:
    steps = plan(apply_changes(RECIPES["retromae"](), {"backbone.name": "minilm", "merge": 0.5}), Unread())
    for step in (steps.stages[0], steps.untuned):
        assert step.inputs["start"].name == "merge"
        assert step.inputs["start"].inputs == {"start": steps.pretrained, "initial": steps.initial}
    steps = plan(apply_changes(RECIPES["retromae"](), {"backbone.name": "minilm"}), Unread())
    assert steps.stages[0].inputs["start"] == steps.pretrained


@pytest.mark.parametrize(("recipe", "backbone"), [("none", "minilm"), ("retromae", "tiny")])
def test_there_must_be_a_training_and_a_trained_start(recipe: str, backbone: str) -> None:
    with pytest.raises(UserError, match="needs a middle training that begins with pre-trained"):
        override(RECIPES[recipe](), {"backbone.name": backbone, "merge": 0.5})
