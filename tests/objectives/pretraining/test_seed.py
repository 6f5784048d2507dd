"""SEED-Encoder against the slow reference, and its restricted span."""

from typing import Any

import pytest
import torch

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.seed import SEED
from tests.support.objectives import two_sided
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import UNK, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "three layers, span 2": {},
    "one layer, span 8": {"decoder_layers": 1, "window": 8, "decoder_weight": 0.9},
    "whole words": {"encoder_mask": "word", "encoder_mask_ratio": 0.5, "decoder_layers": 1, "window": None},
}


def objective(**fields: Any) -> SEED:
    built = two_sided.build(SEED.Config(), fields)
    assert isinstance(built, SEED)
    return built


def batch() -> Batch:
    return Batch(0, {"passage": token_rows([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])})


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    seed, read = objective(**VARIANTS[variant]), batch()
    config, drawn = seed.config, seed.draw(batch())
    reference = Reference(seed, heads=2, layers=2, pad_id=0)
    encoder: Vectors = []
    decoder: Vectors = []
    for row in range(4):
        text = two_sided.ids(read.texts["passage"], row)
        states = reference.encode(two_sided.ids(drawn.encoder, row))
        encoder += two_sided.surprises(reference, states, drawn.encoder, row, text)
        decoded = reference.causal_decoder(
            "causal_decoder",
            [states[0], *reference.embed(text)[1:]],
            layers=config.decoder_layers,
            window=config.window,
            vectors=1,
        )
        decoder += [reference.surprise(decoded[i], text[i + 1]) for i in range(len(text) - 1)]
    expected = {"encoder_mlm": (config.encoder_weight, encoder), "decoder_clm": (config.decoder_weight, decoder)}
    two_sided.assert_equal(seed, drawn, reference, expected)


def test_both_losses_have_half_weight() -> None:
    loss = objective()(objective().draw(batch()))
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
    drawn = objective().draw(Batch(0, {"passage": token_rows(random_texts([100] * 200))}))
    hidden, tokens = len(drawn.encoder.rows_R), 20_000
    assert abs(hidden / tokens - 0.15) < 4.9 * (0.15 * 0.85 / tokens) ** 0.5
    assert drawn.encoder.selected_BL.sum(1).unique().numel() > 5  # no quota


def test_sums_do_not_depend_on_how_a_batch_is_cut() -> None:
    two_sided.assert_sums_survive_cutting(objective(), batch())


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    two_sided.assert_finite(objective(), Batch(0, {"passage": token_rows(random_texts([length, 6]))}))


def test_health_compares_with_and_without_the_vector() -> None:
    two_sided.assert_health_compares(objective(), batch(), {"decoder_loss": "decoder_clm"})


def test_it_reads_passages_and_refuses_an_empty_window() -> None:
    assert SEED.Config().reads().rows == "passages"
    with pytest.raises(UserError, match="window = 0"):
        override(SEED.Config(), {"window": 0})
