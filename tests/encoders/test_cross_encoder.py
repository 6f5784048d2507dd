"""Cross-encoders: pairs as the tokenizer joins them, folders that other libraries read alike, and what is refused."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as PublicCrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from midmask.batch import TokenRows
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.cross_encoder import CrossEncoder, build_cross_encoder, read_cross_encoder, template_of
from midmask.errors import UserError
from midmask.token_rows import encoder
from tests.support.encoders.classifiers import write_classifier
from tests.support.encoders.models import WORDS, random_model
from tests.support.encoders.tokenizers import LONGEST, TEMPLATES, write_tokenizer

FAMILIES = ["bert", "roberta", "distilbert", "electra", "deberta", "deberta-v2", "modernbert"]


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


@pytest.mark.parametrize("template", [name for name, (_, pair) in TEMPLATES.items() if pair])
def test_pairs_are_those_of_the_tokenizer(template: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path, template))
    model = CrossEncoder(torch.nn.Identity(), template_of(tokenizer, typed=True), LONGEST)
    for pair in some_pairs(40):
        wanted = tokenizer(
            [pair], truncation="only_second", max_length=LONGEST, return_token_type_ids=True, return_tensors="pt"
        )
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
    wanted = tokenizer(
        pairs,
        truncation="only_second",
        max_length=LONGEST,
        padding=True,
        return_token_type_ids=True,
        return_tensors="pt",
    )
    assert torch.equal(found.ids_NL, wanted["input_ids"]) and torch.equal(found.types_NL, wanted["token_type_ids"])
    assert found.lengths_N.tolist() == wanted["attention_mask"].sum(1).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_folder_scores_alike_in_every_library(family: str, tmp_path: Path) -> None:
    model, tokenizer = trained(family, tmp_path)
    own = own_scores(model, tokenizer, some_pairs())
    assert np.ptp(own) > 0.05, "scores so alike would prove nothing"
    folder = tmp_path / "saved"
    model.save(folder, tokenizer)

    public = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(
        some_pairs(), truncation="only_second", padding=True, return_tensors="pt"
    )
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
    with pytest.raises(UserError, match=r"max_length = 513, .* 512"):
        read_cross_encoder(tmp_path / "one", 513)
    with pytest.raises(UserError, match="no model can be read there"):
        read_cross_encoder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no special token between two texts"):
        template_of(AutoTokenizer.from_pretrained(tokenizer_folder), typed=False)
    with pytest.raises(UserError, match=r"max_length = 600, .* 512"):
        build_cross_encoder(BackboneConfig(), write_tokenizer(tmp_path / "plain", "bert"), max_length=600, seed=0)
