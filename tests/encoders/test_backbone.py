"""Sizes, seeds and refusals of backbones; what `precision = auto` means."""

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from midmask.encoders.backbone import SIZES, Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.encoders.precision import SWITCH, autocast_type, processor_precision
from midmask.errors import UserError
from midmask.experiment.plan import Plan, plan
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.vocabulary import Vocabulary
from tests.support.encoders.bf16 import needs_bf16
from tests.support.unread import Unread

IDS = torch.tensor([[2, 6, 7, 20, 8, 3, 0, 0], [2, 9, 10, 11, 12, 13, 14, 3], [2, 6, 3, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([6, 8, 3])


def loaded(folder: Path) -> Backbone:
    return load_backbone(folder, dropout=0.0).eval()


def test_dropout_is_that_of_the_config_not_of_the_folder(model_folder: Path) -> None:
    def twice(dropout: float) -> list[Tensor]:
        backbone = load_backbone(model_folder, dropout=dropout).train()
        return [backbone.hidden(IDS, LENGTHS).detach() for _ in range(2)]

    assert torch.equal(*twice(0.0)) and not torch.equal(*twice(0.5))


@pytest.mark.parametrize("name", ["tiny", "mini"])
def test_sizes_from_scratch_have_their_shape_and_tie_the_head(name: str, vocabulary: Vocabulary) -> None:
    backbone = build_backbone(BackboneConfig(name=name), vocabulary, seed=0)
    layers, width = SIZES[name]
    assert (backbone.width, backbone.heads, backbone.feed_forward) == (width, width // 64, 4 * width)
    assert len(backbone.encoder.encoder.layer) == layers and backbone.max_length == 512
    assert backbone.output_weight_VD is backbone.encoder.embeddings.word_embeddings.weight
    assert backbone.output_weight_VD.shape == (40, width)


def test_a_folder_that_lacks_encoder_weights_is_refused(model_folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(model_folder / "model.safetensors")
    lost = next(name for name in weights if name.endswith("word_embeddings.weight"))
    save_file(
        {name: t for name, t in weights.items() if name != lost}, model_folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(UserError, match=r"holds no .*word_embeddings.weight"):
        load_backbone(model_folder, dropout=0.0)


def test_a_foreign_tokenizer_is_refused(model_folder: Path, vocabulary: Vocabulary) -> None:
    from dataclasses import replace

    config = BackboneConfig(name=str(model_folder))
    assert build_backbone(config, vocabulary, seed=0).width == 32
    for other in (replace(vocabulary, size=41), replace(vocabulary, pad_id=3)):
        with pytest.raises(UserError, match="its vocabulary has 40 entries"):
            build_backbone(config, other, seed=0)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_row_beyond_the_position_table_is_refused(model_folder: Path) -> None:
    backbone = loaded(model_folder)
    longest = 33 if "roberta" in model_folder.name else 34
    assert backbone.max_length == longest
    ids = torch.full((1, longest), 7)
    assert backbone.hidden(ids, torch.tensor([longest])).isfinite().all()
    with pytest.raises(UserError, match=f"tokens.max_length: a row of {longest + 1} tokens"):
        backbone.hidden(torch.full((1, longest + 1), 7), torch.tensor([longest + 1]))


WIDE = 512
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def planned(name: str = "small") -> Plan:
    return plan(override(RECIPES["retromae"](), {"backbone.name": name}), Unread())


def precisions(steps: Plan) -> dict[str, str]:
    evaluation = steps.evaluation(RECIPES["retromae"]().evaluation)
    found = {step.name: step for step in evaluation.upstream()}
    trained = {name: found[name].config.train.precision for name in ("pretrain", "finetune")}
    return {**trained, "encode": found["encode"].config.precision}


def test_a_processor_without_it_takes_fp32_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "0")
    with caplog.at_level(logging.INFO):
        assert precisions(planned()) == {"pretrain": "auto", "finetune": "auto", "encode": "fp32"}
    assert autocast_type("auto", CPU) is None
    assert any("fp32" in line and SWITCH in line for line in caplog.messages)


@needs_bf16
def test_the_probe_is_made_once_and_its_result_is_in_plans_and_fingerprints(empty_cache: Path) -> None:
    torch.set_num_threads(3)
    first = processor_precision(WIDE)
    assert torch.get_num_threads() == 3
    (kept,) = (empty_cache / "bf16").iterdir()
    assert (float(kept.read_text()) >= 1.2) == (first["precision"] == "bf16")
    kept.write_text("9.0")
    assert processor_precision(WIDE) == {"precision": "bf16"}
    fast = planned()
    assert precisions(fast) == {"pretrain": "bf16", "finetune": "bf16", "encode": "bf16"}
    kept.write_text("0.5")
    assert processor_precision(WIDE) == {"precision": "auto"}
    slow = planned()
    assert precisions(slow) == {"pretrain": "auto", "finetune": "auto", "encode": "fp32"}
    assert fast.pretrained and slow.pretrained and fast.pretrained.fingerprint != slow.pretrained.fingerprint
    assert fast.tokens.fingerprint == slow.tokens.fingerprint


def test_a_tiny_encoder_is_not_probed(empty_cache: Path) -> None:
    assert precisions(planned("tiny"))["pretrain"] == "auto" and not empty_cache.exists()


def test_what_is_set_by_hand_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    changed = override(RECIPES["mlm"](), {"backbone.name": "small", "pretrain.precision": "fp32"})
    steps = plan(changed, Unread())
    assert steps.pretrained is not None and steps.pretrained.config.train.precision == "fp32"
    assert autocast_type("bf16", CPU) is torch.bfloat16 and autocast_type("fp32", CPU) is None
