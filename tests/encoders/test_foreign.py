"""Folders that sentence-transformers saved, in its layouts of versions 2 to 6, mean the same to midmask; what midmask
cannot follow is refused by name.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.model_settings import read_facts, read_projection, read_representation
from midmask.encoders.representation import Representation, TextVectors
from midmask.encoders.text_form import TextForm
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS
from tests.support.encoders.public import (
    change,
    change_modules,
    dense_model,
    opened,
    settings,
    sparse_model,
    tokenizer,
    transformer,
    vectors_of,
)

OLD, OLD_SPARSE = "sentence_transformers.models.", "sentence_transformers.sparse_encoder.models."


@torch.no_grad()
def views(folder: Path) -> TextVectors:
    backbone = load_bi_encoder(folder, dropout=0.1).eval()
    tokens = load_tokenizer(folder)(TEXTS, padding=True, return_tensors="pt", max_length=12, truncation=True)
    lengths_B = tokens["attention_mask"].sum(1)
    found: TextVectors = backbone.pooling(
        backbone, tokens["input_ids"], lengths_B, Vocabulary.of(folder).special_V, "passage"
    )
    return found


def as_version_2(folder: Path) -> None:
    """The class paths, keys and files of versions 2 to 5.3."""
    fill_mask = json.loads((folder / "sentence_bert_config.json").read_text()).get("transformer_task") == "fill-mask"

    def old_class(module: dict[str, Any]) -> dict[str, Any]:
        name = module["type"].rpartition(".")[2]
        name = "MLMTransformer" if name == "Transformer" and fill_mask else name
        return {**module, "type": (OLD_SPARSE if name in ("MLMTransformer", "SpladePooling") else OLD) + name}

    change_modules(lambda modules: [old_class(module) for module in modules])(folder)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
    if (folder / "1_Pooling").exists():
        config = folder / "1_Pooling" / "config.json"
        mode = json.loads(config.read_text())["pooling_mode"]
        modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
        old = {f"pooling_mode_{name}": name.startswith(f"{mode}_t") for name in modes}
        config.write_text(json.dumps({"word_embedding_dimension": 32, **old}))
    if (folder / "2_Dense").exists():
        weights = {"linear.weight": read_projection(folder)}
        (folder / "2_Dense" / "model.safetensors").unlink()
        torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")


@pytest.mark.parametrize("old", [False, True], ids=["version 6", "version 2"])
@pytest.mark.parametrize(
    ("mode", "width", "normalise"), [("cls", None, False), ("cls", 8, True), ("mean", None, True), ("mean", 8, False)]
)
def test_a_dense_folder_gives_its_own_vectors(
    base: Path, tmp_path: Path, mode: str, width: int | None, normalise: bool, old: bool
) -> None:
    dense_model(base, pooling_mode=mode, width=width, normalise=normalise).save(str(tmp_path))
    if old:
        as_version_2(tmp_path)
    facts, wanted = read_facts(tmp_path), {"dense": mode, "width": width, "normalise": normalise}
    assert facts.representation == Representation.model_validate(wanted)
    assert facts.passage_length == facts.query_length == 12
    found = views(tmp_path)
    assert found.lexical_BV is None and found.dense_BD is not None
    torch.testing.assert_close(found.dense_BD, vectors_of(opened(tmp_path)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("terms", "old"), [(None, False), (3, True)], ids=["version 6", "version 5.0"])
def test_a_sparse_folder_gives_its_own_weights(base: Path, tmp_path: Path, terms: int | None, old: bool) -> None:
    sparse_model(base, max_active_dims=terms).save(str(tmp_path))
    if old:
        as_version_2(tmp_path)
    wanted = Representation(dense=None, lexical="splade", query_terms=terms, passage_terms=terms)
    assert read_representation(tmp_path) == wanted and read_facts(tmp_path).passage_length == 12
    found = views(tmp_path)
    assert found.dense_BD is None and found.lexical_BV is not None
    torch.testing.assert_close(found.lexical_BV, vectors_of(opened(tmp_path, "SparseEncoder")), rtol=1e-5, atol=1e-5)


def test_a_plain_folder_is_the_vector_of_cls(base: Path) -> None:
    assert read_representation(base) == Representation()
    assert read_projection(base) is None and read_facts(base).form == TextForm()


@pytest.mark.parametrize(
    ("config", "limit", "length"),
    [
        ({}, 64, 34),
        ({}, 20, 20),
        ({}, 10**30, 34),
        ({"model_type": "roberta", "pad_token_id": 1}, 64, 32),
        ({"max_position_embeddings": -1}, 10**30, None),
    ],
)
def test_a_plain_folder_reads_what_its_tokenizer_and_its_positions_allow(
    base: Path, tmp_path: Path, config: dict[str, Any], limit: int, length: int | None
) -> None:
    """Of tokens that the tokenizer names, 34 have positions; those of a RoBERTa begin at 2."""
    folder = Path(shutil.copytree(base, tmp_path / "copy"))
    change("config.json", **config)(folder)
    tokenizer(model_max_length=limit)(folder)
    assert read_facts(folder).passage_length == length


def dense(**values: Any) -> Callable[[Path], None]:
    return change("2_Dense/config.json", **values)


def pooling(**values: Any) -> Callable[[Path], None]:
    return change("1_Pooling/config.json", **values)


def written(text: str, file: str = "modules.json") -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_text(text)


REFUSALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "max": (pooling(pooling_mode="max"), r"1_Pooling/config\.json: pooling max"),
    "two pools": (pooling(pooling_mode=["cls", "mean"]), r"pooling cls \+ mean"),
    "bias": (dense(bias=True), "Dense with a bias"),
    "activation": (dense(activation_function="torch.nn.modules.activation.Tanh"), "activation Tanh"),
    "residual": (dense(use_residual=True), "residual"),
    "other input": (dense(module_input_name="token_embeddings"), "inputs or outputs"),
    "similarity": (settings(similarity_fn_name="euclidean"), "similarity_fn_name = 'euclidean'"),
    "case": (written('{"do_lower_case": true}', "sentence_bert_config.json"), "do_lower_case = true"),
    "stranger": (change_modules(lambda old: [*old, {"type": "custom.Whitening", "path": ""}]), "custom.Whitening"),
    "order": (change_modules(lambda old: [*old[:2], old[3], old[2]]), "Transformer, Pooling, Normalize, Dense"),
    "unknown": (change_modules(lambda old: [*old, {"type": OLD + "CNN", "path": "4"}]), "Normalize, CNN"),
    "sub-folder": (change_modules(lambda old: [{**old[0], "path": "0_Trans"}, *old[1:]]), "0_Trans.* is missing"),
    "outside": (change_modules(lambda old: [{**old[0], "path": "../base"}, *old[1:]]), r"outside .*\.\./"),
    "no modules": (change_modules(lambda old: []), "no module"),
    "default prompt": (settings(default_prompt_name="web"), "default_prompt_name = 'web'"),
    "cut behind Normalize": (settings(truncate_dim=4, similarity_fn_name="dot"), "truncate_dim = 4"),
    "pooling's width": (pooling(embedding_dimension=48), "embedding_dimension = 48, .* 32 columns"),
    "Dense's width": (dense(in_features=48), "in_features = 48, .* 32 columns"),
    "a stranger's activation": (dense(activation_function="mine.Identity"), "activation Tanh"),
    "padding": (tokenizer(padding_side="left"), "padding_side = 'left'"),
    "task": (transformer(transformer_task="fill-mask"), "transformer_task = 'fill-mask'"),
    "config": (transformer(config_args={"hidden_act": "relu"}), "config_args.hidden_act = 'relu'"),
    "processing": (transformer(processing_kwargs={"text": {"max_length": 5}}), "processing_kwargs.text"),
    "torn": (written("[{"), r"modules\.json: cannot be read"),
    "an object": (written("{}"), "a dict instead of a list"),
}


@pytest.fixture(scope="module")
def full(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense folder with every module that midmask follows."""
    folder = tmp_path_factory.mktemp("full")
    dense_model(base, width=8, normalise=True).save(str(folder))
    return folder


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_followed_is_refused_by_name(case: str, full: Path, tmp_path: Path) -> None:
    spoil, message = REFUSALS[case]
    folder = Path(shutil.copytree(full, tmp_path / "copy"))
    assert read_representation(folder).width == 8
    spoil(folder)
    with pytest.raises(UserError, match=message) as error:
        read_representation(folder)
    assert "\n" not in str(error.value)


def test_a_sum_of_weights_is_not_their_maximum(base: Path, tmp_path: Path) -> None:
    sparse_model(base, strategy="sum").save(str(tmp_path / "theirs"))
    with pytest.raises(UserError, match="SpladePooling by sum of relu"):
        read_representation(tmp_path / "theirs")
    sparse_model(base, similarity_fn_name="cosine").save(str(tmp_path / "cosine"))
    with pytest.raises(UserError, match="by dot"):
        read_representation(tmp_path / "cosine")
