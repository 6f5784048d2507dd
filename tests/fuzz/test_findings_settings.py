"""Model folders and settings that once ended in a traceback, one by one. Each ends in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from midmask.corpora import CorpusConfig
from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.representation import Representation
from midmask.errors import LONGEST, UserError, quoted, unknown
from midmask.experiment.needed_splits import refuse_missing_splits
from midmask.experiment.plan import plan
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.fuzz.refusing import refused
from tests.support.corpora.collections import write, write_beir
from tests.support.encoders.models import random_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    random_model("bert").save_pretrained(folder)
    return folder


CONFIGS = {
    "another width": {"hidden_size": 64},
    "a width that is no number": {"hidden_size": "abc"},
    "a width of 0": {"hidden_size": 0},
    "no heads": {"num_attention_heads": 0},
    "an unknown activation": {"hidden_act": "nope"},
    "padding beyond the vocabulary": {"pad_token_id": 1000},
    "an unknown type of numbers": {"dtype": "floaty"},
}


@pytest.mark.parametrize("change", CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_does_not_fit_is_refused(tmp_path: Path, model: Path, change: dict[str, Any]) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    config = json.loads((model / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    refused(lambda: load_bi_encoder(tmp_path, dropout=0.0), str(tmp_path))


FILES = {
    "config.json": ["null", "[]", "5", "[" * 100_000, "\x00", ""],
    "midmask.json": ["null", "[" * 100_000, '{"format": "x"}', '{"representation": {"width": ' + "9" * 5000 + "}}"],
    "modules.json": ["null", "[5]", '[{"idx": 0}]', "[" * 100_000, '[{"path": "", "type": 5}]'],
    "model.safetensors": ["", "x" * 100, "\x7f" * 8],
}


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, own in FILES.items() for text in own], ids=quoted)
def test_other_files_of_a_model_folder_are_refused(tmp_path: Path, model: Path, file: str, text: str) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    (tmp_path / file).write_text(text)
    refused(lambda: load_bi_encoder(tmp_path, dropout=0.0), str(tmp_path))


INDICES = [
    "null",
    "{}",
    "[]",
    "{bad",
    '{"weight_map": 5}',
    '{"weight_map": {"a": 5}}',
    '{"weight_map": {}, "metadata": {}}',
]


@pytest.mark.parametrize("text", INDICES)
def test_a_broken_index_of_weights_is_refused(tmp_path: Path, model: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    (tmp_path / "model.safetensors.index.json").write_text(text)
    refused(lambda: load_bi_encoder(tmp_path, dropout=0.0), str(tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(tmp_path: Path, model: Path, value: float) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    weights = safetensors.torch.load_file(model / "model.safetensors")
    name = "bert.encoder.layer.1.attention.self.query.weight"
    weights[name][3, 5] = value
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    refused(lambda: load_bi_encoder(tmp_path, dropout=0.0), name, "not finite")


def test_a_projection_that_is_not_finite_is_named(tmp_path: Path, model: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    facts = {"format": 1, "representation": Representation(width=4).model_dump()}
    (tmp_path / "midmask.json").write_text(json.dumps(facts))
    (tmp_path / "2_Dense").mkdir()
    weight = torch.full((4, 32), float("nan"))
    safetensors.torch.save_file({"linear.weight": weight}, tmp_path / "2_Dense/model.safetensors")
    refused(lambda: load_bi_encoder(tmp_path, dropout=0.0), "2_Dense", "not finite")


CHANGES = [("pretrain.steps", "9" * 5000), ("pretrain.steps", "[[[["), ("pretrain.steps", "[" * 100_000),
           ("pretrain.steps", "9" * 20), ("corpus.name", "beir:\ud800"), ("corpus.name", '"beir:\\ud800"'),
           ("corpus.name", "beir:a\0b"), ("pretrain.batch_size", "1e23"), ("pretrain.batch_size", "1" + "0" * 15),
           ("pretrain.learning_rate", "1e400"), ("pretrain.learning_rate", "NaN"), ("\ud800" * 9000, "1"),
           ("stages.0.passage_length", "100000"), ("evaluation.passage_length", "100000")]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=range(len(CHANGES)))
def test_a_setting_that_cannot_be_is_refused(path: str, value: str) -> None:
    line = refused(lambda: override(RECIPES["retromae"](), {path: value}).check())
    assert path in line or "\\ud800" in line


def test_a_setting_below_one_that_replaces_it_is_refused() -> None:
    recipe = RECIPES["retromae_ance"]()
    path = next(name for name in recipe.model_dump()["stages"][0] if name == "loss")
    changes = {f"stages.0.{path}": '{"name": "contrastive"}', f"stages.0.{path}.regularisers.ramp": "0.5"}
    refused(lambda: override(recipe, changes), "replaces the whole of")


def test_messages_are_bounded_and_can_be_printed() -> None:
    assert len(str(UserError("x" * 10_000_000))) < LONGEST + 100
    assert str(UserError("a\ud800b")) == "a\\ud800b"
    assert len(str(unknown("name", "y" * 1_000_000, ["yes", "no"]))) < 300
    assert len(quoted([["x" * 1000] * 1000] * 1000)) < 300 and len(quoted(10**5000)) < 100


def test_texts_alone_are_refused_before_anything_is_computed(tmp_path: Path) -> None:
    write(tmp_path / "texts/a.jsonl", b'{"text": "some text"}\n' * 3)
    recipe = override(RECIPES["mlm"](), {"corpus.name": f"texts:{tmp_path}/texts"})
    planned = plan(recipe)
    assert planned.pretrained is not None
    refuse_missing_splits([planned.pretrained])
    refused(lambda: refuse_missing_splits([planned.evaluation(recipe.evaluation)]), "texts alone", "--pretrain-on")


def test_a_split_that_a_collection_lacks_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    (tmp_path / "in/qrels/test.tsv").unlink()
    recipe = override(RECIPES["mlm"](), {"corpus.name": "pydocs"})
    planned = plan(recipe)
    wanted = recipe.evaluation.model_copy(update={"split": "test"})
    for splits, name in (("complete", "in"), ("official", "in")):
        corpus = CorpusConfig(name=f"beir:{tmp_path}/{name}", splits=splits)  # type: ignore[arg-type]
        there = planned.evaluation(wanted, on=planned.elsewhere(corpus))
        if splits == "complete":
            refuse_missing_splits([there])
        else:
            refused(lambda there=there: refuse_missing_splits([there]), "'test'", "Known: dev, train")
