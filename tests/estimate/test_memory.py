"""Memory as it is reckoned against the bytes of real tensors."""

from typing import Any

import pytest
import torch

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.representation import Representation
from midmask.estimate.counting import Counted, Row, count_training
from midmask.estimate.memory import Memory, training_memory
from midmask.estimate.sizes import encoder_sizes
from midmask.objectives import FINETUNING, PRETRAINING, ObjectiveConfig, build_objective
from midmask.objectives.sample import finetuning_batch, pretraining_batch, sample_vocabulary
from midmask.progress import gib
from midmask.training.optimiser import TrainConfig, build_optimiser
from tests.support.estimate.counted import kept_bytes, learn

WORDS = sample_vocabulary(1024)
ROWS, LENGTH = 16, 64


def counted(config: ObjectiveConfig, backbone: BackboneConfig, row: Row, *, kind: str = "cpu", bf16: bool) -> Counted:
    return count_training(config, backbone, WORDS.size, Representation(), row, kind=kind, bf16=bf16)


def reckoned(own: Counted, backbone: BackboneConfig, *, rows: int = ROWS, kind: str = "cpu") -> Memory:
    sizes = encoder_sizes(backbone, WORDS.size)
    return training_memory(own, sizes, rows=rows, kind=kind, dropout=backbone.dropout > 0)


@pytest.mark.parametrize("name", ["retromae", "lexmae", "cotmote"])
def test_weights_gradients_and_moments_are_as_many_bytes_as_reckoned(name: str) -> None:
    backbone = BackboneConfig(name="tiny", experts="ffn" if name == "cotmote" else "none")
    config = PRETRAINING[name].Config()
    objective = build_objective(config, build_backbone(backbone, WORDS, seed=0), WORDS).train()
    optimiser = build_optimiser(objective, TrainConfig(steps=1, batch_size=ROWS, learning_rate=1e-4))
    learn(objective, pretraining_batch(config, WORDS, rows=2, length=16))()
    optimiser.step()
    parameters = list(objective.parameters())
    states = [value for state in optimiser.state.values() for key, value in state.items() if key != "step"]
    memory = reckoned(counted(config, backbone, Row(16, 16 if name == "cotmote" else 0), bf16=False), backbone)
    assert memory.weights == sum(one.nbytes for one in parameters)
    assert memory.gradients == sum(one.grad.nbytes for one in parameters if one.grad is not None)
    assert memory.optimiser == sum(one.nbytes for one in states)


CASES: list[tuple[str, str, float, bool]] = [
    *((name, "tiny", 0.1, False) for name in PRETRAINING),
    *(("mlm", size, dropout, bf16) for size in ("tiny", "mini") for dropout in (0.0, 0.1) for bf16 in (False, True)),
    *((name, "tiny", 0.1, True) for name in ("dupmae", "cotmote")),
]


@pytest.mark.parametrize(("name", "size", "dropout", "bf16"), CASES)
def test_a_whole_step(name: str, size: str, dropout: float, bf16: bool) -> None:
    """Within a hundredth of what autograd keeps of a method's forward pass; inverse cloze and Spider draw the lengths
    of their pieces, and of a larger batch the longest is longer. Chunks of logits are there for a moment only."""
    backbone, config = BackboneConfig(name=size, dropout=dropout), PRETRAINING[name].Config()
    objective = build_objective(config, build_backbone(backbone, WORDS, seed=0), WORDS).train()
    batch = pretraining_batch(config, WORDS, rows=ROWS, length=LENGTH)
    drawn = objective.draw(batch)
    second = batch.texts["context"].ids_BL.shape[1] if "context" in batch.texts else 0
    memory = reckoned(counted(config, backbone, Row(LENGTH, second), bf16=bf16), backbone)

    def forward() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            objective(drawn)

    real = kept_bytes(objective, forward)
    assert memory.activations + memory.kept_once == pytest.approx(
        real, rel=0.1 if name in ("ict", "laprador", "spider") else 0.01
    )


def test_fine_tuning_keeps_all_passages_of_a_query() -> None:
    backbone, config = BackboneConfig(name="tiny"), FINETUNING["contrastive"].Config()
    objective = build_objective(config, build_backbone(backbone, WORDS, seed=0), WORDS).train()
    drawn = objective.draw(finetuning_batch(WORDS, queries=8, group=4, query=16, passage=LENGTH))
    own = counted(config, backbone, Row(LENGTH, 16, group=4), bf16=False)
    memory = reckoned(own, backbone, rows=8)
    real = kept_bytes(objective, lambda: objective(drawn))
    assert memory.activations + memory.kept_once == pytest.approx(real, rel=0.02) and memory.logits == 0


def test_the_gradient_of_the_output_matrix_is_kept_once_and_logits_exist_by_the_chunk() -> None:
    """V x D entries and V of the bias; 3 x 4 bytes of each logit of 0.15 x 64 targets a row, to 2**24 of them."""
    backbone = BackboneConfig(name="tiny", dropout=0.0)
    own = counted(PRETRAINING["mlm"].Config(encoder_mask_ratio=0.15), backbone, Row(LENGTH), bf16=False)
    matrix = 4 * WORDS.size * (128 + 1)
    assert own.kept_once == pytest.approx(matrix, rel=0.2) and own.kept_once >= matrix
    few, many = (reckoned(own, backbone, rows=rows).logits for rows in (4, 10**6))
    assert few == pytest.approx(12 * 4 * 0.15 * LENGTH * WORDS.size, rel=0.1) and many == 12 * 2**24


def test_a_gpu_keeps_masks_of_dropout_and_no_pairs_of_tokens() -> None:
    """A mask is a byte a number, of which 16 fp32 numbers a column are kept: a few percent. On a CPU, attention with
    dropout keeps its probabilities."""
    plain, dropping = (BackboneConfig(name="tiny", dropout=dropout) for dropout in (0.0, 0.1))

    def activations(backbone: BackboneConfig, kind: str, **row: Any) -> float:
        own = counted(PRETRAINING["mlm"].Config(), backbone, Row(256), kind=kind, bf16=False)
        return reckoned(own, backbone, kind=kind).activations

    without = activations(plain, "cuda")
    assert without == pytest.approx(activations(plain, "cpu"), rel=0.01)
    assert without < activations(dropping, "cuda") < 1.06 * without < activations(dropping, "cpu")


def test_sizes_are_readable() -> None:
    assert gib(3.25 * 2**30) == "3.2 GiB" and gib(12 * 2**20) == "12.0 MiB"
