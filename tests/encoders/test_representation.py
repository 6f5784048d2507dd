"""Every view of a text, MaxSim, gradients and scores against loops in float64; pruning; and folders of token vectors
that sentence-transformers and midmask score alike.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from midmask.encoders import representation as late_interaction
from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import ExpertSplit
from midmask.encoders.folder import load_bi_encoder, save_bi_encoder, view_widths
from midmask.encoders.model_settings import TextForm
from midmask.encoders.representation import (
    Representation,
    TextVectors,
    TokenVectors,
    group_maxsim,
    group_scores,
    maxsim,
    prune,
    scores,
)
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS, random_model
from tests.support.encoders.public import opened
from tests.support.objectives.ranked import PASSAGES, QUERIES, REPRESENTATIONS, Side, dot, encoder, views
from tests.support.objectives.reference import Reference, assert_same_gradients
from tests.support.objectives.texts import small_vocabulary, token_rows


class Holder(torch.nn.Module):
    """Gives a backbone's weights the names that the reference knows."""

    def __init__(self, representation: Representation) -> None:
        super().__init__()
        self.backbone = encoder(representation)

    def vectors(self, texts: list[list[int]], side: Side, *, length: int | None = None) -> TextVectors:
        rows, special_V = token_rows(texts, length=length), small_vocabulary().special_V
        return self.backbone.pooling(self.backbone, rows.ids_BL, rows.lengths_B, special_V, side)


@pytest.mark.parametrize("side", ["query", "passage"])
@pytest.mark.parametrize("name", REPRESENTATIONS)
def test_views_and_every_gradient_equal_the_reference(name: str, side: Side) -> None:
    representation, texts = REPRESENTATIONS[name], PASSAGES[:4]
    holder = Holder(representation)
    reference = Reference(holder, heads=2, layers=2, pad_id=0)
    found = holder.vectors(texts, side)
    expected = [views(reference, representation, text, side) for text in texts]
    generator = torch.Generator().manual_seed(5)
    one, other = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    dense = found.dense_BD if found.tokens is None else found.tokens.vectors_TD
    for vectors, slow in zip((dense, found.lexical_BV), zip(*expected, strict=True), strict=True):
        if vectors is None:
            assert slow == (None,) * len(texts)
            continue
        wanted = torch.cat(slow) if representation.tokens else torch.stack(slow)
        torch.testing.assert_close(vectors, wanted, rtol=1e-6, atol=1e-6)
        factors = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
        one, other = one + (vectors * factors).sum(), other + (wanted * factors).sum()
    one.backward()
    other.backward()
    assert_same_gradients(holder, reference)


weights = st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=4)


@given(weights, st.integers(1, 8))
@settings(max_examples=60)
def test_pruning_keeps_the_heaviest_and_of_equals_the_first(rows: list[list[int]], terms: int) -> None:
    expected, gradients = [], []
    for row in rows:
        kept = sorted(range(6), key=lambda word: (-row[word], word))[:terms]
        expected.append([float(weight) if word in kept else 0.0 for word, weight in enumerate(row)])
        gradients.append([float(word + 1) if word in kept else 0.0 for word in range(6)])
    weights_BV = torch.tensor(rows, dtype=torch.float32, requires_grad=True)
    found = prune(weights_BV, terms)
    assert found.tolist() == expected
    (found * torch.arange(1.0, 7.0)).sum().backward()
    assert weights_BV.grad.tolist() == gradients


def test_what_is_no_number_is_not_pruned_away() -> None:
    assert prune(torch.tensor([[1.0, torch.nan, 3.0, 2.0]]), 2)[0].isnan().tolist() == [False, True, False, False]


