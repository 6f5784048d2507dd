"""Model folders whose weights are not those of their config, or that hold no model: each is refused in one line, which
says what is there and what to type. No weight of an encoder is ever drawn at random.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.encoders.cross_encoder import build_cross_encoder, read_cross_encoder
from midmask.encoders.seq2seq import build_seq2seq
from midmask.errors import UserError
from midmask.experiment.changes import as_folder_reads
from midmask.queries.query_model import GenerateConfig, QueryGenerator
from midmask.recipes import RECIPES
from midmask.retrieve.text_encoder import load_base_model, open_encoder, refuse_unfit
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import VARIANTS, random_model, write_classifier

INPUTS = {"input_ids": torch.tensor([[2, 9, 10, 11, 3]]), "attention_mask": torch.ones(1, 5, dtype=torch.long)}
Weights = dict[str, Tensor]


@pytest.fixture
def folder(tokenizer_folder: Path, tmp_path: Path) -> Path:
    """A BERT of two layers with its tokenizer."""
    random_model("bert").base_model.save_pretrained(tmp_path / "model")
    load_tokenizer(tokenizer_folder).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, change: Callable[[Weights], Weights]) -> None:
    weights = change(load_file(folder / "model.safetensors"))
    save_file(
        {name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"}
    )


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
def test_every_family_reads_what_transformers_saved(
    variant: str, bare: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
        assert count and count[1] == count[2] and f"'{prefix}'" in text


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value for name, value in weights.items() if part not in name}


def as_integers(weights: Weights) -> Weights:
    return {name: (100 * value).to(torch.int8) if value.ndim == 2 else value for name, value in weights.items()}


def cut(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value[:-1] if part in name else value for name, value in weights.items()}


def doubled(weights: Weights) -> Weights:
    return weights | {
        name.replace("layer.1.", "layer.2."): value.clone() for name, value in weights.items() if "layer.1." in name
    }


DAMAGE: dict[str, tuple[Callable[[Weights], Weights], str]] = {
    "a tensor less": (without("layer.0.output.dense.weight"), r"encoder\.layer\.0\.output\.dense\.weight \(1 of 37"),
    "a layer less": (without("layer.1."), r"16 of 37 .* 2 layers.* 1: set num_hidden_layers = 1"),
    "a layer more": (doubled, r"16 weights .* num_hidden_layers = 3"),
    "another shape": (cut("word_embeddings"), r"word_embeddings\.weight .*\[39, 32\] .* \[40, 32\]"),
    "integers": (as_integers, r"type I8 \(\d+ weights"),
    "another model's": (lambda weights: {"linear.weight": torch.ones(3)}, "37 of 37 .* linear.weight"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_other_weights_than_the_configs_are_refused_by_every_reader(
    case: str, folder: Path, vocabulary: Vocabulary
) -> None:
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
    save_file(
        {name: weights[name] for name in files if "-00001-" in files[name]}, folder / "model-00001-of-00002.safetensors"
    )


def pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard less": (half_of_shards, "1 of the 2 files .* model-00002-of-00002.safetensors"),
    "none": (lambda folder: (folder / "model.safetensors").unlink(), "no weights of PyTorch"),
    "a pointer": (pointer, "git lfs pull"),
    "integers in a pickle": (
        lambda folder: as_pickle(folder, dict(as_integers(load_file(folder / "model.safetensors")))),
        "torch.int8",
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


def test_teachers_and_generators_are_read_alike(folder: Path, tmp_path: Path) -> None:
    write_classifier(tmp_path / "teacher", 1)
    rewrite(tmp_path / "teacher", lambda weights: {f"module.{name}": value for name, value in weights.items()})
    assert "'module.'" in refusal(lambda: read_cross_encoder(tmp_path / "teacher"))
    edit(folder / "config.json", architectures=["BertLMHeadModel"], is_decoder=True)
    rewrite(folder, lambda weights: {f"module.{name}": value for name, value in weights.items()})
    assert "'module.'" in refusal(lambda: QueryGenerator(folder, GenerateConfig()))


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
