"""FLOPs as they are counted without numbers, and memory as it is reckoned, against formulas worked out by hand and
against real numbers: some of each kind here, all in tests/system.
"""

import pytest
from transformers import AutoModelForSequenceClassification

from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, Template
from midmask.encoders.reading import sized_settings
from midmask.encoders.representation import Representation
from midmask.encoders.seq2seq import build_seq2seq
from midmask.estimate.counting import Row, count_encoding, count_scoring
from midmask.estimate.sizes import encoder_sizes
from midmask.objectives import FINETUNING, PRETRAINING
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.sample import finetuning_batch, full_rows
from midmask.training.optimiser import TrainConfig, build_optimiser
from tests.support.estimate.counted import (
    DENSE,
    LENGTH,
    TINY,
    WORDS,
    V,
    backbone,
    count_flops,
    counted,
    finetuning_step,
    kept_bytes,
    learn,
    pretraining_step,
    reckoned,
)

D, INNER, LAYERS = 128, 512, 2
LATE = Representation(dense=None, tokens=32)


@pytest.mark.parametrize("name", ["mlm", "dupmae", "cocondenser", "simlm"])
def test_pretraining(name):
    own, objective, batch = pretraining_step(name, {})
    assert own.flops(16) == pytest.approx(count_flops(learn(objective, batch)), rel=0.01)
    assert own.parameters == sum(parameter.numel() for parameter in objective.parameters()) and own.is_whole


def layer(tokens: int, width: int, inner: int) -> int:
    """FLOPs of a BERT layer, forward: four matrices of attention, two of the feed-forward layer, scores and sums."""
    return 2 * (4 * width**2 + 2 * width * inner) * tokens + 4 * tokens**2 * width


def head(targets: float, width: int, vocabulary: int) -> float:
    """The MLM head: a square matrix, then the output matrix."""
    return 2 * (width + vocabulary) * width * targets


def test_a_masked_lm_of_berts_size_by_hand():
    """0.15 of 128 tokens are 19; a training step costs three forward passes."""
    config = PRETRAINING["mlm"].Config(encoder_mask_ratio=0.15)
    forward = 12 * layer(128, 768, 3072) + head(19, 768, 30_522)
    own = counted(config, Row(128), on=BackboneConfig(name="base"), size=30_522)
    assert own.row == pytest.approx(3 * forward, rel=0.005)


def test_rows_that_meet_are_counted_as_pairs():
    """Two spans a row, each held against all spans: 4 products of B x B vectors, three times; a masked LM has none."""
    meeting, apart = (counted(PRETRAINING[name].Config(), Row(LENGTH, LENGTH)) for name in ("cocondenser", "condenser"))
    assert meeting.pair == 3 * 4 * 2 * D and meeting.first_pass == pytest.approx(2 * LAYERS * layer(LENGTH, D, INNER))
    assert (apart.pair, apart.first_pass) == (0, 0)


def test_in_batch_negatives_by_hand():
    """Each query is held against the 4 passages of every query: a product of width D, forward and twice backward. By
    tokens, 16 of each query with all tokens of the passages: forward, again, and twice backward."""
    config, row = FINETUNING["contrastive"].Config(), Row(LENGTH, 16, group=4)
    assert counted(config, row).pair == 3 * 2 * D * 4
    late = counted(config, row, scored=LATE)
    assert late.is_whole and late.pair == 4 * 2 * 32 * 16 * 4 * LENGTH


def test_the_vector_of_the_first_token_needs_no_other_tokens_last_layer():
    """Of the last layer: its query and output, products with all tokens' states (per head, D wide), feed-forward."""
    heads = D // 64
    last = 2 * 2 * heads * D * LENGTH + 2 * 4 * D**2 + 2 * 2 * D * INNER
    by_hand = (LAYERS - 1) * layer(LENGTH, D, INNER) + last
    assert count_encoding(DENSE, TINY, V, LENGTH) == pytest.approx(by_hand, rel=0.01)


