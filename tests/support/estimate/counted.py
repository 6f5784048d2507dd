"""FLOPs of whatever runs, steps of objectives beside what is reckoned of them, and what autograd keeps of a forward
pass.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from midmask.core.batch import Batch
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.representation import Representation
from midmask.estimate.counting import Counted, Row, count_training, flop_counter
from midmask.estimate.sizes import encoder_sizes
from midmask.estimate.trainings import Memory, training_memory
from midmask.objectives import FINETUNING, PRETRAINING, Objective, ObjectiveConfig, build_objective
from midmask.objectives.sample import finetuning_batch, pretraining_batch, sample_vocabulary

V, LENGTH = 1024, 64
WORDS = sample_vocabulary(V)
TINY = BackboneConfig(name="tiny")
DENSE = Representation()


def backbone(config: BackboneConfig = TINY) -> Backbone:
    return build_backbone(config, WORDS, seed=0)


def counted(
    config: ObjectiveConfig,
    row: Row,
    *,
    on: BackboneConfig = TINY,
    size: int = V,
    scored: Representation = DENSE,
    kind: str = "cpu",
    **named: bool,
) -> Counted:
    return count_training(config, on, size, scored, row, **{"kind": kind, "bf16": False, **named})


def pretraining_step(
    name: str, fields: dict[str, Any], *, rows: int = 16, on: BackboneConfig = TINY, bf16: bool = False
) -> tuple[Counted, Objective, Batch]:
    """What is counted of a step, the objective and its batch."""
    config = PRETRAINING[name].Config(**fields)
    batch = pretraining_batch(config, WORDS, rows=rows, length=LENGTH)
    second = batch.texts["context"].ids_BL.shape[1] if "context" in batch.texts else 0
    own = counted(config, Row(LENGTH, second), on=on, bf16=bf16)
    return own, build_objective(config, backbone(on), WORDS).train(), batch


def finetuning_step(name: str, representation: Representation) -> tuple[Counted, Objective, Batch]:
    """Of eight queries of four passages each."""
    encoder, config = backbone(), FINETUNING[name].Config()
    encoder.represent_as(representation, seed=0)
    batch = finetuning_batch(WORDS, queries=8, group=4, query=16, passage=LENGTH)
    own = counted(config, Row(LENGTH, 16, group=4), scored=representation)
    return own, build_objective(config, encoder, WORDS).train(), batch


def reckoned(own: Counted, on: BackboneConfig = TINY, *, rows: int = 16, kind: str = "cpu") -> Memory:
    return training_memory(own, encoder_sizes(on, V), rows=rows, kind=kind, dropout=on.dropout > 0)


def count_flops(work: Callable[[], object]) -> float:
    """FLOPs of one call of `work`."""
    with flop_counter() as counter:
        work()
    return float(counter.get_total_flops())


def learn(objective: nn.Module, batch: Batch) -> Callable[[], None]:
    """Masks, forward and backward pass."""

    def step() -> None:
        loss = objective(objective.draw(batch))  # type: ignore[operator]
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()

    return step


def kept_bytes(module: nn.Module, work: Callable[[], object]) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, each storage once, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work()
    return sum(size for size, _ in kept.values())


def kept_by_step(name: str, size: str, dropout: float, *, bf16: bool) -> float:
    """What is reckoned to be kept of a forward pass, as a share of what autograd keeps."""
    on = BackboneConfig(name=size, dropout=dropout)
    own, objective, batch = pretraining_step(name, {}, on=on, bf16=bf16)
    drawn, memory = objective.draw(batch), reckoned(own, on)

    def forward() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            objective(drawn)

    return (memory.activations + memory.kept_once) / kept_bytes(objective, forward)
