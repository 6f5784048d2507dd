"""Memory as it is reckoned against the bytes of real tensors."""

import pytest
import torch

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.estimate.memory import Memory, gib, training_memory
from midmask.estimate.methods import Row, row_work
from midmask.estimate.sizes import Sizes, encoder_sizes
from midmask.estimate.work import Work, encoded
from midmask.objectives import PRETRAINING, build_objective
from midmask.training.optimiser import TrainConfig, build_optimiser
from tests.speed.steps import batch_for, full_rows, vocabulary
from tests.support.estimate.counted import kept_bytes, learn

WORDS = vocabulary(1024)
ROWS, LENGTH = 16, 64


def reckoned(sizes: Sizes, parameters: int, work: Work, *, bf16: bool = False, dropout: bool = True) -> Memory:
    return training_memory(sizes, parameters, work, rows=ROWS, kind="cpu", bf16=bf16, dropout=dropout)


@pytest.mark.parametrize("name", ["retromae", "lexmae", "cotmote"])
def test_weights_gradients_and_moments_are_as_many_bytes_as_reckoned(name: str) -> None:
    backbone = BackboneConfig(name="tiny", experts="ffn" if name == "cotmote" else "none")
    config = PRETRAINING[name].Config()
    objective = build_objective(config, build_backbone(backbone, WORDS, seed=0), WORDS).train()
    optimiser = build_optimiser(objective, TrainConfig(steps=1, batch_size=ROWS, learning_rate=1e-4))
    learn(objective, batch_for(config, WORDS, rows=2, length=16))()
    optimiser.step()
    parameters = list(objective.parameters())
    states = [value for state in optimiser.state.values() for key, value in state.items() if key != "step"]
    memory = reckoned(encoder_sizes(backbone, WORDS.size), sum(one.numel() for one in parameters), Work())
    assert memory.weights == sum(one.nbytes for one in parameters)
    assert memory.gradients == sum(one.grad.nbytes for one in parameters if one.grad is not None)
    assert memory.optimiser == sum(one.nbytes for one in states)


@pytest.mark.parametrize("size", ["tiny", "mini"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("bf16", [False, True])
def test_activations_of_an_encoder(size: str, dropout: float, bf16: bool) -> None:
    """Within a tenth of what autograd keeps. Casts of the weights are kept too under autocast: `copies`."""
    config = BackboneConfig(name=size, dropout=dropout)
    backbone, rows = build_backbone(config, WORDS, seed=0).train(), full_rows(ROWS, LENGTH, WORDS, seed=1)

    def forward() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            backbone.hidden(rows.ids_BL, rows.lengths_B)

    sizes = encoder_sizes(config, WORDS.size)
    memory = reckoned(sizes, 0, encoded(sizes, LENGTH), bf16=bf16, dropout=dropout > 0)
    casts = 2 * sizes.matrices if bf16 else 0
    assert memory.activations + casts == pytest.approx(kept_bytes(backbone, forward), rel=0.1)


@pytest.mark.parametrize("name", ["mlm", "retromae", "dupmae", "cotmae", "cotmote"])
def test_a_whole_step(name: str) -> None:
    """Within a fifth of what autograd keeps of a method's forward pass; the embeddings, which are not reckoned, are in
    it, and chunks of logits, which are there for a moment only, are not."""
    backbone, config = BackboneConfig(name="tiny", dropout=0.1), PRETRAINING[name].Config()
    objective = build_objective(config, build_backbone(backbone, WORDS, seed=0), WORDS).train()
    batch = batch_for(config, WORDS, rows=ROWS, length=LENGTH)
    drawn = objective.draw(batch)
    second = batch.texts["context"].ids_BL.shape[1] if "context" in batch.texts else 0
    sizes = encoder_sizes(backbone, WORDS.size)
    work = row_work(config, Row(sizes, LENGTH, second))
    chunks = 12 * ROWS * work.targets * WORDS.size
    memory = reckoned(sizes, 0, work)
    kept = memory.activations + memory.targets + memory.logits - min(chunks, 12 * 2**24)
    assert kept == pytest.approx(kept_bytes(objective, lambda: objective(drawn)), rel=0.2)


def test_sizes_are_readable() -> None:
    assert gib(3.25 * 2**30) == "3.2 GiB" and gib(12 * 2**20) == "12.0 MiB"
