"""CoT-MAE v2 against the slow reference, and its sparse view."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from midmask.randomness.masks import row_keys
from tests.support.objectives import two_sided
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import CLS, SEP, UNK, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "spans": {},
    "pseudo-queries": {"context": "pseudo_query", "ae_weight": 0.7, "ar_weight": 0.4},
    "mean of ordinary tokens": {"pooling": "text", "projection": "mean", "ae_layers": 2, "encoder_weight": 0.3},
    "two windowed blocks": {"ar_layers": 2, "window": 2},
}


def objective(**fields: Any) -> CoTMAEv2:
    built = two_sided.build(CoTMAEv2.Config(), fields)
    assert isinstance(built, CoTMAEv2)
    return built


def pairs(first: list[list[int]], second: list[list[int]]) -> Batch:
    keys = row_keys(7, 0, np.arange(100, 100 + len(second)))
    return Batch(0, {"passage": token_rows(first), "context": token_rows(second, keys=keys)})


def batch() -> Batch:
    return pairs([*random_texts([8, 4, 6]), [UNK, 9, UNK, 12]], random_texts([5, 7, 4, 9], seed=1))


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
    method, read = objective(**VARIANTS[variant]), batch()
    config, drawn = method.config, method.draw(batch())
    reference = Reference(method, heads=2, layers=2, pad_id=0)
    sides = [("passage", "context")] + ([("context", "passage")] if config.context != "pseudo_query" else [])
    terms: dict[str, Vectors] = {name: [] for name in method.parts}
    for number, (here, there) in enumerate(sides):
        for row in range(4):
            text, context = (two_sided.ids(read.texts[name], row) for name in (here, there))
            at = 4 * number + row
            states = reference.encode(two_sided.ids(drawn.encoder, at))
            vectors = [states[0], sparse_view(reference, config, states, text)]
            masked = [*vectors, *reference.embed(two_sided.ids(drawn.masked, at))[1:]]
            whole = [*vectors, *reference.embed(context)[1:]]
            ae = reference.decoder(masked, config.ae_layers)[1:]
            ar = reference.causal_decoder(
                "causal_decoder", whole, layers=config.ar_layers, window=config.window, vectors=2
            )[1:]
            terms["encoder_mlm"] += two_sided.surprises(reference, states, drawn.encoder, at, text)
            terms["ae_mlm"] += two_sided.surprises(reference, ae, drawn.masked, at, context)
            terms["ar_clm"] += [reference.surprise(ar[i], context[i + 1]) for i in range(len(context) - 1)]
    weights = (config.encoder_weight, config.ae_weight, config.ar_weight)
    expected = {name: (weight, terms[name]) for name, weight in zip(terms, weights, strict=True)}
    two_sided.assert_equal(method, drawn, reference, expected)


def test_a_text_whose_logits_are_all_negative_has_no_sparse_view() -> None:
    method = objective(projection="mean")
    with torch.no_grad():
        method.backbone.output_bias_V.fill_(-100.0)
    hidden_BLD = method.backbone.hidden(batch().texts["passage"].ids_BL, batch().texts["passage"].lengths_B)
    vectors_B2D = method.both_views(
        hidden_BLD,
        torch.full((len(hidden_BLD),), hidden_BLD.shape[1]),
        torch.ones(hidden_BLD.shape[:2], dtype=torch.bool),
    )
    assert torch.equal(vectors_B2D[:, 0], hidden_BLD[:, 0]) and not vectors_B2D[:, 1].any()
    two_sided.assert_finite(method, batch())


def test_spans_are_each_others_context_and_a_pseudo_query_is_not_encoded() -> None:
    spans, queries = objective().draw(batch()), objective(context="pseudo_query").draw(batch())
    assert len(spans.encoder.ids_BL) == len(spans.whole.ids_BL) == 8 and len(queries.encoder.ids_BL) == 4
    texts = batch().texts
    for row in range(4):
        assert (
            two_sided.ids(spans.whole, row) == two_sided.ids(queries.whole, row) == two_sided.ids(texts["context"], row)
        )
        assert two_sided.ids(spans.whole, 4 + row) == two_sided.ids(texts["passage"], row)


@pytest.mark.parametrize("context", ["mixed", "pseudo_query"])
def test_sums_do_not_depend_on_how_a_batch_is_cut(context: str) -> None:
    two_sided.assert_sums_survive_cutting(objective(context=context), batch())


@pytest.mark.parametrize("pooling", ["all", "text"])
@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int, pooling: str) -> None:
    method = objective(pooling=pooling, projection="mean")
    two_sided.assert_finite(method, pairs(random_texts([length, 6]), random_texts([3, length])))


def test_health_compares_both_decoders_with_and_without_the_vectors() -> None:
    two_sided.assert_health_compares(objective(), batch(), {"ae_loss": "ae_mlm", "ar_loss": "ar_clm"})


def test_what_it_reads_follows_from_the_context() -> None:
    spans, queries = CoTMAEv2.Config(), override(CoTMAEv2.Config(), {"context": "pseudo_query"})
    assert (spans.reads().rows, spans.reads().context) == ("spans", "mixed")
    assert (queries.reads().rows, queries.reads().context) == ("pseudo_queries", "any")
    assert override(queries, {"encoder_mask": "weighted"}).reads().term_weights
    with pytest.raises(UserError, match="context"):
        override(CoTMAEv2.Config(), {"context": "neighbour"})
