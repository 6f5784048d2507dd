"""A bi-encoder's and a cross-encoder's folder, copied elsewhere and read by other libraries, gives what midmask gives;
pairs are as the tokenizer joins them; what is no model of a kind is refused.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as PublicCrossEncoder
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from midmask.core.batch import TokenRows
from midmask.encoders.backbone import Backbone, BackboneConfig
from midmask.encoders.cross_encoder import CrossEncoder, build_cross_encoder, read_cross_encoder, template_of
from midmask.encoders.experts import ExpertSplit
from midmask.encoders.folder import load_bi_encoder, read_projection, save_bi_encoder, take_projection, view_widths
from midmask.encoders.model_settings import FILE, ModelSettings, TextForm, read_facts
from midmask.encoders.representation import Representation, Side, TextVectors
from midmask.errors import UserError
from midmask.text.tokens import encoder
from tests.support.encoders.models import (
    LONGEST,
    TEMPLATES,
    TEXTS,
    WORDS,
    random_model,
    write_classifier,
    write_tokenizer,
)
from tests.support.encoders.public import opened, vectors_of, views

DENSE = {
    "of a hybrid": Representation(width=8, lexical="logits", passage_terms=9), "[CLS]": Representation(),
    "mean": Representation(dense="mean"), "projected": Representation(width=8),
    "mean, projected, length 1": Representation(dense="mean", width=8, normalise=True),
}  # fmt: skip
LEXICAL = {
    "splade": Representation(dense=None, lexical="splade"),
    "splade, 3 words": Representation(dense=None, lexical="splade", query_terms=3, passage_terms=3),
}
BEYOND = {
    "without special tokens": Representation(dense=None, lexical="splade", specials=False),
    "logits": Representation(dense=None, lexical="logits", passage_terms=9),
}
FAMILIES = (
    "bert", "roberta", "distilbert", "deberta-v2", "deberta, published head", "modernbert", "electra, narrow words"
)  # fmt: skip


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
    names = ["dense"] * (kind in DENSE) + ["lexical"] * (expected.lexical_BV is not None)
    assert view_widths(folder) == {n: v.shape[1] for n, v in zip(names, expected.tensors(), strict=True)}
    ids_BL = torch.tensor([[2, 9, 10, 3]])
    states_BLD = AutoModel.from_pretrained(folder).eval()(input_ids=ids_BL).last_hidden_state
    close(states_BLD, backbone.hidden(ids_BL, torch.tensor([4])))


ROUTED = [
    *((family, "ffn", "mean, projected, length 1") for family in FAMILIES),
    *(("bert", "all", kind) for kind in ("mean, projected, length 1", "splade, 3 words")),
    *((family, "ffn", "splade, 3 words") for family in ("bert", "deberta, published head")),
]


@pytest.mark.parametrize(("family", "split", "kind"), ROUTED)
def test_queries_take_the_route_of_their_experts(family, split, kind, tokenizer_folder, tmp_path) -> None:
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


@pytest.mark.parametrize("kind", BEYOND)
@torch.no_grad()
def test_a_view_that_stock_modules_cannot_give_is_not_promised_by_any(kind, tokenizer_folder, tmp_path) -> None:
    backbone = backbone_of("bert", BEYOND[kind])
    folder = moved(backbone, tokenizer_folder, tmp_path)
    assert not (folder / "modules.json").exists()
    same_views(views(load_bi_encoder(folder, dropout=0.0).eval(), tokenizer_folder), views(backbone, tokenizer_folder))
    ids_BL = torch.tensor([[2, 9, 10, 3]])
    logits_BLV = AutoModelForMaskedLM.from_pretrained(folder).eval()(input_ids=ids_BL).logits
    torch.testing.assert_close(logits_BLV, backbone.model(input_ids=ids_BL).logits, rtol=1e-5, atol=1e-5)


def test_an_output_matrix_borrowed_from_the_query_experts_words_is_not_promised(tokenizer_folder, tmp_path) -> None:
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
    old = ModelSettings(format=1, representation=Representation(), query_length=8, passage_length=9)
    assert read_facts(folder) == old


FAULTS: dict[str, tuple[dict[str, Any] | list[Any] | str, str]] = {
    "newer": ({"format": 4, "representation": {}, "views": 3}, r"format = 4, .* 3"),
    "unknown key": ({"format": 1, "representation": {}, "depth": 3}, r"midmask\.json\.depth"),
    "unknown view": ({"format": 1, "representation": {"dense": "max"}}, r"representation\.dense = 'max'"),
    "a list": ([], "a list"),
    "torn": ('{"format": 1, ', "cannot be read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_midmask_json_must_not_say(fault: str, tmp_path: Path) -> None:
    content, message = FAULTS[fault]
    (tmp_path / FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=message) as error:
        read_facts(tmp_path)
    assert "\n" not in str(error.value)


PAIRS_FAMILIES = ["bert", "roberta", "distilbert", "electra", "deberta", "deberta-v2", "modernbert"]


def some_pairs(count: int = 12) -> list[tuple[str, str]]:
    """Queries of up to 6 words, passages of none to 30, so that some pairs are cut at LONGEST."""
    draw = random.Random(3)
    return [
        (" ".join(draw.choices(WORDS, k=draw.randint(1, 6))), " ".join(draw.choices(WORDS, k=draw.randint(0, 30))))
        for _ in range(count)
    ]


def rows(texts: list[str], folder: Path) -> TokenRows:
    ids = [torch.tensor(row) for row in encoder(folder, 100)(texts)]
    lengths_B = torch.tensor([len(row) for row in ids])
    return TokenRows(torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths_B, torch.zeros_like(lengths_B))


def own_scores(model: CrossEncoder, folder: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    """By the path of training: texts tokenised one by one, joined as tensors."""
    queries, passages = (rows(list(texts), folder) for texts in zip(*pairs, strict=True))
    with torch.no_grad():
        return model.eval()(model.join(queries, passages)).numpy()


def trained(family: str, tmp_path: Path) -> tuple[CrossEncoder, Path]:
    """A cross-encoder on a random masked LM, its head moved off its small starting values; and the tokenizer."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer", "roberta" if family == "roberta" else "bert")
    random_model(family).save_pretrained(tmp_path / "start")
    config = BackboneConfig(name=str(tmp_path / "start"), dropout=0.1)
    model = build_cross_encoder(config, tokenizer, max_length=LONGEST, seed=1)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model, tokenizer