@torch.no_grad()
def test_a_text_of_specials_alone_has_no_words_without_them() -> None:
    holder = Holder(Representation(dense=None, lexical="splade", specials=False))
    lexical_BV = holder.vectors([[], QUERIES[0]], "query").lexical_BV
    assert not lexical_BV[0].any() and lexical_BV[1].any()


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"dense": None}, "nothing to score"),
     ({"dense": None, "lexical": "splade", "normalise": True}, "of the dense view"),
     ({"dense": None, "lexical": "splade", "width": 3}, "of the dense view"), ({"passage_terms": 3}, "need lexical"),
     ({"specials": False}, "need lexical"), ({"lexical": "logits"}, "passage_terms"),
     ({"tokens": 128}, "token vectors are scored alone"),
     ({"dense": None, "lexical": "splade", "tokens": 128}, "token vectors are scored alone"),
     ({"dense": None, "tokens": 128, "width": 32}, "width and normalise are of the dense view")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Representation(**fields)


LATE = Representation(dense=None, tokens=8)
QUERY_LENGTH, LENGTH = 6, 12
FORM = TextForm(query_prompt="the cat ", passage_prompt="a ")


def backbone_of(family: str, split: ExpertSplit | None = None) -> Backbone:
    backbone = Backbone(random_model(family), dropout=0.0, split=split).eval()
    backbone.represent_as(LATE, seed=3)
    return backbone


Encode = Callable[[Tensor, Tensor], TextVectors]


@torch.no_grad()
def vectors_of(encode: Encode, tokenizer_folder: Path, length: int, prompt: str = "") -> TextVectors:
    texts = [prompt + text for text in TEXTS]
    how = {"padding": True, "return_tensors": "pt", "truncation": True}
    tokens = load_tokenizer(tokenizer_folder)(texts, max_length=length, **how)
    return encode(tokens["input_ids"], tokens["attention_mask"].sum(1))


def encoder_of(backbone: Backbone, tokenizer_folder: Path) -> Encode:
    special_V = Vocabulary.of(tokenizer_folder).special_V
    return lambda ids_BL, lengths_B: backbone.pooling(backbone, ids_BL, lengths_B, special_V, "passage")