def test_a_cross_encoder():
    """By a real one; its training reads each pair of a list, twice with R-Drop."""
    settings = sized_settings("tiny", 0.1)
    settings.vocab_size, settings.num_labels = V, 1
    model = AutoModelForSequenceClassification.from_config(settings)
    encoder = CrossEncoder(model, Template((2,), (3,), (3,), None, 0), LENGTH).train()
    rows = full_rows(8, LENGTH, WORDS, seed=1)
    pairs = Pairs(rows.ids_BL, rows.lengths_B, None)

    def step() -> None:
        encoder(pairs).sum().backward()

    forward = count_scoring(TINY, V, 16, LENGTH - 16 + 1)
    assert 8 * 3 * forward == pytest.approx(count_flops(step))
    row = Row(LENGTH - 16 + 1, 16, group=4)
    once, twice = (counted(ListwiseRanking.Config(r_drop=weight), row) for weight in (0.0, 1.0))
    assert once.row == pytest.approx(4 * 3 * forward) and twice.row == pytest.approx(2 * once.row)
    assert once.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("config", [BackboneConfig(name="mini"), BackboneConfig(name="tiny", experts="ffn")])
def test_parameters_of_encoders(config):
    assert encoder_sizes(config, V).parameters == sum(one.numel() for one in backbone(config).parameters())


@pytest.mark.parametrize(("layers", "frozen"), [(3, False), (1, True)])
def test_a_generator_of_queries(layers, frozen):
    config, words = QueryGeneration.Config(decoder_layers=layers, frozen_encoder=frozen), WORDS
    model = build_seq2seq(BackboneConfig(), words, decoder_layers=layers, seed=0)
    objective = QueryGeneration(config, model, words).train()
    batch = finetuning_batch(words, queries=8, group=1, query=12, passage=40)
    own = counted(config, Row(40, 12, 1), on=BackboneConfig())
    assert own.is_whole and own.parameters == sum(parameter.numel() for parameter in objective.parameters())
    assert own.flops(8) == pytest.approx(count_flops(learn(objective, batch)), rel=0.01)
    assert own.targets == 11, "each token of a query but the first"


@pytest.mark.parametrize(("name", "experts"), [("retromae", "none"), ("cotmote", "ffn")])
def test_weights_gradients_and_moments_are_as_many_bytes_as_reckoned(name, experts):
    on = BackboneConfig(name="tiny", experts=experts)
    own, objective, batch = pretraining_step(name, {}, rows=2, on=on)
    optimiser = build_optimiser(objective, TrainConfig(steps=1, batch_size=16, learning_rate=1e-4))
    learn(objective, batch)()
    optimiser.step()
    parameters = list(objective.parameters())
    states = [value for state in optimiser.state.values() for key, value in state.items() if key != "step"]
    memory = reckoned(own, on)
    assert memory.weights == sum(one.nbytes for one in parameters)
    assert memory.gradients == sum(one.grad.nbytes for one in parameters if one.grad is not None)
    assert memory.optimiser == sum(one.nbytes for one in states)


def test_fine_tuning_keeps_all_passages_of_a_query():
    own, objective, batch = finetuning_step("contrastive", DENSE)
    memory, drawn = reckoned(own, rows=8), objective.draw(batch)
    real = kept_bytes(objective, lambda: objective(drawn))
    assert memory.activations + memory.kept_once == pytest.approx(real, rel=0.02) and memory.logits == 0


def test_the_gradient_of_the_output_matrix_is_kept_once_and_logits_exist_by_the_chunk():
    """V x D entries and V of the bias; 3 x 4 bytes of each logit of 0.15 x 64 targets a row, to 2**24 of them."""
    on = BackboneConfig(name="tiny", dropout=0.0)
    own = counted(PRETRAINING["mlm"].Config(encoder_mask_ratio=0.15), Row(LENGTH), on=on)
    matrix = 4 * V * (128 + 1)
    assert own.kept_once == pytest.approx(matrix, rel=0.2) and own.kept_once >= matrix
    few, many = (reckoned(own, on, rows=rows).logits for rows in (4, 10**6))
    assert few == pytest.approx(12 * 4 * 0.15 * LENGTH * V, rel=0.1) and many == 12 * 2**24


def test_a_gpu_keeps_masks_of_dropout_and_no_pairs_of_tokens():
    """A mask is a byte a number, of which 16 fp32 numbers a column are kept: a few percent. On a CPU, attention with
    dropout keeps its probabilities."""

    def activations(dropout: float, kind: str) -> float:
        on = BackboneConfig(name="tiny", dropout=dropout)
        return reckoned(counted(PRETRAINING["mlm"].Config(), Row(256), on=on, kind=kind), on, kind=kind).activations

    without = activations(0.0, "cuda")
    assert without == pytest.approx(activations(0.0, "cpu"), rel=0.01)
    assert without < activations(0.1, "cuda") < 1.06 * without < activations(0.1, "cpu")
