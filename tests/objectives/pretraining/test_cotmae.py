"""CoT-MAE against the slow reference, and its masks and pairing."""

from typing import Any

import numpy as np
import pytest
import torch

from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.randomness.masks import row_keys
from tests.support.objectives import two_sided
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import CLS, FIRST, MASK, SEP, UNK, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "released, two layers": {},
    "paper, one layer": {"decoder_layers": 1, "decoder_weight": 0.7},
    "tokens": {"encoder_mask": "token", "encoder_weight": 0.3},
}


def objective(**fields: Any) -> CoTMAE:
    built = two_sided.build(CoTMAE.Config(), fields)
    assert isinstance(built, CoTMAE)
    return built


def spans(first: list[list[int]], second: list[list[int]]) -> Batch:
    keys = row_keys(7, 0, np.arange(100, 100 + len(second)))
    return Batch(0, {"passage": token_rows(first), "context": token_rows(second, keys=keys)})


def batch() -> Batch:
    return spans([*random_texts([8, 4, 6]), [UNK, 9, UNK, 12]], random_texts([5, 7, 3, 9], seed=1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    cotmae, pairs = objective(**VARIANTS[variant]), batch()
    config, drawn = cotmae.config, cotmae.draw(batch())
    reference = Reference(cotmae, heads=2, layers=2, pad_id=0)
    encoder: Vectors = []
    decoder: Vectors = []
    for row in range(4):
        for here, there, kind, other in ((row, row, "passage", "context"), (row + 4, row + 4, "context", "passage")):
            states = reference.encode(two_sided.ids(drawn.encoder, here))
            own, others = (two_sided.ids(pairs.texts[name], row) for name in (kind, other))
            encoder += two_sided.surprises(reference, states, drawn.encoder, here, own)
            read = [states[0], *reference.embed(two_sided.ids(drawn.decoder, there))[1:]]
            decoded = reference.decoder(read, config.decoder_layers)
            decoder += two_sided.surprises(reference, decoded, drawn.decoder, there, others)
    expected = {"encoder_mlm": (config.encoder_weight, encoder), "decoder_mlm": (config.decoder_weight, decoder)}
    two_sided.assert_equal(cotmae, drawn, reference, expected)


def test_the_decoder_reads_the_other_span() -> None:
    pairs, drawn, seen = batch(), objective().draw(batch()), 0
    for side, rows in (("encoder", drawn.encoder), ("decoder", drawn.decoder)):
        kinds = ("passage", "context") if side == "encoder" else ("context", "passage")
        for number, kind in enumerate(kinds):
            for row in range(4):
                read, true = two_sided.ids(rows, 4 * number + row), two_sided.ids(pairs.texts[kind], row)
                hidden = two_sided.places(rows, 4 * number + row)
                assert [token for j, token in enumerate(read) if j not in hidden] == [
                    token for j, token in enumerate(true) if j not in hidden
                ]
                assert len(hidden) <= round(0.45 * (len(true) - 2)) and not {true[j] for j in hidden} & {CLS, SEP, UNK}
                seen += len(hidden)
    assert seen > 20


def test_swapping_the_spans_changes_nothing() -> None:
    cotmae, pairs = objective(), batch()
    swapped = Batch(0, {"passage": pairs.texts["context"], "context": pairs.texts["passage"]})
    there, back = (cotmae(cotmae.draw(each)) for each in (pairs, swapped))
    for name in cotmae.parts:
        torch.testing.assert_close(there.parts[name].total, back.parts[name].total, rtol=1e-9, atol=1e-9)


def test_quotas_leave_out_specials_and_the_two_masks_are_independent() -> None:
    """1,000 rows of 100 one-token words. False alarms once in a million draws of seeds for each of the two z-scores."""
    texts = [[FIRST + (i + j) % 30 for j in range(100)] for i in range(500)]
    drawn = objective().draw(spans(texts, texts[::-1]))
    encoder, decoder = drawn.encoder.selected_BL, drawn.decoder.selected_BL.roll(500, 0)
    assert set(encoder.sum(1).tolist()) == {30} and set(decoder.sum(1).tolist()) == {45}  # 31 and 46 with specials
    shared = (encoder & decoder).sum()
    variance = 30 * 0.45 * 0.55 * 70 / 99  # hypergeometric
    assert abs(float(shared) / 1000 - 13.5) < 4.9 * (variance / 1000) ** 0.5
    decoder_ids = drawn.decoder.ids_BL.roll(500, 0)
    both = ((drawn.encoder.ids_BL == MASK) & (decoder_ids == MASK))[encoder & decoder].sum()
    chance = (0.8 + 0.1 / 60) ** 2  # a random token may be [MASK]
    assert abs(float(both / shared) - chance) < 4.9 * (chance * (1 - chance) / float(shared)) ** 0.5


def test_sums_do_not_depend_on_how_a_batch_is_cut() -> None:
    two_sided.assert_sums_survive_cutting(objective(), batch())


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    two_sided.assert_finite(objective(), spans(random_texts([length, 6]), random_texts([3, length])))


def test_health_compares_with_and_without_the_vector() -> None:
    two_sided.assert_health_compares(objective(), batch(), {"decoder_loss": "decoder_mlm"})


def test_it_reads_spans_and_its_encoder_may_be_weighted() -> None:
    config = override(CoTMAE.Config(), {"context": "nearby", "encoder_mask": "weighted"})
    assert (config.reads().rows, config.reads().context, config.reads().term_weights) == ("spans", "nearby", True)
    assert CoTMAE.Config().reads().context == "mixed"
    pairs = batch()
    weighted = {
        name: TokenRows(text.ids_BL, text.lengths_B, text.keys_B, (text.ids_BL % 7 == 0).float())
        for name, text in pairs.texts.items()
    }
    drawn = objective(encoder_mask="weighted", mask_temperature=0.0).draw(Batch(0, weighted))
    for row, length in enumerate([8, 4, 6, 4, 5, 7, 3, 9]):
        assert len(two_sided.places(drawn.encoder, row)) == max(1, round(0.3 * length))


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(UserError, match="context"):
        override(CoTMAE.Config(), {"context": "any"})
    with pytest.raises(UserError, match="decoder_mask_ratio"):
        override(CoTMAE.Config(), {"decoder_mask_ratio": 0.0})
