"""DupMAE against the slow reference, for all it decodes, both heads and all targets; and who gets a gradient."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.bag_of_words import winning_vocabulary
from midmask.objectives.pretraining.dupmae import DupMAE
from midmask.objectives.pretraining.retromae import RetroMAE, RetroMAERows
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises, total_of
from tests.support.objectives.enhanced import decode
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import UNK, batch, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"bow_head": "projection", "bow_targets": "set", "query_stream": "paper"},
    "code": {"bow_weight": 0.1, "pool_masked": True, "pool_sep": True},
    "a sum over the set": {"bow_targets": "sum", "pool_sep": True, "decoder_weight": 0.7, "bow_weight": 0.3},
    "masked positions too": {"pool_masked": True, "encoder_weight": 0.3, "decoder_masks": "independent"},
    "decode = cls": {"decode": "cls"},
    "decode = ot": {"decode": "ot"},
    "basic decoding": {"decoding": "basic", "decoder_layers": 2},
}


def bag_loss(
    config: DupMAE.Config, reference: Reference, states: Vectors, true: list[int], masked: list[int]
) -> Tensor:
    """One text's - sum of w_v log softmax(mu)_v, by a dictionary of weights; 0 and no gradient if nothing is pooled."""
    last = len(true) - 1
    pooled = [i for i in range(1, last) if config.pool_masked or i not in masked] + ([last] if config.pool_sep else [])
    words = Counter(true[1:last])
    if not pooled or not words:
        return torch.zeros((), dtype=torch.float64)
    if config.bow_head == "tied":
        logits = [reference.logits(states[i]) for i in pooled]
    else:
        logits = [reference.get("projection.weight") @ states[i] for i in pooled]
    mu = torch.stack(logits).max(0).values
    weight = {"share": 1 / sum(words.values()), "set": 1 / len(words), "sum": 1.0}[config.bow_targets]
    return sum((weight * (log_sum_exp(mu) - mu[v]) for v in words), start=torch.zeros((), dtype=torch.float64))


objective = partial(build, DupMAE)
TEXT = token_rows([*random_texts([8, 4, 1]), [UNK, 9, UNK, 12, 9, 9]])
"""Repeated tokens, [UNK], and a text whose only token is masked."""
READ = Batch(0, {"passage": TEXT})


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    dupmae = objective(**VARIANTS[variant])
    config, drawn, reference = dupmae.config, dupmae.draw(READ), reference_of(dupmae)
    values: dict[str, list[Tensor]] = {"encoder_mlm": [], "decoder_mlm": [], "bag_of_words": []}
    for row in range(4):
        true, masked = ids(TEXT, row), places(drawn.encoder, row)
        states = reference.encode(ids(drawn.encoder, row))
        values["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, true)
        if config.decode != "ot":
            assert drawn.decoder is not None
            decoded = decode(config, reference, states[0], RetroMAERows(drawn.encoder, *drawn.decoder), row)
            values["decoder_mlm"] += surprises(reference, decoded, drawn.decoder[0], row, true)
        loss = bag_loss(config, reference, states, true, masked)
        if config.decode != "cls" and loss > 0:
            values["bag_of_words"].append(loss)
    bags = 4 if config.pool_masked or config.pool_sep else 3
    assert len(values["bag_of_words"]) == (0 if config.decode == "cls" else bags)
    weights = (config.encoder_weight, config.decoder_weight, config.bow_weight)
    assert_equal(dupmae, drawn, reference, values, weights)


def test_it_goes_on_from_retromae_s_decoder() -> None:
    retromae, dupmae = build(RetroMAE, query_stream="embedding", drift=0.1), objective()
    assert set(dupmae.take_over(retromae.heads_state())) == set(dupmae.heads_state())
    mine, its = (each(each.draw(READ)).parts["decoder_mlm"].total for each in (dupmae, retromae))
    torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("decode", ["cls", "ot", "both"])
def test_health_says_what_the_parts_say(decode: str) -> None:
    dupmae = objective(decode=decode).eval()
    drawn = dupmae.draw(READ)
    found = dupmae.health(drawn)
    wanted = {"decoder_loss", "decoder_loss_without_vector"} if decode != "ot" else set()
    assert set(found) == wanted | ({"winning_vocabulary"} if decode != "cls" else set())
    if decode != "cls":
        hidden = dupmae.backbone.transform(dupmae.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B))
        logits = hidden @ dupmae.backbone.output_weight_VD.t() + dupmae.backbone.output_bias_V
        rows = [logits[row][drawn.pooled_BL[row]] for row in range(4)]
        pooled = torch.stack([row.max(0).values if len(row) else torch.zeros_like(logits[0, 0]) for row in rows])
        assert found["winning_vocabulary"] == winning_vocabulary(pooled)


def test_a_text_without_a_pooled_position_adds_nothing() -> None:
    dupmae = objective(decode="ot")
    drawn = dupmae.draw(batch([[9]]))
    part = dupmae(drawn).parts["bag_of_words"]
    assert part.count == 0 and part.total == 0
    assert total_of(dupmae(drawn)).isfinite()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decode": "cls", "bow_head": "projection"}, "bow_head = projection has no effect with decode = cls"),
        ({"decode": "cls", "bow_weight": 0.1}, "bow_weight = 0.1 has no effect with decode = cls"),
        ({"decode": "ot", "decoder_mask_ratio": 0.9}, "decoder_mask_ratio = 0.9 has no effect with decode = ot"),
        ({"decoder_layers": 2}, "needs decoding = basic"),
        ({"bow_weight": 0.0}, "greater than 0"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(DupMAE.Config(), fields)
