"""A bi-encoder's folder, copied elsewhere and read by other libraries, gives the vectors midmask gives."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM

from midmask.encoders.backbone import Backbone, Side
from midmask.encoders.experts import ExpertSplit
from midmask.encoders.folder import load_bi_encoder, save_bi_encoder, take_projection
from midmask.encoders.model_settings import (
    FILE,
    ModelSettings,
    read_facts,
    read_projection,
    read_representation,
    view_widths,
)
from midmask.encoders.representation import Representation, TextVectors
from midmask.encoders.text_form import TextForm
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS, random_model
from tests.support.encoders.public import opened, vectors_of

DENSE = {
    "[CLS]": Representation(),
    "mean": Representation(dense="mean"),
    "projected": Representation(width=8),
    "mean, projected, length 1": Representation(dense="mean", width=8, normalise=True),
}
LEXICAL = {
    "splade": Representation(dense=None, lexical="splade"),
    "splade, 3 words": Representation(dense=None, lexical="splade", query_terms=3, passage_terms=3),
}
BEYOND = {
    "without special tokens": Representation(dense=None, lexical="splade", specials=False),
    "logits": Representation(dense=None, lexical="logits", passage_terms=9),
}
FAMILIES = (
    "bert",
    "roberta",
    "distilbert",
    "deberta-v2",
    "deberta, published head",
    "modernbert",
    "electra, narrow words",
)


def cases(kinds: list[str]) -> list[tuple[str, str]]:
    """Every kind on BERT, the last one on every family."""
    return [*(("bert", kind) for kind in kinds), *((family, kinds[-1]) for family in FAMILIES[1:])]


@torch.no_grad()
def backbone_of(family: str, representation: Representation, split: ExpertSplit | None = None) -> Backbone:
    """Random weights; with experts, those of queries have moved away."""
    backbone = Backbone(random_model(family), dropout=0.0, split=split).eval()
    torch.manual_seed(1)
    for weight in backbone.experts.parameters() if backbone.experts is not None else ():
        weight.add_(0.1 * torch.randn_like(weight))
    backbone.represent_as(representation, seed=3)
    return backbone


@torch.no_grad()
def views(backbone: Backbone, tokenizer_folder: Path, side: Side = "passage") -> TextVectors:
    tokens = load_tokenizer(tokenizer_folder)(TEXTS, padding=True, return_tensors="pt", max_length=12, truncation=True)
    special_V = Vocabulary.of(tokenizer_folder).special_V
    lengths_B = tokens["attention_mask"].sum(1)
    found: TextVectors = backbone.pooling(backbone, tokens["input_ids"], lengths_B, special_V, side)
    return found


def moved(backbone: Backbone, tokenizer_folder: Path, tmp_path: Path, **more: Any) -> Path:
    """The folder, saved in one place and moved to another."""
    save_bi_encoder(backbone, tmp_path / "made", tokenizer_folder, max_length=12, **more)
    return Path(shutil.move(tmp_path / "made", tmp_path / "elsewhere"))


def close(found: Tensor, expected: Tensor | None) -> None:
    assert expected is not None
    torch.testing.assert_close(found.to_dense() if found.is_sparse else found, expected, rtol=1e-5, atol=1e-5)


def same_views(found: TextVectors, expected: TextVectors) -> None:
    assert len(found.tensors()) == len(expected.tensors())
    for left, right in zip(found.tensors(), expected.tensors(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


@pytest.mark.parametrize(("family", "kind"), [*cases(list(DENSE)), *cases(list(LEXICAL))])
@torch.no_grad()
def test_other_libraries_give_the_view(family: str, kind: str, tokenizer_folder: Path, tmp_path: Path) -> None:
    """Dense and lexical vectors by sentence-transformers, hidden states by transformers."""
    representation = {**DENSE, **LEXICAL}[kind]
    backbone = backbone_of(family, representation)
    expected = views(backbone, tokenizer_folder)
    folder = moved(backbone, tokenizer_folder, tmp_path)
    theirs = opened(folder, "SentenceTransformer" if kind in DENSE else "SparseEncoder")
    close(vectors_of(theirs), expected.tensors()[0])
    assert theirs.similarity_fn_name == "dot" and theirs.max_seq_length == 12
    same_views(views(load_bi_encoder(folder, dropout=0.3).eval(), tokenizer_folder), expected)
    assert read_facts(folder) == ModelSettings(representation=representation, query_length=12, passage_length=12)
    assert view_widths(folder) == {"dense" if kind in DENSE else "lexical": expected.tensors()[0].shape[1]}
    ids_BL = torch.tensor([[2, 9, 10, 3]])
    states_BLD = AutoModel.from_pretrained(folder).eval()(input_ids=ids_BL).last_hidden_state
    close(states_BLD, backbone.hidden(ids_BL, torch.tensor([4])))


ROUTED = [
    *((family, "ffn", "mean, projected, length 1") for family in FAMILIES),
    *(("bert", "all", kind) for kind in ("mean, projected, length 1", "splade, 3 words")),
    *((family, "ffn", "splade, 3 words") for family in ("bert", "deberta, published head")),
]


@pytest.mark.parametrize(("family", "split", "kind"), ROUTED)
def test_queries_take_the_route_of_their_experts(
    family: str, split: Literal["ffn", "all"], kind: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    backbone = backbone_of(family, {**DENSE, **LEXICAL}[kind], ExpertSplit(split))
    folder = moved(backbone, tokenizer_folder, tmp_path)
    theirs = opened(folder, "SentenceTransformer" if kind in DENSE else "SparseEncoder")
    again = load_bi_encoder(folder, dropout=0.0).eval()
    encoders: dict[Side, Callable[..., Tensor]] = {"query": theirs.encode_query, "passage": theirs.encode_document}
    for side, encode in encoders.items():
        expected = views(backbone, tokenizer_folder, side)
        close(encode(TEXTS, convert_to_tensor=True), expected.tensors()[0])
        same_views(views(again, tokenizer_folder, side), expected)
    query, passage = (views(backbone, tokenizer_folder, side).tensors()[0] for side in encoders)
    assert not torch.allclose(query, passage, atol=0.01)


@pytest.mark.parametrize("family", ["bert", "electra, narrow words"])
def test_of_a_hybrid_sentence_transformer_gives_the_dense_view(
    family: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    backbone = backbone_of(family, Representation(width=8, lexical="logits", passage_terms=9))
    folder = moved(backbone, tokenizer_folder, tmp_path)
    close(vectors_of(opened(folder)), views(backbone, tokenizer_folder).dense_BD)
    again = load_bi_encoder(folder, dropout=0.0).eval()
    for side in ("query", "passage"):
        same_views(views(again, tokenizer_folder, side), views(backbone, tokenizer_folder, side))
    assert view_widths(folder) == {"dense": 8, "lexical": 40}


@pytest.mark.parametrize("kind", BEYOND)
@torch.no_grad()
def test_a_view_that_stock_modules_cannot_give_is_not_promised_by_any(
    kind: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    backbone = backbone_of("bert", BEYOND[kind])
    folder = moved(backbone, tokenizer_folder, tmp_path)
    assert not (folder / "modules.json").exists()
    same_views(views(load_bi_encoder(folder, dropout=0.0).eval(), tokenizer_folder), views(backbone, tokenizer_folder))
    ids_BL = torch.tensor([[2, 9, 10, 3]])
    logits_BLV = AutoModelForMaskedLM.from_pretrained(folder).eval()(input_ids=ids_BL).logits
    torch.testing.assert_close(logits_BLV, backbone.model(input_ids=ids_BL).logits, rtol=1e-5, atol=1e-5)


def test_an_output_matrix_borrowed_from_the_query_experts_words_is_not_promised(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    backbone = backbone_of("deberta, published head", LEXICAL["splade"], ExpertSplit("all"))
    folder = moved(backbone, tokenizer_folder, tmp_path)
    assert not (folder / "modules.json").exists()
    again = load_bi_encoder(folder, dropout=0.0).eval()
    same_views(views(again, tokenizer_folder, "query"), views(backbone, tokenizer_folder, "query"))


def test_a_projection_is_taken_over_if_it_fits(tokenizer_folder: Path, tmp_path: Path) -> None:
    backbone = backbone_of("bert", Representation(width=8))
    folder = moved(backbone, tokenizer_folder, tmp_path)
    fresh = backbone_of("bert", Representation(width=8, lexical="splade"))
    fresh.represent_as(fresh.pooling.representation, seed=4)
    assert backbone.pooling.projection is not None and fresh.pooling.projection is not None
    assert not torch.equal(fresh.pooling.projection.weight, backbone.pooling.projection.weight)
    assert take_projection(fresh, folder)
    torch.testing.assert_close(fresh.pooling.projection.weight, backbone.pooling.projection.weight, rtol=0, atol=0)
    assert not take_projection(backbone_of("bert", Representation()), folder)
    with pytest.raises(UserError, match=r"\(8, 32\), .*\(6, 32\)\. .*representation.width = 8"):
        take_projection(backbone_of("bert", Representation(width=6)), folder)
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(UserError, match="no projection"):
        read_projection(folder)


def test_a_folder_keeps_how_texts_were_written(tokenizer_folder: Path, tmp_path: Path) -> None:
    form = TextForm(titles=False, query_prompt="red ", passage_prompt="blue ")
    folder = moved(backbone_of("bert", Representation()), tokenizer_folder, tmp_path, form=form)
    assert read_facts(folder).form == form
    assert opened(folder).prompts == {"query": "red ", "document": "blue "}
    (folder / FILE).write_text('{"format": 1, "representation": {}, "query_length": 8, "passage_length": 9}')
    assert read_facts(folder) == ModelSettings(
        format=1, representation=Representation(), query_length=8, passage_length=9
    )


FAULTS: dict[str, tuple[dict[str, Any] | list[Any] | str, str]] = {
    "newer": ({"format": 4, "representation": {}, "views": 3}, r"format = 4, .* 3"),
    "unknown key": ({"format": 1, "representation": {}, "depth": 3}, r"midmask\.json\.depth"),
    "unknown view": ({"format": 1, "representation": {"dense": "max"}}, r"representation\.dense = 'max'"),
    "a list": ([], "a list"),
    "torn": ('{"format": 1, ', "not JSON"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_midmask_json_must_not_say(fault: str, tmp_path: Path) -> None:
    content, message = FAULTS[fault]
    (tmp_path / FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=message) as error:
        read_representation(tmp_path)
    assert "\n" not in str(error.value)
