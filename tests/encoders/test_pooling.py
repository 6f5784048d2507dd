"""A bi-encoder's folder, copied elsewhere and read by other libraries, gives the vectors midmask gives."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from midmask.encoders.backbone import load_backbone
from midmask.encoders.facts import read_representation
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.pooling import cls_vectors
from midmask.encoders.representation import Representation
from midmask.vocabulary import load_tokenizer
from tests.encoders.conftest import TEXTS


@pytest.fixture(params=["bert", "roberta", "distilbert", "deberta-v2", "modernbert", "electra, narrow words"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("normalise", [False, True])
@torch.no_grad()
def test_transformers_and_sentence_transformers_give_the_same_vectors(
    model_folder: Path, tokenizer_folder: Path, tmp_path: Path, normalise: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    tokens = load_tokenizer(tokenizer_folder)(TEXTS, padding=True, return_tensors="pt", max_length=12, truncation=True)
    lengths = tokens["attention_mask"].sum(1)
    backbone = load_backbone(model_folder, dropout=0.3).eval()
    expected = cls_vectors(backbone, tokens["input_ids"], lengths, normalise=normalise)

    backbone.represent_as(Representation(normalise=normalise), seed=0)
    save_bi_encoder(backbone, tmp_path / "made", tokenizer_folder, max_length=12)
    folder = Path(shutil.copytree(tmp_path / "made", tmp_path / "elsewhere"))
    shutil.rmtree(tmp_path / "made")

    inputs = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"]}
    plain = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state[:, 0]
    if normalise:
        plain = plain / plain.norm(dim=1, keepdim=True)
    torch.testing.assert_close(plain, expected, rtol=1e-5, atol=1e-5)

    sentences = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    found = sentences.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert sentences.similarity_fn_name == "dot" and sentences.max_seq_length == 12
    assert read_representation(folder) == Representation(normalise=normalise)

    again = cls_vectors(load_backbone(folder, dropout=0.0).eval(), tokens["input_ids"], lengths, normalise=normalise)
    torch.testing.assert_close(again, expected, rtol=1e-5, atol=1e-5)
