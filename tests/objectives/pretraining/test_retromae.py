"""RetroMAE against the slow reference, for both decodings and both query streams; and the rules of its decoder."""

from functools import partial
from typing import Any

import pytest
import torch

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.retromae import RetroMAE
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises
from tests.support.objectives.enhanced import decode
from tests.support.objectives.reference import Vectors
from tests.support.objectives.texts import MASK, TEXTS, batch, random_texts, token_rows

MEAN = {"backbone": {"sentence_vector": "mean"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "enhanced, P + h": {},
    "enhanced, embedding module": {"query_stream": "embedding"},
    "enhanced, independent masks": {"decoder_masks": "independent", "decoder_weight": 0.7},
    "basic, one layer": {"decoding": "basic"},
    "basic, three layers": {"decoding": "basic", "decoder_layers": 3, "encoder_weight": 0.3},
    "tokens": {"encoder_mask": "token"},
    "mean of the tokens": MEAN,
}
objective = partial(build, RetroMAE)
READ = batch(TEXTS)
TEXT = READ.texts["passage"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    retromae = objective(**VARIANTS[variant])
    config, drawn, reference = retromae.config, retromae.draw(READ), reference_of(retromae)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_mlm": []}
    for row in range(4):
        states, true = reference.encode(ids(drawn.encoder, row)), ids(TEXT, row)
        vector = sum(states) / len(states) if VARIANTS[variant] is MEAN else states[0]
        decoded = decode(config, reference, vector, drawn, row)
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, true)
        terms["decoder_mlm"] += surprises(reference, decoded, drawn.decoder, row, true)
    assert_equal(retromae, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_enhanced_targets_are_all_tokens_but_the_ends_and_nothing_is_masked() -> None:
    drawn = objective().draw(READ).decoder
    assert torch.equal(drawn.ids_BL, TEXT.ids_BL)
    for row in range(4):
        assert places(drawn, row) == list(range(1, int(TEXT.lengths_B[row]) - 1))
    assert torch.equal(drawn.labels_R, TEXT.ids_BL.flatten()[drawn.rows_R])


def test_basic_targets_are_masked_whole_words_apart_from_the_encoders() -> None:
    text = token_rows(random_texts([120, 60]))
    drawn = objective(decoding="basic").draw(Batch(0, {"passage": text}))
    hidden = torch.zeros_like(text.ids_BL, dtype=torch.bool).flatten()
    hidden[drawn.decoder.rows_R] = True
    hidden = hidden.view_as(text.ids_BL)
    assert torch.equal(drawn.decoder.ids_BL, torch.where(hidden, MASK, text.ids_BL))
    assert hidden.sum(1).tolist() == [61, 31]
    shared = set(drawn.encoder.rows_R.tolist()) & set(drawn.decoder.rows_R.tolist())
    assert 0 < len(shared) < 0.8 * len(drawn.encoder.rows_R)


def test_dropout_acts_in_the_decoder_and_only_while_training() -> None:
    retromae = objective(dropout=0.3)
    drawn = retromae.draw(READ)
    queries = torch.randn(4, TEXT.ids_BL.shape[1], 128).double()

    def twice() -> bool:
        return torch.equal(*(retromae.decoder[0](queries, queries, drawn.visible_BXL) for _ in range(2)))

    assert not twice()
    retromae.eval()
    assert twice()


def test_more_than_one_enhanced_layer_is_refused() -> None:
    with pytest.raises(UserError, match="needs decoding = basic"):
        override(RetroMAE.Config(), {"decoder_layers": 2})
    assert override(RetroMAE.Config(), {"decoder_layers": 2, "decoding": "basic"}).decoder_layers == 2


def test_health_tells_what_the_decoder_does_without_the_text_s_vector() -> None:
    retromae = objective().eval()
    drawn = retromae.draw(READ)
    found = retromae.health(drawn)
    hidden = retromae.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
    same = sum(hidden[row, 0] for row in range(4)) / 4
    decoded = retromae.decode(torch.stack([same] * 4)[:, None], drawn.decoder.ids_BL, drawn.visible_BXL)
    logits = retromae.backbone.transform(decoded) @ retromae.backbone.output_weight_VD.t()
    logits = (logits + retromae.backbone.output_bias_V).flatten(0, 1)[drawn.decoder.rows_R]
    expected = torch.nn.functional.cross_entropy(logits, drawn.decoder.labels_R)
    torch.testing.assert_close(found["decoder_loss_without_vector"], expected)
