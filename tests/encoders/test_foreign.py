"""Folders that sentence-transformers saved, in its layouts of versions 2 to 6 and with their settings, mean the same to
midmask; what it cannot follow is refused by name.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertModel

from midmask.encoders.folder import load_bi_encoder, read_projection
from midmask.encoders.model_settings import TextForm, read_facts
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.experiment.changes import as_folder_reads
from midmask.experiment.steps import AdoptConfig, adopt
from midmask.recipes import RECIPES
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.text_encoder import open_encoder
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import tokenise
from midmask.text.vocabulary import Vocabulary, load_tokenizer
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
    views,
)
from tests.support.retrieve.collection import write_parts

OLD, OLD_SPARSE = "sentence_transformers.models.", "sentence_transformers.sparse_encoder.models."


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
def test_a_dense_folder_gives_its_own_vectors(base, tmp_path, mode, width, normalise, old) -> None:
    dense_model(base, pooling_mode=mode, width=width, normalise=normalise).save(str(tmp_path))
    if old:
        as_version_2(tmp_path)
    facts, wanted = read_facts(tmp_path), {"dense": mode, "width": width, "normalise": normalise}
    assert facts.representation == Representation.model_validate(wanted)
    assert facts.passage_length == facts.query_length == 12
    found = views(load_bi_encoder(tmp_path, dropout=0.1).eval(), tmp_path)
    assert found.lexical_BV is None and found.dense_BD is not None
    torch.testing.assert_close(found.dense_BD, vectors_of(opened(tmp_path)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("terms", "old"), [(None, False), (3, True)], ids=["version 6", "version 5.0"])
def test_a_sparse_folder_gives_its_own_weights(base: Path, tmp_path: Path, terms: int | None, old: bool) -> None:
    sparse_model(base, max_active_dims=terms).save(str(tmp_path))
    if old:
        as_version_2(tmp_path)
    wanted = Representation(dense=None, lexical="splade", query_terms=terms, passage_terms=terms)
    assert read_facts(tmp_path).representation == wanted and read_facts(tmp_path).passage_length == 12
    found = views(load_bi_encoder(tmp_path, dropout=0.1).eval(), tmp_path)
    assert found.dense_BD is None and found.lexical_BV is not None
    torch.testing.assert_close(found.lexical_BV, vectors_of(opened(tmp_path, "SparseEncoder")), rtol=1e-5, atol=1e-5)


def test_a_plain_folder_is_the_vector_of_cls(base: Path) -> None:
    assert read_facts(base).representation == Representation()
    assert read_projection(base) is None and read_facts(base).form == TextForm()


LIMITS = [
    ({}, 64, 34), ({}, 20, 20), ({}, 10**30, 34), ({"model_type": "roberta", "pad_token_id": 1}, 64, 32),
    ({"max_position_embeddings": -1}, 10**30, None),
]  # fmt: skip


@pytest.mark.parametrize(("config", "limit", "length"), LIMITS)
def test_a_plain_folder_reads_what_its_tokenizer_and_its_positions_allow(base, tmp_path, config, limit, length) -> None:
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
    "cut vectors": (settings(truncate_dim=4), "truncate_dim = 4"),
    "a stranger's activation": (dense(activation_function="mine.Identity"), "activation Tanh"),
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
    assert read_facts(folder).representation.width == 8
    spoil(folder)
    with pytest.raises(UserError, match=message) as error:
        read_facts(folder)
    assert "\n" not in str(error.value)


def test_a_sum_of_weights_is_not_their_maximum(base: Path, tmp_path: Path) -> None:
    sparse_model(base, strategy="sum").save(str(tmp_path / "theirs"))
    with pytest.raises(UserError, match="SpladePooling by sum of relu"):
        read_facts(tmp_path / "theirs")
    sparse_model(base, similarity_fn_name="cosine").save(str(tmp_path / "cosine"))
    with pytest.raises(UserError, match="by dot"):
        read_facts(tmp_path / "cosine")


def vectors(folder: Path, place: Path) -> dict[str, np.ndarray]:
    """Dense vectors of TEXTS as passages, all but the first with a title, and as queries, by a search's own steps."""
    docs = [(f"d{row}", "mat" if row else "", text) for row, text in enumerate(TEXTS)]
    queries = [(f"q{row}", text) for row, text in enumerate(TEXTS)]
    qrels = [("test", f"q{row}", f"d{row}", 1) for row in range(len(TEXTS))]
    corpus = write_parts(Place(str(place / "corpus")), docs=docs, queries=queries, qrels=qrels)
    config = as_folder_reads(RECIPES["none"](), folder, ()).tokens
    tokens = Artifact(Place(str(place / "tokens")), {"fingerprint": "t", "config": config.model_dump()})
    tokens.record["result"] = tokenise(config, {"corpus": corpus}, tokens.place)
    inputs = {"corpus": corpus, "tokens": tokens}
    inputs["model"] = Artifact(Place(str(place / "adopt")), {"fingerprint": "m", "result": {}})
    adopt(AdoptConfig(folder=str(folder)), {}, inputs["model"].place)
    found = {}
    for side, split in (("passages", None), ("queries", "test")):
        out = Place(str(place / side))
        encode(EncodeConfig.model_validate({"side": side, "split": split}), inputs, out)
        with (out / "dense" / "00000.npy").reading() as stream:
            found[side] = np.load(stream)
    return found


