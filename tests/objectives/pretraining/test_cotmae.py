"""CoT-MAE, query as context and CoT-MAE v2 against the slow reference; their masks, pairs and sparse view."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises, total_of
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import CLS, FIRST, MASK, SEP, TEXTS, batch, random_texts

VARIANTS: dict[str, dict[str, Any]] = {
    "released, two layers": {},
    "paper, one layer": {"decoder_layers": 1, "decoder_weight": 0.7},
    "tokens": {"encoder_mask": "token", "encoder_weight": 0.3},
}

objective = partial(build, CoTMAE)
READ = batch(TEXTS, random_texts([5, 7, 3, 9], seed=1))
SPANS = [ids(READ.texts[name], row) for name in ("passage", "context") for row in range(4)]
"""First the passages, then their contexts, as the encoder reads them; the decoder's stand the other way round."""
OTHERS = SPANS[4:] + SPANS[:4]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    cotmae = objective(**VARIANTS[variant])
    config, drawn, reference = cotmae.config, cotmae.draw(READ), reference_of(cotmae)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_mlm": []}
    for row in range(8):
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, SPANS[row])
        read = [states[0], *reference.embed(ids(drawn.decoder, row))[1:]]
        decoded = reference.decoder(read, config.decoder_layers)
        terms["decoder_mlm"] += surprises(reference, decoded, drawn.decoder, row, OTHERS[row])
    assert_equal(cotmae, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_quotas_leave_out_specials_and_the_two_masks_are_independent() -> None:
    """1,000 rows of 100 one-token words. False alarms once in a million draws of seeds for each of the two z-scores."""
    texts = [[FIRST + (i + j) % 30 for j in range(100)] for i in range(500)]
    drawn = objective().draw(batch(texts, texts[::-1]))
    encoder, decoder = drawn.encoder.selected_BL, drawn.decoder.selected_BL.roll(500, 0)
    assert set(encoder.sum(1).tolist()) == {30} and set(decoder.sum(1).tolist()) == {45}  # 31 and 46 with specials
    shared = (encoder & decoder).sum()
    variance = 30 * 0.45 * 0.55 * 70 / 99  # hypergeometric
    assert abs(float(shared) / 1000 - 13.5) < 4.9 * (variance / 1000) ** 0.5
    decoder_ids = drawn.decoder.ids_BL.roll(500, 0)
    both = ((drawn.encoder.ids_BL == MASK) & (decoder_ids == MASK))[encoder & decoder].sum()
    chance = (0.8 + 0.1 / 60) ** 2  # a random token may be [MASK]
    assert abs(float(both / shared) - chance) < 4.9 * (chance * (1 - chance) / float(shared)) ** 0.5


QUERY_AS_CONTEXT_VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "two blocks": {"decoder_layers": 2, "decoder_weight": 0.7},
    "no window": {"window": None, "encoder_weight": 0.3},
}

query_as_context = partial(build, QueryAsContext)
QUERY_AS_CONTEXT_READ = batch(TEXTS, random_texts([5, 7, 1, 3], seed=1))


@pytest.mark.parametrize("variant", QUERY_AS_CONTEXT_VARIANTS)
def test_query_as_context_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method = query_as_context(**QUERY_AS_CONTEXT_VARIANTS[variant])
    config, drawn, reference = method.config, method.draw(QUERY_AS_CONTEXT_READ), reference_of(method)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_clm": []}
    for row in range(4):
        passage, query = (ids(QUERY_AS_CONTEXT_READ.texts[name], row) for name in ("passage", "context"))
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, passage)
        terms["decoder_clm"] += reference.written(states[:1], query, config.decoder_layers, config.window)
    assert_equal(method, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_the_encoders_quota_leaves_out_specials() -> None:
    drawn = query_as_context().draw(batch([[9] * 100, [9] * 50, [9] * 5], [[7]] * 3))
    assert drawn.encoder.selected_BL.sum(1).tolist() == [30, 15, 2]  # 31, 16 and 2 with specials


COTMAE_V2_VARIANTS: dict[str, dict[str, Any]] = {
    "spans": {},
    "pseudo-queries": {"context": "pseudo_query", "ae_weight": 0.7, "ar_weight": 0.4},
    "mean of ordinary tokens": {"pooling": "text", "projection": "mean", "ae_layers": 2, "encoder_weight": 0.3},
    "two windowed blocks": {"ar_layers": 2, "window": 2},
}

cotmae_v2 = partial(build, CoTMAEv2)
COTMAE_V2_READ = batch(TEXTS, random_texts([5, 7, 4, 9], seed=1))


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


@pytest.mark.parametrize("variant", COTMAE_V2_VARIANTS)
def test_cotmae_v2_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method = cotmae_v2(**COTMAE_V2_VARIANTS[variant])
    config, drawn, reference = method.config, method.draw(COTMAE_V2_READ), reference_of(method)
    sides = [("passage", "context")] + ([("context", "passage")] if config.context != "pseudo_query" else [])
    terms: dict[str, Vectors] = {name: [] for name in method.parts}
    for number, (here, there) in enumerate(sides):
        for row in range(4):
            text, context = (ids(COTMAE_V2_READ.texts[name], row) for name in (here, there))
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
    method = cotmae_v2(projection="mean")
    with torch.no_grad():
        method.backbone.output_bias_V.fill_(-100.0)
    text = COTMAE_V2_READ.texts["passage"]
    hidden_BLD = method.backbone.hidden(text.ids_BL, text.lengths_B)
    vectors_B2D = method.both_views(
        hidden_BLD,
        torch.full((len(hidden_BLD),), hidden_BLD.shape[1]),
        torch.ones(hidden_BLD.shape[:2], dtype=torch.bool),
    )
    assert torch.equal(vectors_B2D[:, 0], hidden_BLD[:, 0]) and not vectors_B2D[:, 1].any()
    total = total_of(method(method.draw(COTMAE_V2_READ)))
    total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None) and total.isfinite()
