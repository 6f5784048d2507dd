"""Refusals of backbones; what `precision = auto` means; folders laid out as public checkpoints load as they are: BERT
with pooler and NSP head, RetroMAE and coCondenser as pickles, DeBERTa with its own head.
"""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from midmask.core.config import override
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.encoders.precision import SWITCH, autocast_type
from midmask.errors import UserError
from midmask.experiment.plan import Plan, plan
from midmask.recipes import RECIPES
from midmask.text.vocabulary import Vocabulary
from tests.support.benchmark.tiny import Unread
from tests.support.encoders.models import needs_bf16, random_model

IDS = torch.tensor([[2, 6, 7, 20, 8, 3, 0, 0], [2, 9, 10, 11, 12, 13, 14, 3], [2, 6, 3, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([6, 8, 3])


def loaded(folder: Path) -> Backbone:
    return load_backbone(folder, dropout=0.0).eval()


def test_dropout_is_that_of_the_config_not_of_the_folder(model_folder: Path) -> None:
    def twice(dropout: float) -> list[Tensor]:
        backbone = load_backbone(model_folder, dropout=dropout).train()
        return [backbone.hidden(IDS, LENGTHS).detach() for _ in range(2)]

    assert torch.equal(*twice(0.0)) and not torch.equal(*twice(0.5))


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


CPU = torch.device("cpu")


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
def test_a_processor_with_it_takes_it_for_all_but_narrow_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, narrow = planned(), planned("tiny")
    assert precisions(fast) == {"pretrain": "bf16", "finetune": "bf16", "encode": "bf16"}
    assert precisions(narrow)["pretrain"] == "auto"
    monkeypatch.setenv(SWITCH, "0")
    slow = planned()
    assert fast.pretrained and slow.pretrained and fast.pretrained.fingerprint != slow.pretrained.fingerprint
    assert fast.tokens.fingerprint == slow.tokens.fingerprint


def test_what_is_set_by_hand_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    changed = override(RECIPES["mlm"](), {"backbone.name": "small", "pretrain.precision": "fp32"})
    steps = plan(changed, Unread())
    assert steps.pretrained is not None and steps.pretrained.config.train.precision == "fp32"
    assert autocast_type("bf16", CPU) is torch.bfloat16 and autocast_type("fp32", CPU) is None


PUBLIC_IDS = torch.tensor([[2, 9, 10, 11, 12, 13, 3]])
PUBLIC_LENGTHS = torch.tensor([7])
Weights = dict[str, Tensor]


def bert() -> Weights:
    """A masked LM's weights by the names of its Hugging Face model, the tied ones once."""
    tied = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    return {name: tensor for name, tensor in random_model("bert").state_dict().items() if name not in tied}


def pretraining(weights: Weights) -> Weights:
    """As google-bert's: a pooler, the head for the next sentence, and the tied weights written out."""
    more = {"bert.pooler.dense.weight": torch.randn(32, 32), "bert.pooler.dense.bias": torch.randn(32)}
    more |= {"cls.seq_relationship.weight": torch.randn(2, 32), "cls.seq_relationship.bias": torch.randn(2)}
    more["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
    return {**weights, **more}


def old_norms(weights: Weights) -> Weights:
    """As converted from TensorFlow: norms have gamma and beta."""
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def renamed(name: str) -> str:
        stem, dot, last = name.rpartition(".LayerNorm.")
        return stem + "." + names[dot[1:] + last] if dot else name

    return {renamed(name): tensor for name, tensor in weights.items()}


def old_positions(weights: Weights) -> Weights:
    """As saved before transformers 4.31: a buffer of position numbers, and the bias under both of its names."""
    numbers = torch.arange(34)[None]
    bias = weights["cls.predictions.bias"].clone()
    return {**weights, "bert.embeddings.position_ids": numbers, "cls.predictions.decoder.bias": bias}


def bare(weights: Weights) -> Weights:
    """As an encoder saved by itself: no prefix and no MLM head, but a pooler and the old buffer."""
    encoder = {name.removeprefix("bert."): tensor for name, tensor in weights.items() if name.startswith("bert.")}
    pooler = {"pooler.dense.weight": torch.randn(32, 32), "pooler.dense.bias": torch.randn(32)}
    return {**encoder, **pooler, "embeddings.position_ids": torch.arange(34)[None]}


def prefixed(weights: Weights) -> Weights:
    """As RetroMAE's encoder saved from BertModel inside BertForMaskedLM: the prefix, but no MLM head."""
    return {name: tensor for name, tensor in weights.items() if name.startswith("bert.")}


def as_safetensors(weights: Weights, folder: Path) -> None:
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def as_pickle(weights: Weights, folder: Path) -> None:
    torch.save(weights, folder / "pytorch_model.bin")


def as_shards(weights: Weights, folder: Path) -> None:
    places: dict[str, str] = {}
    for number, names in enumerate((sorted(weights)[:20], sorted(weights)[20:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: weights[name] for name in names}, folder / file, {"format": "pt"})
        places |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


LAYOUTS: dict[str, tuple[tuple[Callable[[Weights], Weights], ...], Callable[[Weights, Path], None]]] = {
    "BERT for pre-training": ((pretraining,), as_safetensors),
    "BERT for pre-training, old names, pickled": ((pretraining, old_positions, old_norms), as_pickle),
    "RetroMAE, coCondenser": ((old_positions,), as_pickle),
    "RetroMAE, coCondenser, bare": ((bare,), as_pickle),
    "bare": ((bare,), as_safetensors),
    "prefix without MLM head": ((prefixed,), as_pickle),
    "shards": ((pretraining,), as_shards),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_the_folder_loads_as_it_is(layout: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    changes, write = LAYOUTS[layout]
    weights = bert()
    for change in changes:
        weights = change(weights)
    model = random_model("bert")
    model.config.save_pretrained(tmp_path)
    write(weights, tmp_path)

    backbone = load_backbone(tmp_path, dropout=0.0).eval()
    theirs = model(input_ids=PUBLIC_IDS, output_hidden_states=True)
    hidden = backbone.hidden(PUBLIC_IDS, PUBLIC_LENGTHS)
    torch.testing.assert_close(hidden, theirs.hidden_states[-1], rtol=1e-6, atol=1e-6)
    has_head = not {bare, prefixed} & set(changes)
    assert ("holds no MLM head" in caplog.text) != has_head
    logits = backbone.transform(hidden) @ backbone.output_weight_VD.t() + backbone.output_bias_V
    assert torch.allclose(logits, theirs.logits, rtol=1e-6, atol=1e-6) == has_head
    assert backbone.output_weight_VD is backbone.encoder.embeddings.word_embeddings.weight


@pytest.mark.parametrize("variant", ["deberta, published head", "deberta-v2, published head, convolution"])
@torch.no_grad()
def test_debertas_published_head_is_found_though_its_config_does_not_name_it(variant: str, tmp_path: Path) -> None:
    model = random_model(variant)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("legacy") is False
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = {**model.state_dict(), "mask_predictions.dense.weight": torch.zeros(3, 3)}
    weights["deberta.embeddings.position_embeddings.weight"] = PUBLIC_IDS.float()
    (tmp_path / "model.safetensors").unlink()
    as_pickle(weights, tmp_path)

    backbone = load_backbone(tmp_path, dropout=0.0).eval()
    hidden = backbone.hidden(PUBLIC_IDS, PUBLIC_LENGTHS)
    logits = backbone.transform(hidden) @ backbone.output_weight_VD.t() + backbone.output_bias_V
    torch.testing.assert_close(logits, model(input_ids=PUBLIC_IDS).logits, rtol=1e-6, atol=1e-6)


class Trap:
    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return sys.exit, (3,)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    random_model("bert").config.save_pretrained(tmp_path)
    torch.save({**bert(), "trap": Trap()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickle holds more than tensors") as error:
        load_backbone(tmp_path, dropout=0.0)
    assert "\n" not in str(error.value)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    random_model("bert").config.save_pretrained(tmp_path)
    as_safetensors(bert(), tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="no model can be read"):
        load_backbone(tmp_path, dropout=0.0)
