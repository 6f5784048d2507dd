"""CoT-MAE against the slow reference, and its masks and pairing."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.cotmae import CoTMAE
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises
from tests.support.objectives.reference import Vectors
from tests.support.objectives.texts import CLS, FIRST, MASK, SEP, TEXTS, UNK, batch, random_texts

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


def test_the_decoder_reads_the_other_span() -> None:
    drawn, seen = objective().draw(READ), 0
    for rows, texts in ((drawn.encoder, SPANS), (drawn.decoder, OTHERS)):
        for row, true in enumerate(texts):
            read, hidden = ids(rows, row), places(rows, row)
            assert all(read[j] == true[j] for j in range(len(true)) if j not in hidden)
            assert len(hidden) <= round(0.45 * (len(true) - 2)) and not {true[j] for j in hidden} & {CLS, SEP, UNK}
            seen += len(hidden)
    assert seen > 20


def test_swapping_the_spans_changes_nothing() -> None:
    cotmae = objective()
    swapped = Batch(0, {"passage": READ.texts["context"], "context": READ.texts["passage"]})
    there, back = (cotmae(cotmae.draw(each)) for each in (READ, swapped))
    for name in cotmae.parts:
        torch.testing.assert_close(there.parts[name].total, back.parts[name].total, rtol=1e-9, atol=1e-9)


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


def test_it_reads_spans_and_its_encoder_may_be_weighted() -> None:
    config = override(CoTMAE.Config(), {"context": "nearby", "encoder_mask": "weighted"})
    assert (config.reads().rows, config.reads().context, config.reads().term_weights) == ("spans", "nearby", True)
    assert CoTMAE.Config().reads().context == "mixed"
    weighted = {name: replace(text, weights_BL=(text.ids_BL % 7 == 0).float()) for name, text in READ.texts.items()}
    drawn = objective(encoder_mask="weighted", mask_temperature=0.0).draw(Batch(0, weighted))
    for row, length in enumerate([8, 4, 6, 4, 5, 7, 3, 9]):
        assert len(places(drawn.encoder, row)) == max(1, round(0.3 * length))


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(UserError, match="context"):
        override(CoTMAE.Config(), {"context": "any"})
    with pytest.raises(UserError, match="decoder_mask_ratio"):
        override(CoTMAE.Config(), {"decoder_mask_ratio": 0.0})
