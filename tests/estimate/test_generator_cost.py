"""What a generator of queries costs, held against the real model on real numbers, and against a formula."""

import pytest

from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.seq2seq import build_seq2seq
from midmask.estimate.counting import Row
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.sample import finetuning_batch, sample_vocabulary
from tests.support.estimate.counted import V, count_flops, counted, learn

D = 128


@pytest.mark.parametrize(("layers", "frozen"), [(3, False), (1, True)])
def test_a_step_is_counted_without_its_weights(layers, frozen):
    config, words = QueryGeneration.Config(decoder_layers=layers, frozen_encoder=frozen), sample_vocabulary(V)
    model = build_seq2seq(BackboneConfig(), words, decoder_layers=layers, seed=0)
    objective = QueryGeneration(config, model, words).train()
    batch = finetuning_batch(words, queries=8, group=1, query=12, passage=40)
    own = counted(config, Row(40, 12, 1), on=BackboneConfig())
    assert own.is_whole and own.parameters == sum(parameter.numel() for parameter in objective.parameters())
    assert own.flops(8) == pytest.approx(count_flops(learn(objective, batch)), rel=0.01)
    assert own.targets == 11, "each token of a query but the first"


def test_a_layer_of_the_decoder_costs_what_its_matrices_do():
    """Forward and backward: self-attention, attention to 40 tokens, feed-forward, for 11 tokens of a query."""
    row, on = Row(40, 12, 1), BackboneConfig()
    one, two = (counted(QueryGeneration.Config(decoder_layers=layers), row, on=on) for layers in (1, 2))
    own, seen = 11, 40
    matrices = 2 * D * D * (own * (4 + 2 + 8) + seen * 2)
    attention = 4 * D * own * (own + seen)
    assert two.row - one.row == pytest.approx(3 * matrices + 3 * attention, rel=0.03)
