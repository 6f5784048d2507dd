"""Folders laid out as public checkpoints load as they are. Folders whose weights are not those of their config, or that
hold no model, are refused in one line, which says what is there and what to type; no weight of an encoder is ever drawn
at random. What backbones refuse, and what `precision = auto` means.
"""

import json
import logging
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from midmask.core.config import override
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.encoders.cross_encoder import build_cross_encoder, read_cross_encoder
from midmask.encoders.precision import SWITCH, autocast_type
from midmask.encoders.seq2seq import build_seq2seq
from midmask.errors import UserError
from midmask.experiment.changes import as_folder_reads
from midmask.experiment.plan import Plan, plan
from midmask.recipes import RECIPES
from midmask.retrieve.text_encoder import load_base_model, open_encoder, refuse_unfit
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.support.benchmark.tiny import Unread
from tests.support.encoders.models import VARIANTS, needs_bf16, random_model, write_classifier

INPUTS = {"input_ids": torch.tensor([[2, 9, 10, 11, 3]]), "attention_mask": torch.ones(1, 5, dtype=torch.long)}
Weights = dict[str, Tensor]


@pytest.fixture
def folder(tokenizer_folder: Path, tmp_path: Path) -> Path:
    """A BERT of two layers with its tokenizer."""
    random_model("bert").base_model.save_pretrained(tmp_path / "model")
    load_tokenizer(tokenizer_folder).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, change: Callable[[Weights], Weights]) -> None:
    weights = {name: value.contiguous() for name, value in change(load_file(folder / "model.safetensors")).items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def readings(folder: Path, vocabulary: Vocabulary) -> list[Callable[[], object]]:
    """All that read a folder's encoder."""
    config = BackboneConfig(name=str(folder))
    return [
        lambda: load_base_model(folder),
        lambda: refuse_unfit(folder, folder),
        lambda: open_encoder(folder, vocabulary, "query"),
        lambda: load_backbone(folder, dropout=0.0),
        lambda: build_backbone(config, vocabulary, seed=0),
        lambda: build_cross_encoder(config, folder, max_length=16, seed=0),
        lambda: build_seq2seq(config, vocabulary, decoder_layers=1, seed=0),
    ]


@pytest.mark.parametrize(
    ("variant", "bare"), [*((name, True) for name in VARIANTS), ("bert", False), ("modernbert", False)]
)
@torch.no_grad()
def test_every_family_reads_what_transformers_saved(variant, bare, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    model = random_model(variant)
    (model.base_model if bare else model).save_pretrained(tmp_path)
    expected = model.base_model(**INPUTS).last_hidden_state
    torch.testing.assert_close(load_base_model(tmp_path)(**INPUTS).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    backbone = load_backbone(tmp_path, dropout=0.0).eval()
    torch.testing.assert_close(backbone.encoder(**INPUTS).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    assert backbone.has_fresh_head == bare
    fresh = re.findall(r"no MLM head; a fresh one is made \(\d+ tensors, [\d,]+ weights\)", caplog.text)
    assert len(fresh) == bare


PREFIXES = ("module.", "_orig_mod.", "model.", "0.auto_model.", "encoder.net.")


@pytest.mark.parametrize(
    ("variant", "prefix"), [*((name, PREFIXES[0]) for name in VARIANTS), *(("bert", prefix) for prefix in PREFIXES[1:])]
)
def test_names_with_a_wrappers_prefix_are_refused(variant: str, prefix: str, tmp_path: Path) -> None:
    random_model(variant).base_model.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda weights: {prefix + name: value for name, value in weights.items()})
    for read in (lambda: load_base_model(tmp_path), lambda: load_backbone(tmp_path, dropout=0.0)):
        text = refusal(read)
        count = re.search(r"\((\d+) of (\d+) weights", text)
        assert count and count[1] == count[2] and f": {prefix}" in text


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value for name, value in weights.items() if part not in name}


def as_integers(weights: Weights) -> Weights:
    return {name: (100 * value).to(torch.int8) if value.ndim == 2 else value for name, value in weights.items()}


def cut(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value[:-1] if part in name else value for name, value in weights.items()}


def doubled(weights: Weights) -> Weights:
    layer = {name: value for name, value in weights.items() if "layer.1." in name}
    return weights | {name.replace("layer.1.", "layer.2."): value.clone() for name, value in layer.items()}


DAMAGE: dict[str, tuple[Callable[[Weights], Weights], str]] = {
    "a tensor less": (without("layer.0.output.dense.weight"), r"encoder\.layer\.0\.output\.dense\.weight \(1 of 37"),
    "a layer less": (without("layer.1."), r"16 of 37"),
    "a layer more": (doubled, r"16 weights .* num_hidden_layers"),
    "another shape": (cut("word_embeddings"), r"word_embeddings\.weight .*\[39, 32\] .* \[40, 32\]"),
    "integers": (as_integers, "whole numbers: a quantised model"),
    "another model's": (lambda weights: {"linear.weight": torch.ones(3)}, "37 of 37 .* linear.weight"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_other_weights_than_the_configs_are_refused_by_every_reader(case, folder, vocabulary) -> None:
    damage, message = DAMAGE[case]
    rewrite(folder, damage)
    for read in readings(folder, vocabulary):
        assert re.search(message, refusal(read))


def as_pickle(folder: Path, content: dict[str, object]) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")


def half_of_shards(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"model-{1 + index % 2:05d}-of-00002.safetensors" for index, name in enumerate(weights)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    first = {name: weights[name] for name in files if "-00001-" in files[name]}
    save_file(first, folder / "model-00001-of-00002.safetensors")


def pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")


class Trap:
    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return sys.exit, (3,)


def halved(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "half a file": (halved, "no model can be read"),
    "a pickle that would run code": (lambda folder: as_pickle(folder, {"trap": Trap()}), "holds more than tensors"),
    "a shard less": (half_of_shards, "model-00002-of-00002.safetensors"),
    "none": (lambda folder: (folder / "model.safetensors").unlink(), "no file named"),
    "a pointer": (pointer, "git lfs pull"),
    "integers in a pickle": (
        lambda folder: as_pickle(folder, dict(as_integers(load_file(folder / "model.safetensors")))),
        "whole numbers: a quantised model",
    ),
    "a checkpoint around the weights": (
        lambda folder: as_pickle(folder, {"state_dict": load_file(folder / "model.safetensors"), "epoch": 3}),
        "37 of 37 weights",
    ),
    "an adapter": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter.*merge_and_unload"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_without_the_weights_are_refused(case: str, folder: Path) -> None:
    spoil, message = FILES[case]
    spoil(folder)
    for read in (lambda: load_base_model(folder), lambda: load_backbone(folder, dropout=0.0)):
        assert re.search(message, refusal(read))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(folder: Path, vocabulary: Vocabulary) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokenizer["added_tokens"] += [{"id": 40 + i, "content": f"[PART{i}]", **added} for i in range(3)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    beyond = Vocabulary.of(folder)
    for read in (
        lambda: refuse_unfit(folder, folder),
        lambda: open_encoder(folder, beyond, "passage"),
        lambda: build_backbone(BackboneConfig(name=str(folder)), beyond, seed=0),
    ):
        assert re.search("42, .* 40 rows", refusal(read))
    open_encoder(folder, vocabulary, "passage")  # rows of the tokenizer that it was trained with have vectors


def test_teachers_are_read_alike(tmp_path: Path) -> None:
    write_classifier(tmp_path / "teacher", 1)
    rewrite(tmp_path / "teacher", lambda weights: {f"module.{name}": value for name, value in weights.items()})
    assert "module." in refusal(lambda: read_cross_encoder(tmp_path / "teacher"))


def test_a_lexical_view_needs_its_own_head(folder: Path, vocabulary: Vocabulary) -> None:
    facts = {"format": 3, "representation": {"dense": None, "lexical": "splade"}}
    (folder / "midmask.json").write_text(json.dumps(facts))
    for read in (lambda: refuse_unfit(folder), lambda: open_encoder(folder, vocabulary, "query")):
        assert "MLM head" in refusal(read)


def moved(folder: Path, *names: str) -> Path:
    """The folder of a folder's folder …, with the model in the innermost."""
    outer = folder.parent / "outer"
    inner = outer.joinpath(*names)
    inner.parent.mkdir(parents=True)
    shutil.move(folder, inner)
    (outer / "README.md").write_text("# A model")
    return outer


def test_a_folder_without_a_model_names_the_one_that_has_it(folder: Path) -> None:
    outer = moved(folder, "checkpoints", "step-10")
    for read in (
        lambda: as_folder_reads(RECIPES["none"](), outer, ()),
        lambda: load_base_model(outer),
        lambda: load_backbone(outer, dropout=0.0),
        lambda: read_cross_encoder(outer),
    ):
        assert str(outer / "checkpoints" / "step-10") in refusal(read)


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


def test_a_processor_without_it_takes_fp32_and_says_so(monkeypatch, caplog) -> None:
    monkeypatch.setenv(SWITCH, "0")
    with caplog.at_level(logging.INFO):
        assert precisions(planned()) == {"pretrain": "auto", "finetune": "auto", "encode": "fp32"}
    assert autocast_type("auto", CPU) is autocast_type("fp32", CPU) is None
    assert autocast_type("bf16", CPU) is torch.bfloat16
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


PUBLIC_IDS = torch.tensor([[2, 9, 10, 11, 12, 13, 3]])
PUBLIC_LENGTHS = torch.tensor([7])


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


def pickled(weights: Weights, folder: Path) -> None:
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
    "BERT for pre-training, old names, pickled": ((pretraining, old_positions, old_norms), pickled),
    "RetroMAE, coCondenser": ((old_positions,), pickled), "RetroMAE, coCondenser, bare": ((bare,), pickled),
    "bare": ((bare,), as_safetensors), "prefix without MLM head": ((prefixed,), pickled),
    "shards": ((pretraining,), as_shards),
}  # fmt: skip


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
    pickled(weights, tmp_path)

    backbone = load_backbone(tmp_path, dropout=0.0).eval()
    hidden = backbone.hidden(PUBLIC_IDS, PUBLIC_LENGTHS)
    logits = backbone.transform(hidden) @ backbone.output_weight_VD.t() + backbone.output_bias_V
    torch.testing.assert_close(logits, model(input_ids=PUBLIC_IDS).logits, rtol=1e-6, atol=1e-6)
