"""CoT-MAE v2 against the slow reference, and its sparse view."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises, total_of
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import CLS, SEP, TEXTS, batch, random_texts

VARIANTS: dict[str, dict[str, Any]] = {
    "spans": {},
    "pseudo-queries": {"context": "pseudo_query", "ae_weight": 0.7, "ar_weight": 0.4},
    "mean of ordinary tokens": {"pooling": "text", "projection": "mean", "ae_layers": 2, "encoder_weight": 0.3},
    "two windowed blocks": {"ar_layers": 2, "window": 2},
}


objective = partial(build, CoTMAEv2)
READ = batch(TEXTS, random_texts([5, 7, 4, 9], seed=1))


def sparse_view(reference: Reference, config: CoTMAEv2.Config, states: Vectors, text: list[int]) -> Tensor:
    """s E, entry by entry of the vocabulary; s of a text with negative logits alone is 0."""
    pooled = [j for j, token in enumerate(text) if config.pooling == "all" or token not in (CLS, SEP)]
    logits = [reference.logits(states[j]) for j in pooled]
    table = reference.bert("embeddings.word_embeddings.weight")
    view, mass = torch.zeros(128, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for entry in range(len(table)):
        weight = max(torch.log(1 + torch.relu(row[entry])) for row in logits)
        view, mass = view + weight * table[entry], mass + weight
    return view / mass if config.projection == "mean" else view


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method = objective(**VARIANTS[variant])
    config, drawn, reference = method.config, method.draw(READ), reference_of(method)
    sides = [("passage", "context")] + ([("context", "passage")] if config.context != "pseudo_query" else [])
    terms: dict[str, Vectors] = {name: [] for name in method.parts}
    for number, (here, there) in enumerate(sides):
        for row in range(4):
            text, context = (ids(READ.texts[name], row) for name in (here, there))
            at = 4 * number + row
            states = reference.encode(ids(drawn.encoder, at))
            vectors = [states[0], sparse_view(reference, config, states, text)]
            masked = [*vectors, *reference.embed(ids(drawn.masked, at))[1:]]
            ae = reference.decoder(masked, config.ae_layers)[1:]
            terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, at, text)
            terms["ae_mlm"] += surprises(reference, ae, drawn.masked, at, context)
            terms["ar_clm"] += reference.written(vectors, context, config.ar_layers, config.window)
    assert_equal(method, drawn, reference, terms, (config.encoder_weight, config.ae_weight, config.ar_weight))


def test_a_text_whose_logits_are_all_negative_has_no_sparse_view() -> None:
    method = objective(projection="mean")
    with torch.no_grad():
        method.backbone.output_bias_V.fill_(-100.0)
    text = READ.texts["passage"]
    hidden_BLD = method.backbone.hidden(text.ids_BL, text.lengths_B)
    vectors_B2D = method.both_views(
        hidden_BLD,
        torch.full((len(hidden_BLD),), hidden_BLD.shape[1]),
        torch.ones(hidden_BLD.shape[:2], dtype=torch.bool),
    )
    assert torch.equal(vectors_B2D[:, 0], hidden_BLD[:, 0]) and not vectors_B2D[:, 1].any()
    total = total_of(method(method.draw(READ)))
    total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None) and total.isfinite()


def test_spans_are_each_others_context_and_a_pseudo_query_is_not_encoded() -> None:
    spans, queries = objective().draw(READ), objective(context="pseudo_query").draw(READ)
    assert len(spans.encoder.ids_BL) == len(spans.whole.ids_BL) == 8 and len(queries.encoder.ids_BL) == 4
    texts = READ.texts
    for row in range(4):
        assert ids(spans.whole, row) == ids(queries.whole, row) == ids(texts["context"], row)
        assert ids(spans.whole, 4 + row) == ids(texts["passage"], row)


def test_what_it_reads_follows_from_the_context() -> None:
    spans, queries = CoTMAEv2.Config(), override(CoTMAEv2.Config(), {"context": "pseudo_query"})
    assert (spans.reads().rows, spans.reads().context) == ("spans", "mixed")
    assert (queries.reads().rows, queries.reads().context) == ("pseudo_queries", "any")
    assert override(queries, {"encoder_mask": "weighted"}).reads().term_weights
    with pytest.raises(UserError, match="context"):
        override(CoTMAEv2.Config(), {"context": "neighbour"})
