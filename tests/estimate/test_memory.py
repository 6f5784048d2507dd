"""Memory as it is reckoned against the bytes of real tensors: some of each kind here, all in tests/system."""

import pytest

from midmask.encoders.backbone import BackboneConfig
from midmask.estimate.counting import Row
from midmask.objectives import PRETRAINING
from midmask.training.optimiser import TrainConfig, build_optimiser
from tests.support.estimate.counted import (
    DENSE,
    LENGTH,
    V,
    counted,
    finetuning_step,
    kept_by_step,
    kept_bytes,
    learn,
    pretraining_step,
    reckoned,
)


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


@pytest.mark.parametrize(
    ("name", "dropout", "bf16"), [("mlm", 0.0, False), ("dupmae", 0.1, False), ("cotmote", 0.1, True)]
)
def test_a_whole_step(name, dropout, bf16):
    """Within a hundredth of what autograd keeps of a forward pass. Chunks of logits are there for a moment only."""
    assert kept_by_step(name, "tiny", dropout, bf16=bf16) == pytest.approx(1, abs=0.01)


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