JOINED = {"truncation": "only_second", "max_length": LONGEST, "return_token_type_ids": True, "return_tensors": "pt"}


@pytest.mark.parametrize("template", [name for name, (_, pair) in TEMPLATES.items() if pair])
def test_pairs_are_those_of_the_tokenizer(template: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path, template))
    model = CrossEncoder(torch.nn.Identity(), template_of(tokenizer, typed=True), LONGEST)
    for pair in some_pairs(40):
        wanted = tokenizer([pair], **JOINED)
        found = model.join(*(rows([text], tmp_path) for text in pair))
        assert found.types_NL is not None and found.lengths_N.tolist() == [wanted["input_ids"].shape[1]]
        assert torch.equal(found.ids_NL, wanted["input_ids"]), tokenizer.decode(found.ids_NL[0])
        assert torch.equal(found.types_NL, wanted["token_type_ids"])


def test_a_list_is_joined_to_its_query_and_padded(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path, "bert"))
    model = CrossEncoder(torch.nn.Identity(), template_of(tokenizer, typed=True), LONGEST)
    queries = [" ".join(WORDS[:6]), WORDS[7]]  # the longest passage is not in the longest pair
    passages = [" ".join(WORDS[:words]) for words in (2, 3, 5, 1, 4, 6)]
    found = model.join(rows(queries, tmp_path), rows(passages, tmp_path), group=3)
    pairs = [(queries[row // 3], passages[row]) for row in range(6)]
    wanted = tokenizer(pairs, padding=True, **JOINED)
    assert torch.equal(found.ids_NL, wanted["input_ids"]) and torch.equal(found.types_NL, wanted["token_type_ids"])
    assert found.lengths_N.tolist() == wanted["attention_mask"].sum(1).tolist()


@pytest.mark.parametrize("family", PAIRS_FAMILIES)
def test_the_folder_scores_alike_in_every_library(family: str, tmp_path: Path) -> None:
    model, tokenizer = trained(family, tmp_path)
    own = own_scores(model, tokenizer, some_pairs())
    assert np.ptp(own) > 0.05, "scores so alike would prove nothing"
    folder = tmp_path / "saved"
    model.save(folder, tokenizer)

    public = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(some_pairs(), padding=True, **JOINED)
    with torch.no_grad():
        np.testing.assert_allclose(public(**inputs).logits[:, 0].numpy(), own, atol=1e-5)
    np.testing.assert_allclose(PublicCrossEncoder(str(folder), device="cpu").predict(some_pairs()), own, atol=1e-5)
    np.testing.assert_allclose(own_scores(read_cross_encoder(folder), folder, some_pairs()), own, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_training_begins_with_the_encoder_s_weights(family: str, tmp_path: Path) -> None:
    start = random_model(family)
    start.save_pretrained(tmp_path / "start")
    tokenizer = write_tokenizer(tmp_path / "tokenizer", "bert")
    config = BackboneConfig(name=str(tmp_path / "start"), dropout=0.0)
    one, same, other = (build_cross_encoder(config, tokenizer, max_length=LONGEST, seed=seed) for seed in (1, 1, 2))
    inside = dict(one.model.base_model.named_parameters())
    for name, parameter in start.base_model.named_parameters():
        assert torch.equal(inside[name], parameter), name
    heads = [dict(model.named_parameters()) for model in (one, same, other)]
    for name in [name for name in heads[0] if name.endswith(("classifier.weight", "out_proj.weight"))]:
        assert torch.equal(heads[0][name], heads[1][name]) and not torch.equal(heads[0][name], heads[2][name])
    one.train()
    assert {module.p for module in one.modules() if isinstance(module, torch.nn.Dropout)} <= {0.0}


def test_of_two_labels_the_score_is_the_log_odds_of_the_second(tmp_path: Path) -> None:
    public = write_classifier(tmp_path, 2)
    inputs = AutoTokenizer.from_pretrained(tmp_path)(some_pairs(), padding=True, return_tensors="pt")
    with torch.no_grad():
        share_N = public(**inputs).logits.double().softmax(1)[:, 1]
    wanted = torch.log(share_N / (1 - share_N)).numpy()
    np.testing.assert_allclose(own_scores(read_cross_encoder(tmp_path), tmp_path, some_pairs()), wanted, atol=1e-5)


def test_what_is_no_teacher_is_refused(tmp_path: Path, tokenizer_folder: Path) -> None:
    write_classifier(tmp_path / "three", 3)
    with pytest.raises(UserError, match="3 labels"):
        read_cross_encoder(tmp_path / "three")
    write_classifier(tmp_path / "one", 1).base_model.save_pretrained(tmp_path / "headless")
    write_tokenizer(tmp_path / "headless", "bert")
    with pytest.raises(UserError, match="no classification head"):
        read_cross_encoder(tmp_path / "headless")
    with pytest.raises(UserError, match="no model can be read there"):
        read_cross_encoder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no special token between two texts"):
        template_of(AutoTokenizer.from_pretrained(tokenizer_folder), typed=False)
    with pytest.raises(UserError, match=r"max_length = 600, .* 512"):
        build_cross_encoder(BackboneConfig(), write_tokenizer(tmp_path / "plain", "bert"), max_length=600, seed=0)
