"""A folder of sentence-transformers is searched with and trained further, and what comes of it is a folder again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder, take_projection
from midmask.encoders.model_settings import read_representation
from midmask.errors import UserError
from midmask.retrieve.models import open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS, random_model


def saved(base: Path, tokenizer_folder: Path, folder: Path, *, sparse: bool) -> Any:
    """What sentence-transformers makes of a Hugging Face folder, saved: SPLADE of 5 words, or a projected mean."""
    from sentence_transformers import SentenceTransformer, SparseEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    load_tokenizer(tokenizer_folder).save_pretrained(base)
    task = "fill-mask" if sparse else "feature-extraction"
    first = Transformer(str(base), transformer_task=task, max_seq_length=12)
    model: Any
    if sparse:
        model = SparseEncoder(modules=[first, SpladePooling("max")], max_active_dims=5, device="cpu")
    else:
        torch.manual_seed(0)
        projection = Dense(32, 8, bias=False, activation_function=nn.Identity())
        model = SentenceTransformer(modules=[first, Pooling(32, "mean"), projection, Normalize()], device="cpu")
    model.save(str(folder))
    return model


def rows_of(folder: Path) -> list[np.ndarray]:
    return [np.array(row) for row in load_tokenizer(folder)(TEXTS, max_length=12, truncation=True)["input_ids"]]


def albert(folder: Path) -> Path:
    """A model of a family that midmask cannot train."""
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "hidden_size": 32, "embedding_size": 16, "num_attention_heads": 4}
    AlbertModel(AlbertConfig(**shape, intermediate_size=48, num_hidden_layers=2)).save_pretrained(folder)
    return folder


def bert(folder: Path) -> Path:
    random_model("bert").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("make", [bert, albert])
def test_dense_search_takes_any_architecture(
    make: Any,
    tokenizer_folder: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    theirs = saved(make(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", sparse=False)
    encoder = open_encoder(tmp_path / "theirs", vocabulary, "query")
    views = encode_rows(encoder, rows_of(tmp_path / "theirs"), Encoding(pad_id=vocabulary.pad_id))
    assert views.lexical is None and views.dense_ND is not None
    np.testing.assert_allclose(views.dense_ND, theirs.encode(TEXTS), rtol=1e-5, atol=1e-5)


def test_lexical_search_gives_the_weights_of_sparse_encoder(
    tokenizer_folder: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    theirs = saved(bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", sparse=True)
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
    sparse: bool,
    tokenizer_folder: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    from sentence_transformers import SentenceTransformer, SparseEncoder

    before = saved(bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", sparse=sparse)
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

    torch.testing.assert_close(vectors(), dense(before), rtol=1e-5, atol=1e-5)
    optimiser = torch.optim.SGD(backbone.parameters(), lr=0.1)
    (vectors() @ vectors().t()).sum().backward()
    optimiser.step()
    assert not torch.allclose(vectors(), dense(before), atol=1e-3)

    save_bi_encoder(backbone, tmp_path / "ours", tokenizer_folder, max_length=12)
    after = (SparseEncoder if sparse else SentenceTransformer)(
        str(tmp_path / "ours"), device="cpu", local_files_only=True
    )
    torch.testing.assert_close(dense(after), vectors(), rtol=1e-5, atol=1e-5)


def dense(model: Any) -> Tensor:
    found: Tensor = model.encode(TEXTS, convert_to_tensor=True)
    return found.to_dense() if found.is_sparse else found.clone()


def test_a_lexical_view_needs_a_family_whose_head_is_known(
    tokenizer_folder: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    from transformers import AlbertForMaskedLM

    shape = {"vocab_size": 40, "hidden_size": 32, "embedding_size": 16, "num_attention_heads": 4}
    model = AlbertForMaskedLM(AlbertConfig(**shape, intermediate_size=48, num_hidden_layers=2))
    model.save_pretrained(tmp_path / "base")
    saved(tmp_path / "base", tokenizer_folder, tmp_path / "theirs", sparse=True)
    with pytest.raises(UserError, match="unknown backbone family 'albert'"):
        open_encoder(tmp_path / "theirs", vocabulary, "passage")
