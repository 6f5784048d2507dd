"""ROM against the slow reference, the card's parity facts, and its mask under another method."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.mlm import MLM
from midmask.objectives.pretraining.retromae import RetroMAE, RetroMAERows
from midmask.objectives.pretraining.rom import ROM, ROMRows
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.texts import CLS, FIRST, PAD, SEP, UNK, random_texts, token_rows, weighted

STOP, CONTENT = FIRST + 1, 30
"""A stop-word and another word of the small vocabulary."""


rom = partial(build, ROM)


def read(text: TokenRows, weights: Tensor | None = None) -> Batch:
    """The rows; with weights by vocabulary entry, if there are any."""
    return Batch(0, {"passage": text if weights is None else replace(text, weights_BL=weights[text.ids_BL])})


def hidden(drawn: ROMRows, text: TokenRows) -> Tensor:
    flat = torch.zeros(text.ids_BL.numel(), dtype=torch.bool)
    flat[drawn.encoder.rows_R] = True
    return flat.view_as(text.ids_BL)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 50.0])
def test_loss_and_every_gradient_equal_the_reference(temperature: float) -> None:
    objective = rom(encoder_mask_ratio=0.4, mask_temperature=temperature)
    text = weighted(token_rows([*random_texts([9, 4, 7]), [UNK, 9, UNK]]))
    drawn, reference, terms = objective.draw(read(text)), reference_of(objective), []
    for row in range(4):
        states = reference.encode(ids(drawn.encoder, row))
        terms += surprises(reference, states, drawn.encoder, row, ids(text, row))
    assert len(terms) == 4 + 2 + 3 + 1
    assert_equal(objective, drawn, reference, {"mlm": terms})


def test_a_fixed_share_of_every_text_is_hidden_and_shown_as_it_was_elsewhere() -> None:
    lengths = [1, 3, 10, 20, 43, 120]
    text = weighted(token_rows(random_texts(lengths)))
    drawn = rom().draw(read(text))
    mask = hidden(drawn, text)
    assert mask.sum(1).tolist() == [1, 1, 2, 3, 6, 18]  # max(1, round(0.15 n)), half to even
    assert torch.equal(drawn.encoder.ids_BL[~mask], text.ids_BL[~mask])
    assert not bool(mask[(text.ids_BL == CLS) | (text.ids_BL == SEP) | (text.ids_BL == PAD)].any())
    assert torch.equal(drawn.encoder.labels_R, text.ids_BL[mask])


def test_temperature_zero_hides_the_heaviest_and_a_high_temperature_hides_uniformly() -> None:
    """Card 5: the limits of p_r + alpha * p_w. The high limit: the share of stop-words hidden is that in the text,
    two-sided at 1e-6 (standard error of a hypergeometric share, 400 rows).
    """
    texts = [[STOP, CONTENT] * 50] * 400
    weights = torch.zeros(60)
    weights[CONTENT] = 1.0
    text = read(token_rows(texts), weights).texts["passage"]
    cold, hot = rom(mask_temperature=0.0), rom(mask_temperature=1000.0)
    heaviest = hidden(cold.draw(read(text)), text)
    assert torch.equal(heaviest[:, :32].nonzero()[:, 1].unique(), torch.arange(2, 31, 2))
    values = {name: float(value) for name, value in hot.health(hot.draw(read(text))).items()}
    deviation = (0.25 / 15 * 85 / 99 / 400) ** 0.5
    assert values["stop_words_in_text"] == 0.5
    assert abs(values["stop_words_masked"] - 0.5) < 4.9 * deviation + 2e-3  # weights of 1 against 1000


def test_health_counts_stop_words_of_true_ids_among_hidden_tokens_and_among_candidates() -> None:
    objective = rom(mask_temperature=0.0, encoder_mask_ratio=0.5)
    weights = torch.zeros(60)
    weights[CONTENT], weights[STOP] = 1.0, 0.5
    text = read(token_rows([[STOP, CONTENT, CONTENT, 40], [STOP, STOP, STOP, STOP, 40, 41]]), weights).texts["passage"]
    values = objective.health(objective.draw(read(text)))
    # Hidden: two CONTENT of the first text, three STOP of the second. Candidates: five STOP of ten.
    assert values["stop_words_masked"] == pytest.approx(3 / 5)
    assert values["stop_words_in_text"] == pytest.approx(5 / 10)
    nothing = objective.health(objective.draw(read(weighted(token_rows([[]])))))
    assert [float(value) for value in nothing.values()] == [0.0, 0.0]


def test_stop_words_are_spared_where_they_weigh_nothing() -> None:
    """Card 5: with weights of 0 and 1 and temperature 1 a stop-word is hidden only where content does not suffice."""
    weights = torch.zeros(60)
    weights[CONTENT:] = 1.0
    text = read(token_rows([[STOP, STOP, CONTENT, 35, STOP] * 8] * 60), weights).texts["passage"]
    objective = rom()
    values = objective.health(objective.draw(read(text)))
    assert values["stop_words_masked"] == 0.0 and values["stop_words_in_text"] == pytest.approx(0.6)


def test_every_masked_method_can_take_its_mask() -> None:
    """RetroMAE and MLM with encoder_mask = weighted hide the same tokens as ROM at the same share."""
    fields = {"encoder_mask": "weighted", "encoder_mask_ratio": 0.15, "mask_temperature": 0.7}
    text = weighted(token_rows(random_texts([40, 22, 7])))
    expected = rom(mask_temperature=0.7).draw(read(text)).encoder
    retromae, mlm = build(RetroMAE, **fields), build(MLM, **fields)
    drawn = retromae.draw(read(text))
    assert isinstance(drawn, RetroMAERows)
    for rows in (drawn.encoder, mlm.draw(read(text))):
        assert torch.equal(rows.rows_R, expected.rows_R) and torch.equal(rows.ids_BL, expected.ids_BL)
    assert retromae(drawn).parts["encoder_mlm"].count == len(expected.rows_R)
    assert all(override(config, fields).reads().term_weights for config in (RetroMAE.Config(), MLM.Config()))
    assert ROM.Config().reads().term_weights and not RetroMAE.Config().reads().term_weights


def test_rows_without_weights_are_refused_rather_than_masked_uniformly() -> None:
    with pytest.raises(ValueError, match="came without term weights"):
        rom().draw(read(token_rows(random_texts([5]))))


@pytest.mark.parametrize(("field", "value"), [("encoder_mask", "word"), ("mask_temperature", -1.0)])
def test_a_contradicting_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(UserError, match=field):
        override(ROM.Config(), {field: value})
