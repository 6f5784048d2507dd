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
from torch import Tensor, nn

from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.model_settings import read_facts, read_projection, read_representation
from midmask.encoders.representation import Representation, TextVectors
from midmask.encoders.text_form import TextForm
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS, random_model

OLD, OLD_SPARSE = "sentence_transformers.models.", "sentence_transformers.sparse_encoder.models."


@pytest.fixture
def base(tokenizer_folder: Path, tmp_path: Path) -> str:
    """A masked LM with its tokenizer, as found anywhere."""
    random_model("bert").save_pretrained(tmp_path / "base")
    load_tokenizer(tokenizer_folder).save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


@torch.no_grad()
def views(folder: Path) -> TextVectors:
    backbone = load_bi_encoder(folder, dropout=0.1).eval()
    tokens = load_tokenizer(folder)(TEXTS, padding=True, return_tensors="pt", max_length=12, truncation=True)
    lengths_B = tokens["attention_mask"].sum(1)
    found: TextVectors = backbone.pooling(
        backbone, tokens["input_ids"], lengths_B, Vocabulary.of(folder).special_V, "passage"
    )
    return found


def dense_model(base: str, mode: str = "cls", *, width: int | None = None, normalise: bool = False, **more: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(0)
    projection = [] if width is None else [Dense(32, width, bias=False, activation_function=nn.Identity())]
    modules = [
        Transformer(base, max_seq_length=12),
        Pooling(32, mode),
        *projection,
        *([Normalize()] if normalise else []),
    ]
    return SentenceTransformer(modules=modules, device="cpu", **{"similarity_fn_name": "dot", **more})


def sparse_model(base: str, *, strategy: str = "max", **more: Any) -> Any:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    transformer = Transformer(base, transformer_task="fill-mask", max_seq_length=12)
    return SparseEncoder(modules=[transformer, SpladePooling(strategy)], device="cpu", **more)


def changed(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def as_version_2(folder: Path) -> None:
    """The class paths, keys and files of versions 2 to 5.3."""
    settings = json.loads((folder / "sentence_bert_config.json").read_text())
    fill_mask = settings.get("transformer_task") == "fill-mask"

    def old_class(module: dict[str, Any]) -> dict[str, Any]:
        name = module["type"].rpartition(".")[2]
        name = "MLMTransformer" if name == "Transformer" and fill_mask else name
        return {**module, "type": (OLD_SPARSE if name in ("MLMTransformer", "SpladePooling") else OLD) + name}

    changed(folder / "modules.json", lambda modules: [old_class(module) for module in modules])
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
    if (folder / "1_Pooling").exists():
        modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
        changed(
            folder / "1_Pooling" / "config.json",
            lambda config: (
                {"word_embedding_dimension": 32}
                | {f"pooling_mode_{mode}": mode.startswith(config["pooling_mode"] + "_t") for mode in modes}
            ),
        )
    if (folder / "2_Dense").exists():
        weights = {"linear.weight": read_projection(folder)}
        (folder / "2_Dense" / "model.safetensors").unlink()
        torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")


@pytest.mark.parametrize("old", [False, True], ids=["version 6", "version 2"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("width", [None, 8])
@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_a_dense_folder_gives_its_own_vectors(
    base: str, tmp_path: Path, mode: str, width: int | None, normalise: bool, old: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "theirs"
    dense_model(base, mode, width=width, normalise=normalise).save(str(folder))
    if old:
        as_version_2(folder)
    expected = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(
        TEXTS, convert_to_tensor=True
    )
    facts = read_facts(folder)
    assert facts.representation == Representation.model_validate(
        {"dense": mode, "width": width, "normalise": normalise}
    )
    assert facts.passage_length == facts.query_length == 12
    found = views(folder)
    assert found.lexical_BV is None and found.dense_BD is not None
    torch.testing.assert_close(found.dense_BD, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("old", [False, True], ids=["version 6", "version 5.0"])
@pytest.mark.parametrize("terms", [None, 3])
def test_a_sparse_folder_gives_its_own_weights(base: str, tmp_path: Path, terms: int | None, old: bool) -> None:
    from sentence_transformers import SparseEncoder

    folder = tmp_path / "theirs"
    sparse_model(base, max_active_dims=terms).save(str(folder))
    if old:
        as_version_2(folder)
    expected: Tensor = SparseEncoder(str(folder), device="cpu", local_files_only=True).encode(TEXTS)
    wanted = Representation(dense=None, lexical="splade", query_terms=terms, passage_terms=terms)
    assert read_representation(folder) == wanted and read_facts(folder).passage_length == 12
    found = views(folder)
    assert found.dense_BD is None and found.lexical_BV is not None
    torch.testing.assert_close(found.lexical_BV, expected.to_dense(), rtol=1e-5, atol=1e-5)


def test_vectors_whose_similarity_is_the_cosine_are_given_length_1(base: str, tmp_path: Path) -> None:
    model = dense_model(base, similarity_fn_name="cosine")
    model.save(str(tmp_path / "theirs"))
    vectors_BD = views(tmp_path / "theirs").dense_BD
    assert vectors_BD is not None
    expected_BB = model.similarity(*[model.encode(TEXTS, convert_to_tensor=True)] * 2)
    torch.testing.assert_close(vectors_BD @ vectors_BD.t(), expected_BB, rtol=1e-5, atol=1e-5)


def test_a_plain_folder_is_the_vector_of_cls(base: str) -> None:
    assert read_representation(Path(base)) == Representation()
    assert read_projection(Path(base)) is None and read_facts(Path(base)).form == TextForm()


def length_of(base: str, config: dict[str, Any], tokenizer: dict[str, Any]) -> int | None:
    changed(Path(base) / "config.json", lambda old: old | config)
    changed(Path(base) / "tokenizer_config.json", lambda old: old | tokenizer)
    return read_facts(Path(base)).passage_length


def test_a_plain_folder_reads_what_its_tokenizer_and_its_positions_allow(base: str) -> None:
    assert length_of(base, {}, {}) == 34, "of 64 tokens that the tokenizer names, 34 have positions"
    assert length_of(base, {}, {"model_max_length": 20}) == 20
    assert length_of(base, {}, {"model_max_length": 10**30}) == 34
    assert length_of(base, {"model_type": "roberta", "pad_token_id": 1}, {}) == 32, "from position 2 on"
    assert length_of(base, {"max_position_embeddings": -1}, {}) is None


def settings(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "config_sentence_transformers.json", lambda old: {**old, **values})


def dense(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "2_Dense" / "config.json", lambda old: {**old, **values})


def modules(change: Callable[[list[Any]], list[Any]]) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "modules.json", change)


def pooling(mode: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "1_Pooling" / "config.json", lambda old: {**old, "pooling_mode": mode})


def pooling_config(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "1_Pooling" / "config.json", lambda old: {**old, **values})


def transformer(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "sentence_bert_config.json", lambda old: {**old, **values})


def tokenizer(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "tokenizer_config.json", lambda old: {**old, **values})


def written(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "modules.json").write_text(text)

    return write


def lowered(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')


REFUSALS: dict[str, tuple[Callable[[Path], None], str]] = {
    "max": (pooling("max"), r"1_Pooling/config\.json: pooling max; midmask pools by cls or mean"),
    "two pools": (pooling(["cls", "mean"]), r"pooling cls \+ mean"),
    "bias": (dense(bias=True), "a Dense with a bias; "),
    "activation": (dense(activation_function="torch.nn.modules.activation.Tanh"), "a Dense with the activation Tanh"),
    "residual": (dense(use_residual=True), "a Dense with a residual"),
    "other input": (dense(module_input_name="token_embeddings"), "a Dense with inputs or outputs of its own"),
    "similarity": (settings(similarity_fn_name="euclidean"), "similarity_fn_name = 'euclidean'"),
    "case": (lowered, "do_lower_case = true, but the tokenizer beside it keeps case"),
    "stranger": (modules(lambda old: [*old, {"type": "custom.Whitening", "path": ""}]), "custom.Whitening is not of"),
    "order": (modules(lambda old: [old[0], old[1], old[3], old[2]]), "Transformer, Pooling, Normalize, Dense, but"),
    "unknown": (modules(lambda old: [*old, {"type": OLD + "CNN", "path": "4"}]), "Normalize, CNN, but midmask follows"),
    "sub-folder": (modules(lambda old: [{**old[0], "path": "0_Transformer"}, *old[1:]]), "0_Transformer.* is missing"),
    "outside": (
        modules(lambda old: [{**old[0], "path": "../base"}, *old[1:]]),
        r"lies outside of the folder, at \.\./",
    ),
    "no modules": (modules(lambda old: []), "names no module"),
    "default prompt": (settings(default_prompt_name="web"), "default_prompt_name = 'web' is none of its prompts"),
    "cut behind Normalize": (settings(truncate_dim=4, similarity_fn_name="dot"), "truncate_dim = 4 behind a Normalize"),
    "pooling's width": (pooling_config(embedding_dimension=48), "embedding_dimension = 48, but .* have 32 columns"),
    "Dense's width": (dense(in_features=48), "in_features = 48, but .* have 32 columns"),
    "a stranger's activation": (dense(activation_function="mine.Identity"), "a Dense with the activation Tanh"),
    "padding": (tokenizer(padding_side="left"), "padding_side = 'left'"),
    "task": (transformer(transformer_task="fill-mask"), "transformer_task = 'fill-mask'"),
    "config": (transformer(config_args={"hidden_act": "relu"}), "config_args.hidden_act = 'relu'"),
    "processing": (transformer(processing_kwargs={"text": {"max_length": 5}}), "processing_kwargs.text"),
    "torn": (written("[{"), r"modules\.json: cannot be read"),
    "an object": (written("{}"), "a dict instead of a list"),
}


@pytest.fixture(scope="module")
def full(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense folder with every module that midmask follows."""
    folder = tmp_path_factory.mktemp("full")
    random_model("bert").save_pretrained(folder / "base")
    load_tokenizer(tokenizer_folder).save_pretrained(folder / "base")
    dense_model(str(folder / "base"), width=8, normalise=True).save(str(folder / "theirs"))
    return folder / "theirs"


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_followed_is_refused_by_name(case: str, full: Path, tmp_path: Path) -> None:
    spoil, message = REFUSALS[case]
    folder = Path(shutil.copytree(full, tmp_path / "copy"))
    assert read_representation(folder).width == 8
    spoil(folder)
    with pytest.raises(UserError, match=message) as error:
        read_representation(folder)
    assert "\n" not in str(error.value)


def test_a_sum_of_weights_is_not_their_maximum(base: str, tmp_path: Path) -> None:
    sparse_model(base, strategy="sum").save(str(tmp_path / "theirs"))
    with pytest.raises(UserError, match="SpladePooling by sum of relu; midmask supports only max of relu"):
        read_representation(tmp_path / "theirs")
    sparse_model(base, similarity_fn_name="cosine").save(str(tmp_path / "cosine"))
    with pytest.raises(UserError, match="scores lexical views by dot"):
        read_representation(tmp_path / "cosine")


def test_a_router_of_others_is_refused(base: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    routes = {side: [Transformer(base), Pooling(32, "cls")] for side in ("query", "document")}
    SentenceTransformer(modules=[Router(routes)], device="cpu").save(str(tmp_path / "theirs"))
    with pytest.raises(UserError, match="its modules are Router, but midmask follows"):
        read_representation(tmp_path / "theirs")