WRITTEN = [f"{'mat' if row else ''} {text}".strip() for row, text in enumerate(TEXTS)]
"""The passages of `vectors` as texts."""

PROMPTED: list[tuple[dict[str, str], str | None, str, bool]] = [
    ({"query": "red dog .", "document": "the"}, None, "cls", True),
    ({"query": "red dog .", "passage": "the"}, None, "mean", True),  # which is no name that version 6 comes to
    ({"query": "", "document": "a cat", "web": "blue"}, "web", "mean", False),  # an empty name is a prompt
    ({"web": "blue"}, "web", "mean", True),  # for neither side
]


@pytest.mark.parametrize(("prompts", "default", "mode", "pooled"), PROMPTED, ids=str)
def test_prompts_are_put_before_texts_as_sentence_transformers_does(
    prompts: dict[str, str], default: str | None, mode: str, pooled: bool, base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    dense_model(base, pooling_mode=mode, include_prompt=pooled).save(str(folder))
    settings(prompts=prompts, default_prompt_name=default)(folder)
    theirs, found = opened(folder), vectors(folder, tmp_path)
    np.testing.assert_allclose(found["passages"], theirs.encode_document(WRITTEN), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["queries"], theirs.encode_query(TEXTS), rtol=1e-4, atol=1e-4)


def in_subfolder(folder: Path) -> None:
    """As versions 0 to 2 saved it: the transformer in 0_Transformer, a version alone in config.json."""
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json", "README.md"):
            file.rename(inner / file.name)
    (folder / "config.json").write_text('{"__version__": "0.4.1"}')
    old = {"path": inner.name, "type": "sentence_transformers.models.Transformer"}
    change_modules(lambda modules: [modules[0] | old, *modules[1:]])(folder)


READINGS: dict[str, Callable[[Path], None]] = {
    "0_Transformer": in_subfolder,
    "no similarity is the cosine": settings(similarity_fn_name=None),
    "lengths of sides": transformer(query_length=8, document_length=9),
    "a side longer than the rest": transformer(max_seq_length=6, document_length=9),
    "cut on the left": tokenizer(truncation_side="left"),
}


@pytest.mark.parametrize(
    ("case", "projected"), [*((case, False) for case in READINGS), ("0_Transformer", True), ("lengths of sides", True)]
)
def test_scores_are_those_of_sentence_transformers(case: str, projected: bool, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    dense_model(base, pooling_mode="mean", width=8 if projected else None, normalise=projected).save(str(folder))
    READINGS[case](folder)
    found, theirs = vectors(folder, tmp_path), opened(folder)
    expected = theirs.similarity(theirs.encode_query(TEXTS), theirs.encode_document(WRITTEN))
    np.testing.assert_allclose(found["queries"] @ found["passages"].T, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    dense_model(base).save(str(tmp_path / "theirs"))
    return tmp_path / "theirs"


# fmt: off
PROMPTS: list[tuple[dict[str, str] | None, str | None, tuple[str, str]]] = [
    ({"query": "query: ", "passage": "passage: "}, None, ("query: ", "")), ({"web": "Find: "}, "web", ("", "")),
    ({"query": "q", "document": "d", "corpus": "c"}, None, ("q", "d")), (None, None, ("", "")),
]
# fmt: on


@pytest.mark.parametrize(("prompts", "default", "read"), PROMPTS)
def test_prompts_are_those_that_version_6_puts_before_texts(folder, prompts, default, read) -> None:
    settings(prompts=prompts, default_prompt_name=default)(folder)
    assert read_facts(folder).form == TextForm(query_prompt=read[0], passage_prompt=read[1])


def test_lengths_beyond_the_positions_are_cut_there(folder: Path) -> None:
    transformer(max_seq_length=1024)(folder)
    assert read_facts(folder).passage_length == 34


def saved(base: Path, folder: Path, *, sparse: bool) -> Any:
    """What sentence-transformers makes of a Hugging Face folder, saved: SPLADE of 5 words, or a projected mean."""
    made = {"max_active_dims": 5} if sparse else {"pooling_mode": "mean", "width": 8, "normalise": True}
    model = (sparse_model if sparse else dense_model)(base, **made)
    model.save(str(folder))
    return model


def rows_of(folder: Path) -> list[np.ndarray]:
    return [np.array(row) for row in load_tokenizer(folder)(TEXTS, max_length=12, truncation=True)["input_ids"]]


ALBERT = {"vocab_size": 40, "hidden_size": 32, "embedding_size": 16, "num_attention_heads": 4, "intermediate_size": 48}
"""A model of a family that midmask cannot train."""


def albert(tokenizer_folder: Path, folder: Path, kind: Any) -> Path:
    torch.manual_seed(0)
    kind(AlbertConfig(**ALBERT, num_hidden_layers=2)).save_pretrained(folder)
    load_tokenizer(tokenizer_folder).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_dense_search_takes_any_architecture(family, base, tokenizer_folder, vocabulary, tmp_path) -> None:
    start = base if family == "bert" else albert(tokenizer_folder, tmp_path / "base", AlbertModel)
    theirs = saved(start, tmp_path / "theirs", sparse=False)
    encoder = open_encoder(tmp_path / "theirs", vocabulary, "query")
    views = encoder.encode(rows_of(tmp_path / "theirs"))
    assert views.lexical is None and views.dense_ND is not None
    np.testing.assert_allclose(views.dense_ND, theirs.encode(TEXTS), rtol=1e-5, atol=1e-5)


def test_lexical_search_gives_the_weights_of_sparse_encoder(base: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    theirs = saved(base, tmp_path / "theirs", sparse=True)
    encoder = open_encoder(tmp_path / "theirs", vocabulary, "passage")
    terms = read_facts(tmp_path / "theirs").representation.terms("passage")
    views = replace(encoder, terms=terms).encode(rows_of(tmp_path / "theirs"))
    assert views.dense_ND is None and views.lexical is not None
    expected_NV = theirs.encode(TEXTS).to_dense().numpy()
    assert (np.count_nonzero(expected_NV, axis=1) == 5).any()
    np.testing.assert_allclose(views.lexical.toarray(), expected_NV, rtol=1e-5, atol=1e-5)


def test_a_lexical_view_needs_a_family_whose_head_is_known(tokenizer_folder, vocabulary, tmp_path) -> None:
    saved(albert(tokenizer_folder, tmp_path / "base", AlbertForMaskedLM), tmp_path / "theirs", sparse=True)
    with pytest.raises(UserError, match="backbone family 'albert'"):
        open_encoder(tmp_path / "theirs", vocabulary, "passage")
