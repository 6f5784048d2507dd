"""What the tests of fine-tuning share: a few texts, every kind of representation, and scores by loops in float64."""

from typing import Any, Literal

import torch
from torch import Tensor

from midmask.core.batch import Batch
from midmask.core.config import override
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.representation import Representation
from midmask.objectives import ObjectiveConfig, build_objective
from midmask.objectives.finetuning.ranking import Ranking
from tests.support.objectives.checks import total_of
from tests.support.objectives.reference import Reference, assert_same_gradients, log_sum_exp
from tests.support.objectives.texts import CLS, SEP, random_texts, small_vocabulary, token_rows

GROUP = 3
QUERIES = random_texts([4, 3, 5, 2], seed=1)
PASSAGES = random_texts([8, 6, 9, 5, 7, 4, 3, 10, 6, 5, 9, 7], seed=2)
TEACHER = torch.randn((4, GROUP), generator=torch.Generator().manual_seed(3)) * 2
REPRESENTATIONS: dict[str, Representation] = {
    "cls": Representation(),
    "unit mean": Representation(dense="mean", normalise=True),
    "projected": Representation(width=5, normalise=True),
    "splade": Representation(dense=None, lexical="splade"),
    "splade without specials": Representation(dense=None, lexical="splade", specials=False, query_terms=9),
    "words": Representation(dense=None, lexical="logits", passage_terms=11),
    "hybrid": Representation(width=6, lexical="logits", passage_terms=7, specials=False),
    "both": Representation(lexical="splade", passage_terms=20),
    "late": Representation(dense=None, tokens=5),
}
Side = Literal["query", "passage"]
Views = tuple[Tensor | None, Tensor | None]
Terms = dict[str, tuple[float, int, Tensor]]


def encoder(representation: Representation, *, dropout: float = 0.0) -> Backbone:
    """Two layers whose norms, biases and logits are no ones and zeros, which would hide a wrong use of them."""
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=dropout), small_vocabulary(), seed=3)
    backbone.represent_as(representation, seed=4)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return backbone.double()


def build(config: ObjectiveConfig, representation: Representation, **fields: Any) -> Any:
    backbone = encoder(representation, dropout=fields.pop("dropout", 0.0))
    return build_objective(override(config, fields), backbone, small_vocabulary()).double()


def batch(queries: list[list[int]] = QUERIES, passages: list[list[int]] = PASSAGES, *, progress: float = 0.0) -> Batch:
    return Batch(0, {"query": token_rows(queries), "passage": token_rows(passages)}, GROUP, progress, TEACHER)


def views(reference: Reference, representation: Representation, text: list[int], side: Side) -> Views:
    """The dense and the lexical vector of a text without specials; or in place of the dense one those of its tokens,
    [L, D].
    """
    states = reference.encode([CLS, *text, SEP])
    if representation.tokens is not None:
        projected = [reference.get("backbone.pooling.projection.weight") @ state for state in states]
        return torch.stack([vector / torch.sqrt((vector**2).sum()) for vector in projected]), None
    dense, lexical = None, None
    if representation.dense is not None:
        dense = states[0] if representation.dense == "cls" else sum(states) / len(states)
        if representation.width is not None:
            dense = reference.get("backbone.pooling.projection.weight") @ dense
        if representation.normalise:
            dense = dense / torch.sqrt((dense**2).sum())
    if representation.lexical is not None:
        logits = [reference.logits(state) for state in (states if representation.specials else states[1:-1])]
        highest = [max(row[word] for row in logits) for word in range(len(logits[0]))]
        if representation.lexical == "splade":
            highest = [torch.log(1 + logit) if logit > 0 else 0 * logit for logit in highest]
        kept = representation.query_terms if side == "query" else representation.passage_terms
        order = sorted(range(len(highest)), key=lambda word: (-float(highest[word].detach()), word))
        chosen = set(order[:kept])
        lexical = torch.stack([weight if word in chosen else 0 * weight for word, weight in enumerate(highest)])
    return dense, lexical


def score(query: Views, passage: Views) -> Tensor:
    products = [dot(q, p) for q, p in zip(query, passage, strict=True) if q is not None and p is not None]
    return torch.stack(products).sum()


def dot(query: Tensor, passage: Tensor) -> Tensor:
    """The dot product; of token vectors, the sum over a query's of the best with a passage's."""
    if query.ndim == 1:
        return query @ passage
    best = [max((token @ other for other in passage), key=lambda product: float(product.detach())) for token in query]
    return torch.stack(best).sum()


def all_views(
    reference: Reference,
    representation: Representation,
    queries: list[list[int]] = QUERIES,
    passages: list[list[int]] = PASSAGES,
) -> tuple[list[Views], list[Views]]:
    one = [views(reference, representation, text, "query") for text in queries]
    return one, [views(reference, representation, text, "passage") for text in passages]


def sparse_parts(sides: tuple[list[Views], list[Views]]) -> Terms:
    """What is only reported of lexical views: how many words of a text have a weight."""
    words = [[int((lexical != 0).sum()) for _, lexical in side if lexical is not None] for side in sides]
    pairs = zip(("query_terms", "passage_terms"), words, strict=True)
    return {name: (0.0, len(side), torch.tensor(sum(side) / len(side))) for name, side in pairs if side}


def cross_entropy(candidates: list[Tensor], positive: Tensor) -> Tensor:
    return log_sum_exp(torch.stack(candidates)) - positive


def assert_equal(objective: Ranking, batch: Batch, reference: Reference, terms: Terms) -> None:
    """Counts, means and the total are those of the terms by part (weight, count, mean), and so is every gradient."""
    drawn = objective.draw(batch)
    loss, counts = objective(drawn), objective.counts(drawn)
    assert tuple(loss.parts) == tuple(name for name in objective.parts if name in terms)
    assert {n: int(count) for n, count in counts.items()} == {n: terms[n][1] if n in terms else 0 for n in counts}
    for name, part in loss.parts.items():
        weight, count, mean = terms[name]
        assert part.count == count and abs(float(part.weight) - weight) < 1e-7, name
        torch.testing.assert_close(part.total / count, mean.double(), rtol=1e-6, atol=1e-6)
    total = total_of(loss)
    wanted = sum(weight * mean for weight, _, mean in terms.values())
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=1e-6)
    total.backward()
    wanted.backward()
    assert_same_gradients(objective, reference)
