"""MLM, ROM, BOW and term frequencies from [CLS] against the slow references; masks, and bags against a Counter."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.core.batch import Batch, TokenRows
from midmask.masking.corruption import select_tokens, select_words
from midmask.masking.randomness import Purpose
from midmask.objectives.pretraining.bow import BOW
from midmask.objectives.pretraining.mlm import MLM
from midmask.objectives.pretraining.mlm_cls_tf import MLMTermFrequency
from midmask.objectives.pretraining.retromae import RetroMAE, RetroMAERows
from midmask.objectives.pretraining.rom import ROM
from midmask.objectives.pretraining.vocabulary_weights import bag_of_words, winning_vocabulary
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import log_sum_exp
from tests.support.objectives.texts import (
    CLS,
    FIRST,
    MASK,
    PAD,
    SEP,
    TEXTS,
    UNK,
    batch,
    random_texts,
    small_vocabulary,
    token_rows,
    weighted,
)

objective = partial(build, MLM)

VARIANTS = [
    *((MLM, {"encoder_mask": mask}) for mask in ("token", "word")),
    *((ROM, {"mask_temperature": temperature}) for temperature in (0.0, 1.0, 50.0)),
]


@pytest.mark.parametrize(("method", "fields"), VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(method: Any, fields: dict[str, Any]) -> None:
    model, text = build(method, encoder_mask_ratio=0.4, **fields), weighted(token_rows(TEXTS))
    drawn, reference, terms = model.draw(Batch(0, {"passage": text})), reference_of(model), []
    for row in range(4):
        terms += surprises(reference, reference.encode(ids(drawn, row)), drawn, row, ids(text, row))
    assert len(terms) == 3 + 2 + 2 + 2 if method is ROM else len(terms) > 5
    assert_equal(model, drawn, reference, {"mlm": terms})


@pytest.mark.parametrize("mask", ["token", "word"])
def test_targets_are_the_true_ids_at_the_selected_places(mask: str) -> None:
    mlm = objective(encoder_mask=mask, encoder_mask_ratio=0.3)
    text = token_rows(random_texts([30, 11, 18]))
    drawn = mlm.draw(Batch(0, {"passage": text}))
    select = select_words if mask == "word" else select_tokens
    selected = select(text, small_vocabulary(), ratio=0.3, purpose=Purpose.SELECT)
    labels = torch.full_like(text.ids_BL, -100).flatten()
    labels[drawn.rows_R] = drawn.labels_R
    assert torch.equal(labels.view_as(text.ids_BL), torch.where(selected, text.ids_BL, -100))
    assert torch.equal(drawn.ids_BL[~selected], text.ids_BL[~selected])


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.3), (0.5, 0.225), (0.999, 0.15015)])
@pytest.mark.parametrize("mask", ["token", "word"])
def test_a_ratio_that_falls_hides_what_a_run_of_that_ratio_would(progress: float, share: float, mask: str) -> None:
    text = {"passage": token_rows(random_texts([60] * 20))}
    falling = objective(encoder_mask=mask, encoder_mask_ratio=0.3, final_mask_ratio=0.15)
    found = falling.draw(Batch(9, text, progress=progress))
    expected = objective(encoder_mask=mask, encoder_mask_ratio=share).draw(Batch(0, text))
    assert torch.equal(found.rows_R, expected.rows_R) and torch.equal(found.ids_BL, expected.ids_BL)


def test_unknown_tokens_are_targets_as_in_bert() -> None:
    """And as likely as others: 5 standard deviations of 200 draws each."""
    labels = objective(encoder_mask_ratio=0.5).draw(batch([[UNK, 9] * 200])).labels_R.tolist()
    assert 65 < labels.count(UNK) < 135 and 65 < labels.count(9) < 135


STOP, CONTENT = FIRST + 1, 30
"""A stop-word and another word of the small vocabulary."""


def read(text: TokenRows, weights: Tensor | None = None) -> Batch:
    """The rows; with weights by vocabulary entry, if there are any."""
    return Batch(0, {"passage": text if weights is None else replace(text, weights_BL=weights[text.ids_BL])})


def test_a_fixed_share_of_every_text_is_hidden_and_shown_as_it_was_elsewhere() -> None:
    lengths = [1, 3, 10, 20, 43, 120]
    text = weighted(token_rows(random_texts(lengths)))
    drawn = build(ROM).draw(read(text))
    mask = drawn.selected_BL
    assert mask.sum(1).tolist() == [1, 1, 2, 3, 6, 18]  # max(1, round(0.15 n)), half to even
    assert torch.equal(drawn.ids_BL[~mask], text.ids_BL[~mask])
    assert not bool(mask[(text.ids_BL == CLS) | (text.ids_BL == SEP) | (text.ids_BL == PAD)].any())
    assert torch.equal(drawn.labels_R, text.ids_BL[mask])


def test_without_a_temperature_the_words_of_highest_weight_are_hidden() -> None:
    text = weighted(token_rows([[CONTENT, 40, 41] * 30]))
    drawn = build(ROM, mask_temperature=0.0, encoder_mask_ratio=0.3).draw(read(text))
    content = (text.ids_BL != CLS) & (text.ids_BL != SEP)
    highest = torch.where(content, text.weights_BL, -1.0).flatten().topk(27).indices.sort().values
    assert torch.equal(drawn.rows_R, highest)


def test_every_masked_method_can_take_its_mask() -> None:
    """RetroMAE and MLM with encoder_mask = weighted hide the same tokens as ROM at the same share."""
    fields = {"encoder_mask": "weighted", "encoder_mask_ratio": 0.15, "mask_temperature": 0.7}
    text = weighted(token_rows(random_texts([40, 22, 7])))
    expected = build(ROM, mask_temperature=0.7).draw(read(text))
    retromae, mlm = build(RetroMAE, **fields), build(MLM, **fields)
    drawn = retromae.draw(read(text))
    assert isinstance(drawn, RetroMAERows)
    for rows in (drawn.encoder, mlm.draw(read(text))):
        assert torch.equal(rows.rows_R, expected.rows_R) and torch.equal(rows.ids_BL, expected.ids_BL)
    assert retromae(drawn).parts["encoder_mlm"].count == len(expected.rows_R)


def test_rows_without_weights_are_refused_rather_than_masked_uniformly() -> None:
    with pytest.raises(ValueError, match="came without term weights"):
        build(ROM).draw(read(token_rows(random_texts([5]))))


BOW_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "other weights": {"bow_weight": 0.8, "bow_weight_end": 0.3}, "tokens": {"encoder_mask": "token"},
}  # fmt: skip


def texts() -> TokenRows:
    """Repeated tokens, [UNK], and a text that is nothing else."""
    return token_rows([*random_texts([8, 4]), [UNK, 9, UNK, 12, 9, 9], [UNK, UNK]])


@pytest.mark.parametrize("variant", BOW_VARIANTS)
def test_bow_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    model = build(BOW, **BOW_VARIANTS[variant])
    config, text, progress = model.config, texts(), 0.25
    drawn = model.draw(Batch(10, {"passage": text}, progress=progress))
    reference = reference_of(model)
    values: dict[str, list[Tensor]] = {"mlm": [], "bag_of_words": []}
    for row in range(4):
        true = ids(text, row)
        states = reference.encode(ids(drawn.encoder, row))
        values["mlm"] += surprises(reference, states, drawn.encoder, row, true)
        words = {token for token in true[1:-1] if token != UNK}
        if words:
            logits = reference.logits(states[0])
            each = [(log_sum_exp(logits) - logits[v]) / len(words) for v in words]
            values["bag_of_words"].append(torch.stack(each).sum())
    assert len(values["bag_of_words"]) == 3
    cosine = math.cos(math.pi * progress)
    weight = config.bow_weight_end + (config.bow_weight - config.bow_weight_end) * 0.5 * (1 + cosine)
    assert_equal(model, drawn, reference, values, (1.0, weight))


def test_the_quota_counts_specials_and_unk_spends_it() -> None:
    text = token_rows([*random_texts([19, 31], size=40), [UNK] * 9])
    drawn = build(BOW).draw(Batch(0, {"passage": text})).encoder
    assert drawn.selected_BL.sum(1).tolist() == [round(21 * 0.3), round(33 * 0.3), 0]
    assert UNK not in drawn.labels_R


BAGS = [*random_texts([40, 0, 1, 17], size=30), [UNK, 9, UNK, 12, 9, 9], [UNK], [59, 59, 5, 59], [MASK, 7, MASK]]


@pytest.mark.parametrize("unknown", [True, False])
def test_a_bag_counts_each_distinct_token_once(unknown: bool) -> None:
    bag = bag_of_words(token_rows(BAGS), small_vocabulary(), unknown=unknown)
    for row, text in enumerate(BAGS):
        expected = Counter(token for token in text if token != MASK and (unknown or token != UNK))
        there = bag.present_BL[row]
        found = list(zip(bag.ids_BL[row][there].tolist(), bag.counts_BL[row][there].tolist(), strict=True))
        assert len(found) == len(expected) and dict(found) == expected
    assert bag.count == len(BAGS) - (1 if unknown else 2)


def test_winners_are_0_where_all_texts_share_them_and_1_where_none_do() -> None:
    same = torch.arange(60.0).repeat(3, 1)
    apart = torch.stack([torch.arange(60.0).roll(20 * row) for row in range(3)])
    half = torch.stack([torch.arange(60.0), torch.arange(60.0).roll(5)])
    assert winning_vocabulary(same) == 0
    assert winning_vocabulary(apart) == 1
    assert winning_vocabulary(half) == 0.5
    assert winning_vocabulary(same[:1]) == 1


FREQUENCIES_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {}, "whole words, another weight": {"encoder_mask": "word", "tf_weight": 0.4}
}  # fmt: skip


def frequencies_texts() -> TokenRows:
    """Repeated tokens, and a text without any."""
    return token_rows([*random_texts([8, 0, 9]), [UNK, 9, UNK, 12, 9, 9]])


def distance(y: Tensor, words: Counter[int]) -> Tensor:
    """Of y from the whole target, entry by entry."""
    length = math.sqrt(sum(count**2 for count in words.values()))
    target = torch.zeros(len(y), dtype=torch.float64)
    for token, count in words.items():
        target[token] = count / length
    return torch.stack([(y[v] - target[v]) ** 2 for v in range(len(y))]).sum()


@pytest.mark.parametrize("variant", FREQUENCIES_VARIANTS)
def test_frequencies_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    model = build(MLMTermFrequency, encoder_mask_ratio=0.4, **FREQUENCIES_VARIANTS[variant])
    config, text = model.config, frequencies_texts()
    drawn = model.draw(Batch(0, {"passage": text}))
    reference = reference_of(model)
    values: dict[str, list[Tensor]] = {"mlm": [], "term_frequencies": []}
    for row in range(4):
        true = ids(text, row)
        states = reference.encode(ids(drawn.encoder, row))
        values["mlm"] += surprises(reference, states, drawn.encoder, row, true)
        if words := Counter(true[1:-1]):
            values["term_frequencies"].append(distance(reference.logits(states[0]), words))
    assert len(values["term_frequencies"]) == 3
    assert_equal(model, drawn, reference, values, (1.0, config.tf_weight))
