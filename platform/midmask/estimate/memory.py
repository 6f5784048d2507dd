"""Memory of a device in training: what is there all the time, and what a share of a batch leaves for the backward pass.

weights, gradients    4 bytes a parameter each, fp32
AdamW                 8 bytes a parameter: both moments, fp32
bf16 copies           2 bytes a matrix entry, while autocast is on
activations           of a layer, a token and a column: 16 fp32 numbers (queries, keys, values, what was attended, both
                      norms' inputs and outputs, twice the four times wider inner layer), under autocast 42 bytes;
                      with dropout 2 bytes of masks more on a GPU, 10 on a CPU, where dropout in the attention also
                      keeps 12 bytes for each pair of tokens and head; a GPU's fused attention keeps none
targets               of each its state and gradient; of a text with weights of words: these, and where they are from
logits                of a fused cross-entropy: the gradient of the output matrix, and logits for a chunk of targets
                      (`heads.CHUNK_VALUES`)
"""

from dataclasses import dataclass

from midmask.estimate.devices import GIB
from midmask.estimate.sizes import Sizes
from midmask.estimate.work import Work
from midmask.heads import CHUNK_VALUES

WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
PLAIN, AUTOCAST = 65, 42
MASKS = {"cpu": 10, "cuda": 2}
PAIR = 12
CHUNK_COPIES = 3
"""Of a chunk's logits: as multiplied, in fp32, and as rows of the gradient."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device. activations and targets grow with the rows, the others do not, but for small batches."""

    weights: float
    gradients: float
    optimiser: float
    copies: float
    activations: float
    targets: float
    logits: float

    @property
    def total(self) -> float:
        return float(sum(vars(self).values()))

    def __str__(self) -> str:
        parts = {"weights": self.weights, "gradients": self.gradients, "AdamW": self.optimiser}
        parts |= {"bf16 copies": self.copies, "activations": self.activations}
        parts |= {"targets": self.targets, "logits and their gradient": self.logits}
        return " + ".join(f"{name} {gib(value)}" for name, value in parts.items() if value)


def gib(size: float) -> str:
    """Bytes as people read them: 12 MiB, 3.4 GiB."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"


def training_memory(
    sizes: Sizes, parameters: int, work: Work, *, rows: float, kind: str, bf16: bool, dropout: bool
) -> Memory:
    """Of one device.

    Args:
        parameters: all that are trained.
        work: of one row.
        rows: that go through the model at once.
        kind: cpu or cuda.
    """
    bytes_each = (AUTOCAST if bf16 else PLAIN) + MASKS[kind] * dropout
    activations = bytes_each * sizes.width * work.layer_tokens
    if kind == "cpu" and dropout:
        activations += PAIR * work.pairs
    matrix = 4 * sizes.vocabulary * sizes.embedding_width
    chunk = min(CHUNK_VALUES[kind], rows * work.targets * sizes.vocabulary) if work.heads else 0
    return Memory(
        weights=WEIGHT * parameters,
        gradients=GRADIENT * parameters,
        optimiser=MOMENTS * parameters,
        copies=2 * (sizes.matrices + sizes.vocabulary * sizes.embedding_width) if bf16 else 0,
        activations=rows * activations,
        targets=rows * (12 * sizes.width * work.targets + 4 * work.entries),
        logits=work.heads * matrix + 4 * CHUNK_COPIES * chunk,
    )
