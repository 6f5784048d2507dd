"""Condenser against the slow reference; what its head can see; its masks and refusals."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import build_objective
from midmask.objectives.pretraining.condenser import Condenser
from tests.support.objectives.head import HeadReference
from tests.support.objectives.reference import assert_same_gradients
from tests.support.objectives.texts import UNK, random_texts, small_vocabulary, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "one layer, other weights": {"head_layers": 1, "head_weight": 0.4, "late_weight": 1.7},
    "tokens": {"encoder_mask": "token", "encoder_mask_ratio": 0.4},
}


def backbone_of(layers: int, folder: Path) -> Backbone:
    """A BERT of some layers, from a Hugging Face folder."""
    settings = BertConfig(
        vocab_size=60,
        hidden_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=64,
        initializer_range=0.05,
    )
    torch.manual_seed(2)
    BertForMaskedLM(settings).save_pretrained(folder)
    return load_backbone(folder, dropout=0.0)


def objective(backbone: Backbone | None = None, **fields: object) -> Condenser:
    vocabulary = small_vocabulary()
    backbone = backbone or build_backbone(BackboneConfig(name="tiny", dropout=0.0), vocabulary, seed=3)
    built = build_objective(override(Condenser.Config(), fields), backbone, vocabulary, seed=5).double()
    assert isinstance(built, Condenser)
    return built


def texts() -> TokenRows:
    return token_rows([*random_texts([8, 4, 6]), [UNK, 9, UNK, 12]])


def check(condenser: Condenser, layers: int, skip_from: int) -> None:
    drawn = condenser.draw(Batch(0, {"passage": texts()}))
    loss = condenser(drawn)
    total = loss.total(condenser.counts(drawn))
    total.backward()
    reference = HeadReference(condenser, heads=2, layers=layers, pad_id=0)
    config = condenser.config
    losses = reference.losses(drawn, skip_from, config.head_layers)
    weights = {"head_mlm": config.head_weight, "late_mlm": config.late_weight}
    expected = sum(weights[name] * sum(values) / len(values) for name, values in losses.items())
    expected.backward()
    for name, values in losses.items():
        assert condenser.counts(drawn)[name] == loss.parts[name].count == len(values) > 3
        torch.testing.assert_close(loss.parts[name].total, sum(values), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    assert_same_gradients(condenser, reference)


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    check(objective(**VARIANTS[variant]), layers=2, skip_from=1)


@pytest.mark.parametrize(("skip_from", "layer"), [(None, 2), (1, 1), (4, 4)])
def test_early_states_are_those_behind_the_chosen_layer(skip_from: int | None, layer: int, tmp_path: Path) -> None:
    """Half of five layers is two; the last layer itself is no choice."""
    check(objective(backbone_of(5, tmp_path), skip_from=skip_from, head_layers=1), layers=5, skip_from=layer)


def test_a_head_that_skips_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"condenser: skip_from = 2, but .* 2 layers; choose .* from 1 to 1"):
        objective(skip_from=2)
    with pytest.raises(UserError, match="condenser: the backbone has 1 layer"):
        objective(backbone_of(1, tmp_path))
    with pytest.raises(UserError, match="skip_from = 0"):
        override(Condenser.Config(), {"skip_from": 0})


def test_upper_layers_reach_the_head_through_the_vector_alone() -> None:
    """With the vectors and the early states held fixed, what the last layer makes of tokens does not matter."""
    condenser = objective().eval()
    drawn = condenser.draw(Batch(0, {"passage": texts()}))
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
    text = token_rows([[UNK] * 24 + [6, 7, 8, 9, 10, 11]])
    drawn = objective().draw(Batch(0, {"passage": text}))
    assert len(drawn.labels_R) == 4 and (drawn.rows_R > 24).all() and (drawn.labels_R > UNK).all()


def test_sums_do_not_depend_on_how_a_batch_is_cut() -> None:
    condenser = objective()
    lengths = [30, 3, 12, 21]
    together = token_rows(random_texts(lengths))
    whole = condenser(condenser.draw(Batch(0, {"passage": together})))
    for name, part in whole.parts.items():
        pieces = []
        for row in range(4):
            ids_BL = together.ids_BL[row : row + 1, : lengths[row] + 2]
            alone = TokenRows(ids_BL, together.lengths_B[row : row + 1], together.keys_B[row : row + 1])
            pieces.append(condenser(condenser.draw(Batch(0, {"passage": alone}))).parts[name])
        assert sum(piece.count for piece in pieces) == part.count
        torch.testing.assert_close(sum(piece.total for piece in pieces), part.total, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    condenser = objective()
    drawn = condenser.draw(Batch(0, {"passage": token_rows(random_texts([length, 6]))}))
    condenser(drawn).total(condenser.counts(drawn)).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in condenser.parameters())


def test_health_tells_the_heads_loss_with_and_without_the_vector() -> None:
    condenser = objective().eval()
    drawn = condenser.draw(Batch(0, {"passage": texts()}))
    with torch.no_grad():
        health = condenser.health(drawn)
        part = condenser(drawn).parts["head_mlm"]
        late_BLD, early_BLD = condenser.head.encode(condenser.backbone, drawn)
        mean_BLD = late_BLD.mean(0, keepdim=True).expand_as(late_BLD)
        blind = condenser.head.parts(condenser.backbone, drawn, mean_BLD, early_BLD)["head_mlm"]
    torch.testing.assert_close(health["decoder_loss"], part.total / part.count)
    torch.testing.assert_close(health["decoder_loss_without_vector"], blind.total / blind.count)
    assert health["decoder_loss"] != health["decoder_loss_without_vector"]


def test_the_head_is_what_is_thrown_away() -> None:
    condenser = objective()
    assert set(condenser.heads_state()) == {f"head.{name}" for name in condenser.head.state_dict()}
