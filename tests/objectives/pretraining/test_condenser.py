"""Condenser against the slow reference; what its head can see; its masks and refusals."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from midmask.encoders.backbone import load_backbone
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import build_objective
from midmask.objectives.pretraining.condenser import Condenser
from tests.support.objectives.checks import assert_equal, build
from tests.support.objectives.head import HeadReference
from tests.support.objectives.texts import TEXTS, UNK, batch, small_vocabulary

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
    with pytest.raises(UserError, match="skip_from = 0"):
        override(Condenser.Config(), {"skip_from": 0})


def test_upper_layers_reach_the_head_through_the_vector_alone() -> None:
    """With the vectors and the early states held fixed, what the last layer makes of tokens does not matter."""
    condenser = objective().eval()
    drawn = condenser.draw(READ)
    late_BLD, early_BLD = condenser.head.encode(condenser.backbone, drawn)
    other_BLD = torch.randn_like(late_BLD)
    other_BLD[:, 0] = late_BLD[:, 0]
    parts = [condenser.head.parts(condenser.backbone, drawn, late, early_BLD) for late in (late_BLD, other_BLD)]
    assert torch.equal(parts[0]["head_mlm"].total, parts[1]["head_mlm"].total)
    assert not torch.equal(parts[0]["late_mlm"].total, parts[1]["late_mlm"].total)
    other_BLD[:, 0] += 1.0
    moved = condenser.head.parts(condenser.backbone, drawn, other_BLD, early_BLD)["head_mlm"]
    assert not torch.equal(moved.total, parts[0]["head_mlm"].total)


def test_the_quota_leaves_specials_out_and_unknown_words_are_passed_over() -> None:
    """Of 30 tokens 0.15 are 4 (with [CLS] and [SEP] it would be 5), all of them taken from the six that are known."""
    drawn = objective().draw(batch([[UNK] * 24 + [6, 7, 8, 9, 10, 11]]))
    assert len(drawn.labels_R) == 4 and (drawn.rows_R > 24).all() and (drawn.labels_R > UNK).all()
