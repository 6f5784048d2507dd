"""MaxSim of ragged token vectors against loops over tokens, its gradients, and its memory in blocks."""

import pytest
import torch
from torch import Tensor

from midmask.encoders import late_interaction
from midmask.encoders.late_interaction import TokenVectors, group_maxsim, maxsim
from midmask.encoders.representation import Representation, TextVectors, group_scores, scores
from tests.support.objectives.ranked import dot

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


def test_under_autocast_scores_of_tokens_are_in_full_precision() -> None:
    query, passage = (
        TextVectors(None, None, TokenVectors(random_tokens(lengths, 4).vectors_TD.float(), torch.tensor(lengths)))
        for lengths in (QUERY_LENGTHS, PASSAGE_LENGTHS)
    )
    with torch.autocast("cpu", torch.bfloat16):
        found = scores(query, passage), group_scores(query, passage)
    torch.testing.assert_close(found, (scores(query, passage), group_scores(query, passage)), rtol=1e-6, atol=1e-6)


def test_token_vectors_are_scored_alone() -> None:
    late = Representation(dense=None, tokens=128)
    assert (late.label, late.views, late.projected) == ("late:128", ("late",), 128)
    for beside in ({}, {"dense": None, "lexical": "splade"}):
        with pytest.raises(ValueError, match=r"token vectors are scored alone; set representation\.dense=none"):
            Representation(tokens=128, **beside)
    with pytest.raises(ValueError, match="width and normalise are of the dense view"):
        Representation(dense=None, tokens=128, width=32)