def assert_alike(theirs: Any, query: TextVectors, passage: TextVectors) -> None:
    """The same vectors of the same tokens, and the same scores within 1e-5."""
    sides = theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)
    for found, expected in zip(sides, (query, passage), strict=True):
        assert expected.tokens is not None
        assert [len(text) for text in found] == expected.tokens.lengths_B.tolist()
        together = torch.cat([torch.as_tensor(text) for text in found])
        torch.testing.assert_close(together, expected.tokens.vectors_TD, rtol=0, atol=1e-5)
    torch.testing.assert_close(theirs.similarity(*sides), scores(query, passage), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_folder_of_ours_scores_alike_as_multi_vector_encoder(family, tokenizer_folder, tmp_path) -> None:
    backbone = backbone_of(family)
    lengths = {"max_length": LENGTH, "query_length": QUERY_LENGTH}
    save_bi_encoder(backbone, tmp_path / "made", tokenizer_folder, form=FORM, **lengths)
    theirs = opened(tmp_path / "made", "MultiVectorEncoder")
    encode = encoder_of(backbone, tokenizer_folder)
    query = vectors_of(encode, tokenizer_folder, QUERY_LENGTH, FORM.query_prompt)
    passage = vectors_of(encode, tokenizer_folder, LENGTH, FORM.passage_prompt)
    assert_alike(theirs, query, passage)
    again = load_bi_encoder(tmp_path / "made", dropout=0.3).eval()
    same = vectors_of(encoder_of(again, tokenizer_folder), tokenizer_folder, LENGTH, FORM.passage_prompt)
    torch.testing.assert_close(same.tensors(), passage.tensors(), rtol=0, atol=0)
    assert view_widths(tmp_path / "made") == {"late": 8}
    assert "`MultiVectorEncoder`, the same vectors" in (tmp_path / "made" / "README.md").read_text()


def test_query_experts_are_for_midmask_alone(tokenizer_folder: Path, tmp_path: Path) -> None:
    save_bi_encoder(backbone_of("bert", ExpertSplit("ffn")), tmp_path / "made", tokenizer_folder, max_length=LENGTH)
    assert not (tmp_path / "made" / "modules.json").exists()


QUERY_LENGTHS, PASSAGE_LENGTHS = [4, 1, 3], [5, 2, 9, 1, 7, 6]


def random_tokens(lengths: list[int], seed: int) -> TokenVectors:
    """Unit vectors, most of whose products are negative for the first passage, so that padding would win."""
    vectors = torch.randn(sum(lengths), 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if lengths == PASSAGE_LENGTHS:
        opposite = -random_tokens(QUERY_LENGTHS, 1).vectors_TD.detach().sum(0)
        vectors[: lengths[0]] = opposite + 0.02 * vectors[: lengths[0]]  # no two alike, or maxima would be ties
    return TokenVectors(torch.nn.functional.normalize(vectors, dim=1).requires_grad_(), torch.tensor(lengths))


def texts_of(tokens: TokenVectors) -> list[Tensor]:
    return list(torch.split(tokens.vectors_TD, tokens.lengths_B.tolist()))


@pytest.mark.parametrize("products", [1, 60, late_interaction.PRODUCTS])
def test_scores_and_gradients_are_those_of_loops(products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One passage at a time, a few, or all."""
    monkeypatch.setattr(late_interaction, "PRODUCTS", products)
    query, passage = random_tokens(QUERY_LENGTHS, 1), random_tokens(PASSAGE_LENGTHS, 2)
    expected = torch.stack([torch.stack([dot(q, p) for p in texts_of(passage)]) for q in texts_of(query)])
    own = torch.stack([expected[row, 2 * row : 2 * row + 2] for row in range(3)])
    assert expected[:, 0].max() < 0, "no token of the first passage is like one of a query"
    sides = (query.vectors_TD, passage.vectors_TD)
    for found, wanted in ((maxsim(query, passage), expected), (group_maxsim(query, passage), own)):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        weights = torch.arange(1.0, wanted.numel() + 1, dtype=torch.float64).view_as(wanted)
        gradients = (torch.autograd.grad((each * weights).sum(), sides, retain_graph=True) for each in (found, wanted))
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_texts_are_taken_joined_and_cut_whole() -> None:
    tokens = random_tokens(PASSAGE_LENGTHS, 3)
    texts, rows = texts_of(tokens), [4, 0, 0, 3]
    taken = TextVectors(None, None, tokens).take(torch.tensor(rows)).tokens
    assert taken is not None
    torch.testing.assert_close(texts_of(taken), [texts[row] for row in rows], rtol=0, atol=0)
    assert [len(part.lengths_B) for part in tokens.cut(4)] == [4, 2]
    joined = TextVectors.concat([TextVectors(None, None, part) for part in tokens.cut(4)]).tokens
    assert joined is not None
    torch.testing.assert_close(texts_of(joined), texts, rtol=0, atol=0)
    padded = tokens.padded()
    assert padded.shape == (6, 9, 6) and not padded[1, 2:].any() and torch.equal(padded[1, :2], texts[1])


@pytest.mark.parametrize("late", [False, True])
def test_under_autocast_scores_are_in_full_precision(late: bool) -> None:
    def side(lengths: list[int]) -> TextVectors:
        if not late:
            return TextVectors(torch.randn(len(lengths), 64), torch.randn(len(lengths), 300))
        tokens = random_tokens(lengths, 4)
        return TextVectors(None, None, TokenVectors(tokens.vectors_TD.float(), tokens.lengths_B))

    query, passage = side(QUERY_LENGTHS), side(PASSAGE_LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        found = scores(query, passage), group_scores(query, passage)
    assert {tensor.dtype for tensor in found} == {torch.float32}
    torch.testing.assert_close(found, (scores(query, passage), group_scores(query, passage)), rtol=1e-6, atol=1e-5)
