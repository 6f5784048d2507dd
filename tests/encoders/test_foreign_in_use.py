"""A folder of sentence-transformers is searched with and trained further, and what comes of it is a folder again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertModel

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder, take_projection
from midmask.encoders.model_settings import read_representation
from midmask.errors import UserError
from midmask.retrieve.models import open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS
from tests.support.encoders.public import dense_model, opened, sparse_model, vectors_of


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
def test_dense_search_takes_any_architecture(
    family: str, base: Path, tokenizer_folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    start = base if family == "bert" else albert(tokenizer_folder, tmp_path / "base", AlbertModel)
    theirs = saved(start, tmp_path / "theirs", sparse=False)
    encoder = open_encoder(tmp_path / "theirs", vocabulary, "query")
    views = encode_rows(encoder, rows_of(tmp_path / "theirs"), Encoding(pad_id=vocabulary.pad_id))
    assert views.lexical is None and views.dense_ND is not None
    np.testing.assert_allclose(views.dense_ND, theirs.encode(TEXTS), rtol=1e-5, atol=1e-5)


def test_lexical_search_gives_the_weights_of_sparse_encoder(base: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    theirs = saved(base, tmp_path / "theirs", sparse=True)
    encoder = open_encoder(tmp_path / "theirs", vocabulary, "passage")
    terms = read_representation(tmp_path / "theirs").terms("passage")
    encoding = Encoding(pad_id=vocabulary.pad_id, terms=terms)
    views = encode_rows(encoder, rows_of(tmp_path / "theirs"), encoding)
    assert views.dense_ND is None and views.lexical is not None
    expected_NV = theirs.encode(TEXTS).to_dense().numpy()
    assert (np.count_nonzero(expected_NV, axis=1) == 5).any()
    for number, expected_V in enumerate(expected_NV):
        columns, weights = views.lexical.row(number)
        found_V = np.zeros_like(expected_V)
        found_V[columns] = weights
        np.testing.assert_allclose(found_V, expected_V, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_training_goes_on_from_their_folder_and_ends_in_one_they_read(
    sparse: bool, base: Path, tokenizer_folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    before = saved(base, tmp_path / "theirs", sparse=sparse)
    folder = tmp_path / "theirs"
    backbone = build_backbone(BackboneConfig(name=str(folder), dropout=0.0), vocabulary, seed=0)
    backbone.represent_as(read_representation(folder), seed=0)
    assert take_projection(backbone, folder) is not sparse
    tokens = load_tokenizer(folder)(TEXTS, padding=True, return_tensors="pt", max_length=12, truncation=True)

    def vectors() -> Tensor:
        lengths_B = tokens["attention_mask"].sum(1)
        views = backbone.pooling(backbone, tokens["input_ids"], lengths_B, vocabulary.special_V, "passage")
        found: Tensor = views.tensors()[0]
        return found

    torch.testing.assert_close(vectors(), vectors_of(before), rtol=1e-5, atol=1e-5)
    optimiser = torch.optim.SGD(backbone.parameters(), lr=0.1)
    (vectors() @ vectors().t()).sum().backward()
    optimiser.step()
    assert not torch.allclose(vectors(), vectors_of(before), atol=1e-3)

    save_bi_encoder(backbone, tmp_path / "ours", tokenizer_folder, max_length=12)
    after = opened(tmp_path / "ours", "SparseEncoder" if sparse else "SentenceTransformer")
    torch.testing.assert_close(vectors_of(after), vectors(), rtol=1e-5, atol=1e-5)


def test_a_lexical_view_needs_a_family_whose_head_is_known(
    tokenizer_folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    saved(albert(tokenizer_folder, tmp_path / "base", AlbertForMaskedLM), tmp_path / "theirs", sparse=True)
    with pytest.raises(UserError, match="backbone family 'albert'"):
        open_encoder(tmp_path / "theirs", vocabulary, "passage")
