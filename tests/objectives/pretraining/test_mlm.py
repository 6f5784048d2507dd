"""MLM against the slow reference, and what its masks are made of."""

import inspect
from functools import partial

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from midmask import masking
from midmask.batch import Batch
from midmask.objectives.pretraining.mlm import MLM
from midmask.randomness.masks import Purpose
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.texts import UNK, batch, random_texts, small_vocabulary, token_rows

objective = partial(build, MLM)


@pytest.mark.parametrize("mask", ["token", "word"])
def test_loss_and_every_gradient_equal_the_reference(mask: str) -> None:
    mlm, read = objective(encoder_mask=mask, encoder_mask_ratio=0.4), batch([*random_texts([9, 4, 7]), [UNK, 9, UNK]])
    drawn, reference, terms = mlm.draw(read), reference_of(mlm), []
    for row in range(4):
        states = reference.encode(ids(drawn, row))
        terms += surprises(reference, states, drawn, row, ids(read.texts["passage"], row))
    assert len(terms) > 5
    assert_equal(mlm, drawn, reference, {"mlm": terms})


@pytest.mark.parametrize("mask", ["token", "word"])
def test_targets_are_the_true_ids_at_the_selected_places(mask: str) -> None:
    mlm = objective(encoder_mask=mask, encoder_mask_ratio=0.3)
    text = token_rows(random_texts([30, 11, 18]))
    drawn = mlm.draw(Batch(0, {"passage": text}))
    select = masking.select_words if mask == "word" else masking.select_tokens
    selected = select(text, small_vocabulary(), ratio=0.3, purpose=Purpose.SELECT)
    labels = torch.full_like(text.ids_BL, -100).flatten()
    labels[drawn.rows_R] = drawn.labels_R
    assert torch.equal(labels.view_as(text.ids_BL), torch.where(selected, text.ids_BL, -100))
    assert torch.equal(drawn.ids_BL[~selected], text.ids_BL[~selected])


def test_unknown_tokens_are_targets_as_in_bert_and_unlike_run_mlm() -> None:
    """run_mlm's collator sees no mask of specials, since the trainer drops what a model does not take; so it asks the
    tokenizer, for which [UNK] is a special token. The other tokens have the same chance in both."""
    core = Tokenizer(models.WordLevel({"[UNK]": 0, "[MASK]": 1, "[PAD]": 2, "a": 3}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="[UNK]", mask_token="[MASK]", pad_token="[PAD]"
    )
    assert "special_tokens_mask" not in inspect.signature(BertForMaskedLM.forward).parameters
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5)
    torch.manual_seed(0)
    labels = collator([{"input_ids": [0, 3] * 200}])["labels"][0]
    assert (labels[::2] == -100).all() and 70 < int((labels[1::2] != -100).sum()) < 130
    mlm = objective(encoder_mask_ratio=0.5)
    drawn = mlm.draw(Batch(0, {"passage": token_rows([[UNK, 9] * 200])}))
    assert 70 < int((drawn.labels_R == UNK).sum()) < 130 and 70 < int((drawn.labels_R == 9).sum()) < 130


def test_bert_hides_15_percent_of_the_tokens() -> None:
    """4,000 tokens: 5 standard deviations of a binomial, false-alarm rate 6e-7."""
    text = token_rows(random_texts([100] * 40))
    share = len(objective().draw(Batch(0, {"passage": text})).rows_R) / 4000
    assert abs(share - 0.15) < 5 * (0.15 * 0.85 / 4000) ** 0.5


def test_a_batch_without_a_target_has_no_loss_and_no_gradient() -> None:
    mlm = objective(encoder_mask_ratio=1e-6)
    part = mlm(mlm.draw(Batch(0, {"passage": token_rows(random_texts([5, 5]))}))).parts["mlm"]
    part.total.backward()
    assert part.count == 0 and part.total.item() == 0
    assert not any(parameter.grad is not None and parameter.grad.any() for parameter in mlm.parameters())


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.3), (0.5, 0.225), (0.999, 0.15015)])
@pytest.mark.parametrize("mask", ["token", "word"])
def test_a_ratio_that_falls_hides_what_a_run_of_that_ratio_would(progress: float, share: float, mask: str) -> None:
    text = {"passage": token_rows(random_texts([60] * 20))}
    falling = objective(encoder_mask=mask, encoder_mask_ratio=0.3, final_mask_ratio=0.15)
    found = falling.draw(Batch(9, text, progress=progress))
    expected = objective(encoder_mask=mask, encoder_mask_ratio=share).draw(Batch(0, text))
    assert torch.equal(found.rows_R, expected.rows_R) and torch.equal(found.ids_BL, expected.ids_BL)
