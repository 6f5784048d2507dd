"""The cost of a training, from its step or from a finished one's record: its work, its memory, its micro-batches.

The memory of a device is a part that is always used, and a part that a micro-batch keeps for the backward pass. A
micro-batch has as many of the longest rows as the device holds, as the training finds out itself
(`training.rehearsal`).

weights, gradients    4 bytes a parameter each, fp32
AdamW                 8 bytes a parameter: both moments, fp32
activations           what autograd keeps of each row, counted (`estimate.counting`), bf16 under autocast; a GPU's masks
                      of dropout, which are not counted, take 3 to 5% more
kept once             what autograd keeps however many rows there are, counted: gradients of output matrices, made
                      in the forward pass by fused cross-entropies, and under autocast the weights in bf16
logits                of a fused cross-entropy, for a chunk of targets (`encoders.heads.CHUNK_VALUES`): autograd keeps
                      none, so that this is a formula
"""

from dataclasses import dataclass, replace
from typing import Any

from midmask.core.words import gib
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.heads import CHUNK_VALUES
from midmask.encoders.representation import Representation
from midmask.estimate.counting import Counted, Row, count_encoding, count_training
from midmask.estimate.sizes import Sizes, encoder_sizes
from midmask.experiment.steps import FinetuneConfig, PretrainConfig, TrainingConfig
from midmask.queries.query_model import GeneratorConfig
from midmask.teacher.teach import TeachConfig
from midmask.training.optimiser import TrainConfig
from midmask.training.rehearsal import GIB, GRADIENT, MOMENTS, WEIGHT, even_split

GPU_MASKS = 1.05
CHUNK_COPIES = 3
"""Copies of a chunk's logits: as multiplied, in fp32, and as rows of the gradient."""


@dataclass(frozen=True)
class Memory:
    """Memory of a training on one device, in bytes. Activations grow with the rows, logits do up to a chunk."""

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
    """The memory that a training takes on one device.

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


OPERATORS, OPERATORS_PER_LAYER = 270, 130
"""Operators of a training step, AdamW included, and of each layer of a text, forward and backward: counted with
torch's dispatch mode on MLM steps of 2 and 4 layers (541 and 809)."""
PER_OPERATOR = 10e-6
"""Seconds that a host takes to issue an operator: steps of one row of 8 tokens take 10 to 13 microseconds for each on a
CPU core, and a GPU's kernels are issued by the same code. No step is faster, for any model and device."""
QUERY = 14.0
"""Tokens of a query, where a record tells only those of whole rows."""


@dataclass(frozen=True)
class Lengths:
    """Mean tokens, specials included: of a passage (or span), and of a query, pseudo-query or second span."""

    passage: float
    query: float


