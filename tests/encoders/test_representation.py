"""Every view of a text, its gradients and the scores against loops in float64; pruning, ties included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from midmask.encoders.representation import Representation, TextVectors, group_scores, prune, scores
from tests.support.objectives.ranked import PASSAGES, QUERIES, REPRESENTATIONS, Side, encoder, views
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


def test_under_autocast_scores_are_in_full_precision() -> None:
    query, passage = (TextVectors(torch.randn(2, 64), torch.randn(2, 300)) for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        found = scores(query, passage), group_scores(query, passage)
    assert {tensor.dtype for tensor in found} == {torch.float32}
    torch.testing.assert_close(found, (scores(query, passage), group_scores(query, passage)), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["unit mean", "hybrid", "splade without specials", "late"])
@torch.no_grad()
def test_padding_and_neighbours_change_no_view(name: str) -> None:
    holder = Holder(REPRESENTATIONS[name])
    together = holder.vectors(PASSAGES, "passage").tensors()
    for other in (
        holder.vectors(PASSAGES, "passage", length=40),
        TextVectors.concat([holder.vectors([text], "passage", length=30) for text in PASSAGES]),
    ):
        torch.testing.assert_close(other.tensors(), together, rtol=1e-9, atol=1e-9)


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


def test_no_terms_leave_all_words() -> None:
    weights_BV = torch.randn(2, 5)
    assert torch.equal(prune(weights_BV, None), weights_BV)
    query, passage = Representation(lexical="splade", query_terms=2), Representation(lexical="splade", passage_terms=2)
    assert (query.terms("query"), query.terms("passage")) == (2, None)
    assert (passage.terms("query"), passage.terms("passage")) == (None, 2)


@torch.no_grad()
def test_a_text_of_specials_alone_has_no_words_without_them() -> None:
    holder = Holder(Representation(dense=None, lexical="splade", specials=False))
    lexical_BV = holder.vectors([[], QUERIES[0]], "query").lexical_BV
    assert not lexical_BV[0].any() and lexical_BV[1].any()


def test_a_fresh_projection_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    one = encoder(Representation())
    states = []
    for seed in (5, 5, 6):
        torch.manual_seed(len(states))
        before = torch.get_rng_state()
        one.represent_as(Representation(width=3), seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        states.append(one.pooling.projection.weight.detach().clone())
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dense": None}, "nothing to score"),
        ({"dense": None, "lexical": "splade", "normalise": True}, "of the dense view"),
        ({"dense": None, "lexical": "splade", "width": 3}, "of the dense view"),
        ({"passage_terms": 3}, "need lexical"),
        ({"specials": False}, "need lexical"),
        ({"lexical": "logits"}, "passage_terms"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Representation(**fields)
