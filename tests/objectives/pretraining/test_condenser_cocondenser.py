"""Condenser and coCondenser against the slow reference; what the head can see; masks and refusals."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import load_backbone
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import build_objective
from midmask.objectives.pretraining.cocondenser import CoCondenser
from midmask.objectives.pretraining.condenser import Condenser
from tests.support.objectives.checks import assert_equal, build, ids
from tests.support.objectives.head import HeadReference
from tests.support.objectives.reference import Vectors, log_sum_exp
from tests.support.objectives.texts import TEXTS, UNK, batch, random_texts, small_vocabulary, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "one layer, other weights": {"head_layers": 1, "head_weight": 0.4, "late_weight": 1.7},
    "tokens": {"encoder_mask": "token", "encoder_mask_ratio": 0.4},
}


def deep(layers: int, folder: Path, **fields: Any) -> Any:
    """On a BERT of some layers, from a Hugging Face folder."""
    shape = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256, "initializer_range": 0.05}
    torch.manual_seed(2)
    BertForMaskedLM(
        BertConfig(vocab_size=60, num_hidden_layers=layers, max_position_embeddings=64, **shape)
    ).save_pretrained(folder)
    config = override(Condenser.Config(), fields)
    return build_objective(config, load_backbone(folder, dropout=0.0), small_vocabulary(), seed=5).double()


objective = partial(build, Condenser)
READ = batch(TEXTS)


def check(condenser: Condenser, layers: int, skip_from: int) -> None:
    reference, config = HeadReference(condenser, heads=2, layers=layers, pad_id=0), condenser.config
    drawn = condenser.draw(READ)
    terms = reference.losses(drawn, skip_from, config.head_layers)
    assert_equal(condenser, drawn, reference, terms, (config.head_weight, config.late_weight))


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    check(objective(**VARIANTS[variant]), layers=2, skip_from=1)


@pytest.mark.parametrize(("skip_from", "layer"), [(None, 2), (1, 1), (4, 4)])
def test_early_states_are_those_behind_the_chosen_layer(skip_from: int | None, layer: int, tmp_path: Path) -> None:
    """Half of five layers is two; the last layer itself is no choice."""
    check(deep(5, tmp_path, skip_from=skip_from, head_layers=1), layers=5, skip_from=layer)


def test_a_head_that_skips_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"condenser: skip_from = 2, but .* 2 layers; choose .* from 1 to 1"):
        objective(skip_from=2)
    with pytest.raises(UserError, match="condenser: the backbone has 1 layer"):
        deep(1, tmp_path)


def test_the_quota_leaves_specials_out_and_unknown_words_are_passed_over() -> None:
    """Of 30 tokens 0.15 are 4 (with [CLS] and [SEP] it would be 5), all of them taken from the six that are known."""
    drawn = objective().draw(batch([[UNK] * 24 + [6, 7, 8, 9, 10, 11]]))
    assert len(drawn.labels_R) == 4 and (drawn.rows_R > 24).all() and (drawn.labels_R > UNK).all()


COCONDENSER_VARIANTS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 20, published weights with a cache": {"temperature": 20.0, "head_weight": 2.0, "late_weight": 2.0},
    "other weights, one layer": {"contrastive_weight": 0.3, "late_weight": 0.5, "head_layers": 1, "temperature": 7.0},
}

build_cocondenser = partial(build, CoCondenser)
BATCH = batch(random_texts([8, 4, 6], seed=1), random_texts([5, 9, 7], seed=2))


@pytest.mark.parametrize("variant", COCONDENSER_VARIANTS)
def test_cocondenser_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    """The softmax of a span runs over all spans but itself; rows i and i + 3 of what is drawn are partners."""
    cocondenser = build_cocondenser(**COCONDENSER_VARIANTS[variant])
    config, drawn = cocondenser.config, cocondenser.draw(BATCH)
    reference = HeadReference(cocondenser, heads=2, layers=2, pad_id=0)
    contrastive: Vectors = []
    vectors = [reference.encode(ids(drawn, row))[0] for row in range(6)]
    for row, vector in enumerate(vectors):
        scores = {n: vector @ other / config.temperature for n, other in enumerate(vectors) if n != row}
        partner = scores[row + 3 if row < 3 else row - 3]
        contrastive.append(log_sum_exp(torch.stack(list(scores.values()))) - partner)
    terms = {"contrastive": contrastive, **reference.losses(drawn, 1, config.head_layers)}
    assert_equal(
        cocondenser, drawn, reference, terms, (config.contrastive_weight, config.head_weight, config.late_weight)
    )


def test_both_spans_are_masked_and_apart_from_each_other() -> None:
    """Both spans of a row carry the same key, and the same text is masked otherwise in each. Eight rows of 100 words,
    15 hidden in each span: were the masks independent, 2.25 would be shared in a row; that all eight rows were equal by
    chance has a probability below 1e-100."""
    text = token_rows(random_texts([100] * 8))
    drawn = build_cocondenser().draw(Batch(0, {"passage": text, "context": text}))
    assert torch.equal(drawn.lengths_B, text.lengths_B.repeat(2))
    hidden_BL = drawn.selected_BL
    assert hidden_BL.sum(1).tolist() == [15] * 16
    shared = (hidden_BL[:8] & hidden_BL[8:]).sum()
    assert 0 < shared < 8 * 7
    untouched = ~hidden_BL
    assert torch.equal(drawn.ids_BL[untouched], text.ids_BL.repeat(2, 1)[untouched])


def test_health_tells_how_well_partners_agree() -> None:
    """Equal spans, nothing masked: a pair's vectors are equal, and each row finds its own."""
    cocondenser = build_cocondenser(encoder_mask="token", encoder_mask_ratio=1e-6).eval()
    text: TokenRows = token_rows(random_texts([30, 20, 25, 10]))
    drawn = cocondenser.draw(Batch(0, {"passage": text, "context": text}))
    with torch.no_grad():
        health = cocondenser.health(drawn)
    assert health["alignment"] < 1e-9 and -4 < health["uniformity"] < 0 and health["in_batch_accuracy"] == 1
    order = [0, 1, 2, 3, 5, 4, 6, 7]
    shuffled = replace(drawn, ids_BL=drawn.ids_BL[order], lengths_B=drawn.lengths_B[order])
    with torch.no_grad():
        health = cocondenser.health(shuffled)
    assert health["alignment"] > 0 and health["in_batch_accuracy"] == 0.5