@dataclass(frozen=True)
class Training:
    """A training whose cost is estimated."""

    config: TrainingConfig
    sizes: Sizes
    counted: Counted  # one step
    tokens: float  # of one row
    steps: int
    dropout: bool  # whether the encoder has any
    fitting: int | None = None  # rows that fit into the device's memory; None: a worker's whole share

    @property
    def train(self) -> TrainConfig:
        return self.config.train

    @property
    def rows(self) -> int:
        return self.steps * self.train.batch_size

    def share(self, workers: int) -> int:
        """Rows of a step that each of `workers` devices has."""
        return -(-self.train.batch_size // workers)

    def room(self, device: float | None) -> float | None:
        """Bytes that a worker may use: as `train.memory_gib` says, or all of its device's; none: unlimited."""
        limit = self.train.memory_gib
        return device if limit is None else limit * GIB

    def at_once(self, workers: int) -> int:
        """Rows of its share that go through the model at once on each of `workers` devices."""
        share = self.share(workers)
        return min(share, self.train.micro_batch or self.fitting or share)

    def floor_seconds(self, workers: int) -> float:
        """The least that the training takes, by the operators that its host issues one after another."""
        pieces = -(-self.share(workers) // self.at_once(workers))
        sides = 2 if isinstance(self.config, FinetuneConfig) else 1
        operators = OPERATORS + OPERATORS_PER_LAYER * self.sizes.layers * sides * pieces
        return self.steps * operators * PER_OPERATOR

    def flops(self, workers: int) -> float:
        """FLOPs of the whole training. A batch whose rows are compared in the loss is read twice if it is cut: first
        without a gradient, for all vectors (GradCache).
        """
        again = self.at_once(workers) * workers < self.train.batch_size
        return self.steps * self.counted.flops(self.train.batch_size) + self.rows * self.counted.first_pass * again


def training(
    config: TrainingConfig, encoder: BackboneConfig, vocabulary: int, lengths: Lengths, steps: int, *, kind: str
) -> Training:
    """The cost of a training.

    Args:
        encoder: what is trained, where the config says only that it comes from another step.
        vocabulary: entries of the tokenizer.
        steps: of the optimiser that are still to be done.
        kind: of the devices, cpu or cuda.
    """
    row, tokens = _row(config, lengths)
    counted = count_training(
        config.objective if isinstance(config, PretrainConfig) else config.loss,
        encoder,
        vocabulary,
        config.representation if isinstance(config, FinetuneConfig) else Representation(),
        row,
        kind=kind,
        bf16=config.train.precision == "bf16" or (config.train.precision == "auto" and kind == "cuda"),
        recompute=config.train.recompute,
    )
    if isinstance(config, PretrainConfig) and config.self_distillation:
        counted = _self_distilled(counted, encoder, vocabulary, row)
    sizes = encoder_sizes(encoder, vocabulary)
    return Training(config, sizes, counted, tokens, steps, dropout=encoder.dropout > 0)


def _self_distilled(counted: Counted, encoder: BackboneConfig, vocabulary: int, row: Row) -> Counted:
    """The same step with the distance to the starting encoder in the loss: each passage once more forward and backward,
    and forward through the starting encoder. Autograd keeps at most as much again.
    """
    once = count_encoding(Representation(), encoder, vocabulary, row.passage)
    return replace(counted, row=counted.row + 4 * once, kept=2 * counted.kept)


def row_tokens(config: TrainingConfig, lengths: Lengths) -> float:
    """Tokens of a row whose texts have these lengths."""
    return _row(config, lengths)[1]


def _row(config: TrainingConfig, lengths: Lengths) -> tuple[Row, float]:
    """The texts of a row, and its mean tokens."""
    if isinstance(config, PretrainConfig):
        reads = config.objective.reads().rows
        second = {"spans": lengths.passage, "pseudo_queries": lengths.query}.get(reads, 0.0)
        return Row.of(lengths.passage, second), lengths.passage + second
    group = 1 + _per_query(config)
    if isinstance(config, TeachConfig):
        pair = pair_tokens(lengths.query, lengths.passage, config.loss.max_length)
        return Row.of(pair - lengths.query + 1, lengths.query, group), group * pair
    return Row.of(lengths.passage, lengths.query, group), lengths.query + group * lengths.passage


def _per_query(config: TrainingConfig) -> int:
    """Negatives of a query; a generator of queries reads none."""
    return 0 if isinstance(config, PretrainConfig | GeneratorConfig) else config.per_query


def pair_tokens(query: float, passage: float, longest: float) -> float:
    """Tokens of a pair: one [CLS], a [SEP] behind each text; cut at the end of the passage."""
    return min(query + passage - 1, longest)


def read_lengths(config: TrainingConfig, result: dict[str, Any]) -> Lengths:
    """Mean lengths of a finished training's texts, from the tokens that it read."""
    row = result["tokens"] / (result["steps"] * config.train.batch_size)
    if isinstance(config, PretrainConfig):
        reads = config.objective.reads().rows
        if reads == "spans":
            return Lengths(row / 2, row / 2)
        query = min(QUERY, row / 4) if reads == "pseudo_queries" else QUERY
        return Lengths(row - query if reads == "pseudo_queries" else row, query)
    query = min(QUERY, row / 4)
    return Lengths((row - query) / (1 + _per_query(config)), query)


def fit(own: Training, longest: Lengths, *, workers: int, room: float | None, kind: str) -> tuple[Training, Memory]:
    """The training with its micro-batch, and the memory of a device that has it; one row if none fits, which
    `estimate.report` refuses.

    Args:
        longest: tokens of the longest texts, which a GPU must hold; a CPU's limit is told by the mean.
        room: bytes of a device, where `train.memory_gib` does not say otherwise; none: unlimited.
    """
    limit = own.room(room)
    stretch = max(1.0, row_tokens(own.config, longest) / own.tokens) if kind == "cuda" else 1.0
    counted = replace(own.counted, kept=stretch * own.counted.kept)

    def memory(fitted: Training) -> Memory:
        rows = fitted.at_once(workers)
        return training_memory(counted, own.sizes, rows=rows, kind=kind, dropout=own.dropout)

    whole = memory(own)
    if limit is None or own.train.micro_batch is not None or whole.total <= limit:
        return own, whole
    share = own.share(workers)
    fitted = replace(own, fitting=even_split(share, max(1, whole.fitting(share, limit))))
    return fitted, memory(fitted)
