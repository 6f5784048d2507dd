"""Memory of a device in training: the part that is always used, and the part that a micro-batch keeps for the backward
pass.

weights, gradients    4 bytes a parameter each, fp32
AdamW                 8 bytes a parameter: both moments, fp32
activations           what autograd keeps of each row, counted (`estimate.counting`), bf16 under autocast; a GPU's masks
                      of dropout, which are not counted, take 3 to 5% more
kept once             what autograd keeps however many rows there are, counted: gradients of output matrices, made
                      in the forward pass by fused cross-entropies, and under autocast the weights in bf16
logits                of a fused cross-entropy, for a chunk of targets (`heads.CHUNK_VALUES`): autograd keeps none, so
                      that this is a formula
"""

from dataclasses import dataclass

from midmask.estimate.counting import Counted
from midmask.estimate.sizes import Sizes
from midmask.heads import CHUNK_VALUES
from midmask.progress import gib
from midmask.training.rehearsal import GRADIENT, MOMENTS, WEIGHT

GPU_MASKS = 1.05
CHUNK_COPIES = 3
"""Of a chunk's logits: as multiplied, in fp32, and as rows of the gradient."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device. activations grow with the rows, logits do up to a chunk, the others do not."""

    weights: float
    gradients: float
    optimiser: float
    activations: float
    kept_once: float
    logits: float

    @property
    def total(self) -> float:
        return float(sum(vars(self).values()))

    def fitting(self, rows: int, room: float) -> int:
        """How many rows fit into `room` bytes, where this is what `rows` of them take; 0 or less: not even one."""
        return int((room - self.total + self.activations) / (self.activations / rows))

    def __str__(self) -> str:
        parts = {"weights": self.weights, "gradients": self.gradients, "AdamW": self.optimiser}
        parts |= {"activations": self.activations, "kept once": self.kept_once, "logits": self.logits}
        return " + ".join(f"{name} {gib(value)}" for name, value in parts.items() if value)


def training_memory(counted: Counted, sizes: Sizes, *, rows: int, kind: str, dropout: bool) -> Memory:
    """Of one device.

    Args:
        counted: a step of the training, on a device of this kind and in its precision.
        rows: that go through the model at once.
        kind: cpu or cuda.
    """
    has_chunks = counted.kept_once >= WEIGHT * sizes.vocabulary * sizes.embedding_width
    return Memory(
        weights=WEIGHT * counted.parameters,
        gradients=GRADIENT * counted.parameters,
        optimiser=MOMENTS * counted.parameters,
        activations=rows * counted.kept * (GPU_MASKS if dropout and kind == "cuda" else 1.0),
        kept_once=counted.kept_once,
        logits=4 * CHUNK_COPIES * min(CHUNK_VALUES[kind], rows * counted.targets * sizes.vocabulary) * has_chunks,
    )
