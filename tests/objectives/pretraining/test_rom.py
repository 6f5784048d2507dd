"""ROM against the slow reference, the card's parity facts, and its mask under another method."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.identity import override
from midmask.objectives import Objective, ObjectiveConfig, build_objective
from midmask.objectives.pretraining.mlm import MLM
from midmask.objectives.pretraining.retromae import RetroMAE, RetroMAERows
from midmask.objectives.pretraining.rom import ROM, ROMRows
from midmask.randomness.masks import row_keys
from tests.support.objectives.reference import Reference, assert_same_gradients
from tests.support.objectives.texts import CLS, FIRST, PAD, SEP, UNK, random_texts, small_vocabulary, token_rows

STOP, CONTENT = FIRST + 1, 30
"""A stop-word and another word of the small vocabulary."""


def build(config: ObjectiveConfig) -> Objective:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.0), vocabulary, seed=3)
    return build_objective(config, backbone, vocabulary, seed=5).double()


def rom(**fields: object) -> ROM:
    built = build(override(ROM.Config(), fields))
    assert isinstance(built, ROM)
    return built


def weighted(text: TokenRows, weights: Tensor | None = None) -> TokenRows:
    """The rows with these weights by vocabulary entry, or with random ones by position."""
    if weights is not None:
        return replace(text, weights_BL=weights[text.ids_BL])
    drawn = torch.rand(text.ids_BL.shape, generator=torch.Generator().manual_seed(1))
    return replace(text, weights_BL=drawn)


def batch(text: TokenRows) -> Batch:
    return Batch(0, {"passage": text})


def hidden(drawn: ROMRows, text: TokenRows) -> Tensor:
    flat = torch.zeros(text.ids_BL.numel(), dtype=torch.bool)
    flat[drawn.encoder.rows_R] = True
    return flat.view_as(text.ids_BL)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 50.0])
def test_loss_and_every_gradient_equal_the_reference(temperature: float) -> None:
    objective = rom(encoder_mask_ratio=0.4, mask_temperature=temperature)
    text = weighted(token_rows([*random_texts([9, 4, 7]), [UNK, 9, UNK]]))
    drawn = objective.draw(batch(text))
    loss = objective(drawn)
    total = loss.total({"mlm": loss.parts["mlm"].count})
    total.backward()

    reference = Reference(objective, heads=2, layers=2, pad_id=0)
    width = text.ids_BL.shape[1]
    losses = []
    for row, length in enumerate(text.lengths_B.tolist()):
        states = reference.encode(drawn.encoder.ids_BL[row, :length].tolist())
        here = [place - row * width for place in drawn.encoder.rows_R.tolist() if place // width == row]
        losses += [reference.surprise(states[j], int(text.ids_BL[row, j])) for j in here]
    assert objective.counts(drawn)["mlm"] == loss.parts["mlm"].count == len(losses) == 4 + 2 + 3 + 1
    expected = sum(losses) / len(losses)
    expected.backward()
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    assert_same_gradients(objective, reference)


def test_a_fixed_share_of_every_text_is_hidden_and_shown_as_it_was_elsewhere() -> None:
    lengths = [1, 3, 10, 20, 43, 120]
    text = weighted(token_rows(random_texts(lengths)))
    drawn = rom().draw(batch(text))
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
    text = weighted(token_rows(texts), weights)
    cold, hot = rom(mask_temperature=0.0), rom(mask_temperature=1000.0)
    heaviest = hidden(cold.draw(batch(text)), text)
    assert torch.equal(heaviest[:, :32].nonzero()[:, 1].unique(), torch.arange(2, 31, 2))
    values = {name: float(value) for name, value in hot.health(hot.draw(batch(text))).items()}
    deviation = (0.25 / 15 * 85 / 99 / 400) ** 0.5
    assert values["stop_words_in_text"] == 0.5
    assert (
        abs(values["stop_words_masked"] - 0.5) < 4.9 * deviation + 2e-3
    )  # the last term: weights of 1 against a temperature of 1000


def test_health_counts_stop_words_of_true_ids_among_hidden_tokens_and_among_candidates() -> None:
    objective = rom(mask_temperature=0.0, encoder_mask_ratio=0.5)
    weights = torch.zeros(60)
    weights[CONTENT], weights[STOP] = 1.0, 0.5
    text = weighted(token_rows([[STOP, CONTENT, CONTENT, 40], [STOP, STOP, STOP, STOP, 40, 41]]), weights)
    values = objective.health(objective.draw(batch(text)))
    # Hidden: two CONTENT of the first text, three STOP of the second. Candidates: five STOP of ten.
    assert values["stop_words_masked"] == pytest.approx(3 / 5)
    assert values["stop_words_in_text"] == pytest.approx(5 / 10)
    nothing = objective.health(objective.draw(batch(weighted(token_rows([[]])))))
    assert [float(value) for value in nothing.values()] == [0.0, 0.0]


def test_stop_words_are_spared_where_they_weigh_nothing() -> None:
    """Card 5: with weights of 0 and 1 and temperature 1 a stop-word is hidden only where content does not suffice."""
    weights = torch.zeros(60)
    weights[CONTENT:] = 1.0
    text = weighted(token_rows([[STOP, STOP, CONTENT, 35, STOP] * 8] * 60), weights)
    objective = rom()
    values = objective.health(objective.draw(batch(text)))
    assert values["stop_words_masked"] == 0.0 and values["stop_words_in_text"] == pytest.approx(0.6)


def test_sums_do_not_depend_on_how_a_batch_is_cut() -> None:
    objective = rom()
    lengths = [30, 3, 12, 21]
    together = weighted(token_rows(random_texts(lengths)))
    whole = objective(objective.draw(batch(together))).parts["mlm"]
    pieces = []
    for row in range(4):
        size = lengths[row] + 2
        wide = (together.ids_BL[:, :size], together.lengths_B, together.keys_B, together.weights_BL[:, :size])
        pieces.append(objective(objective.draw(batch(TokenRows(*(t[row : row + 1] for t in wide))))).parts["mlm"])
    assert sum(piece.count for piece in pieces) == whole.count
    torch.testing.assert_close(sum(piece.total for piece in pieces), whole.total, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    objective = rom()
    text = weighted(token_rows(random_texts([length])))
    part = objective(objective.draw(batch(text))).parts["mlm"]
    (part.total / part.count.clamp(min=1)).backward()
    assert part.count == min(length, 1)
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in objective.parameters())


def test_every_masked_method_can_take_its_mask() -> None:
    """RetroMAE and MLM with encoder_mask = weighted hide the same tokens as ROM at the same share."""
    fields = {"encoder_mask": "weighted", "encoder_mask_ratio": 0.15, "mask_temperature": 0.7}
    text = weighted(token_rows(random_texts([40, 22, 7])))
    expected = rom(mask_temperature=0.7).draw(batch(text)).encoder
    retromae, mlm = build(override(RetroMAE.Config(), fields)), build(override(MLM.Config(), fields))
    drawn = retromae.draw(batch(text))
    assert isinstance(drawn, RetroMAERows)
    for rows in (drawn.encoder, mlm.draw(batch(text))):
        assert torch.equal(rows.rows_R, expected.rows_R) and torch.equal(rows.ids_BL, expected.ids_BL)
    assert retromae(drawn).parts["encoder_mlm"].count == len(expected.rows_R)
    assert all(override(config, fields).reads().term_weights for config in (RetroMAE.Config(), MLM.Config()))
    assert ROM.Config().reads().term_weights and not RetroMAE.Config().reads().term_weights


def test_epochs_hide_other_tokens() -> None:
    text = weighted(token_rows([[CONTENT] * 60] * 30), torch.zeros(60))
    objective = rom()
    first = hidden(objective.draw(batch(text)), text)
    again = hidden(objective.draw(batch(replace(text, keys_B=row_keys(7, 1, np.arange(30))))), text)
    # 9 of 60 twice, independently: 1.35 shared of each 9; over 30 rows 40.5, deviation 5.5. False alarm 1e-6.
    assert abs(int((first & again).sum()) - 40.5) < 27


def test_rows_without_weights_are_refused_rather_than_masked_uniformly() -> None:
    with pytest.raises(ValueError, match="came without term weights"):
        rom().draw(batch(token_rows(random_texts([5]))))


@pytest.mark.parametrize(("field", "value"), [("encoder_mask", "word"), ("mask_temperature", -1.0)])
def test_a_contradicting_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        ROM.Config(**{field: value})
