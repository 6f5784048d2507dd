"""SEED-Encoder against the slow reference, and its restricted span."""

from functools import partial
from typing import Any

import pytest
import torch

from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.seed import SEED
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import Vectors
from tests.support.objectives.texts import UNK, batch, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "three layers, span 2": {},
    "one layer, span 8": {"decoder_layers": 1, "window": 8, "decoder_weight": 0.9},
    "whole words": {"encoder_mask": "word", "encoder_mask_ratio": 0.5, "decoder_layers": 1, "window": None},
}


objective = partial(build, SEED)
READ = batch([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    seed = objective(**VARIANTS[variant])
    config, drawn, reference = seed.config, seed.draw(READ), reference_of(seed)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_clm": []}
    for row in range(4):
        text = ids(READ.texts["passage"], row)
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, text)
        terms["decoder_clm"] += reference.written(states[:1], text, config.decoder_layers, config.window)
    assert_equal(seed, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_both_losses_have_half_weight() -> None:
    loss = objective()(objective().draw(READ))
    assert [part.weight for part in loss.parts.values()] == [0.5, 0.5]


@pytest.mark.parametrize(("layers", "window", "reach"), [(3, 2, 4), (1, 8, 8)])
def test_published_decoders_see_this_many_tokens_at_most(layers: int, window: int, reach: int) -> None:
    """Through all layers: a token of n layers with a span of k helps to predict the n (k - 1) + 1 after it."""
    seed = objective(decoder_layers=layers, window=window).eval()
    text = random_texts([12])[0]
    before, after = token_rows([text]).ids_BL, token_rows([[5 + (text[0] - 4) % 50, *text[1:]]]).ids_BL
    states = []
    for ids_BL in (before, after):
        read = torch.cat([torch.ones(1, 1, 128), seed.backbone.embed(ids_BL)[:, 1:]], 1)
        states.append(seed.causal_decoder(read.double(), torch.tensor([14])))
    moved = (states[0] != states[1]).any(-1)[0].nonzero().flatten().tolist()
    assert moved == list(range(1, 1 + reach))


def test_the_encoder_hides_each_token_with_probability_0_15() -> None:
    """20,000 tokens: a false alarm once in a million draws of seeds."""
    drawn = objective().draw(batch(random_texts([100] * 200)))
    hidden, tokens = len(drawn.encoder.rows_R), 20_000
    assert abs(hidden / tokens - 0.15) < 4.9 * (0.15 * 0.85 / tokens) ** 0.5
    assert drawn.encoder.selected_BL.sum(1).unique().numel() > 5  # no quota


def test_it_reads_passages_and_refuses_an_empty_window() -> None:
    assert SEED.Config().reads().rows == "passages"
    with pytest.raises(UserError, match="window = 0"):
        override(SEED.Config(), {"window": 0})
