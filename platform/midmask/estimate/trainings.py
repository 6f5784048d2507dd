"""The cost of models: their sizes, and what a training takes of a device.

FLOPs       of a token: 2 for each weight behind the embeddings, decoders included, and for each of the output matrix
            where a word is predicted; in training three times that
memory      of a device: 16 bytes a parameter (weights, gradients, AdamW's moments, fp32), what autograd keeps of as
            many of the longest rows as fit (`training.rehearsal` finds out itself), and a chunk of logits
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from midmask.core.words import gib
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.families import FAMILIES, shape_from
from midmask.encoders.heads import CHUNK_VALUES
from midmask.encoders.reading import SIZES, read_settings
from midmask.encoders.representation import Representation
from midmask.estimate.volumes import QUERY_TOKENS, Volumes
from midmask.experiment.graph import Step
from midmask.experiment.steps import FinetuneConfig, PretrainConfig, TrainingConfig
from midmask.objectives import FINETUNING, PRETRAINING, CoupledObjective, ObjectiveConfig
from midmask.queries.query_model import GeneratorConfig
from midmask.teacher.teach import TeachConfig
from midmask.training.rehearsal import GIB, GRADIENT, MOMENTS, WEIGHT, even_split


@dataclass(frozen=True)
class ModelSize:
    """The size of an encoder, or of what an objective trains: encoder, decoders and head."""

    layers: int  # of the encoder
    width: int
    vocabulary: int
    output: int  # numbers of the output matrix
    parameters: int
    behind: int  # of these, what every token goes through: the layers of encoder and decoders
    predicted: float = 0.0  # words that are predicted, for each token that is read
    meets: bool = False  # whether rows meet in the loss


LEXICAL = 1 / 3
"""Of a lexical view's products, as a share of a predicted word's: only the largest weight of a word has a gradient."""


@lru_cache(maxsize=256)
def model_size(
    encoder: BackboneConfig,
    vocabulary: int,
    trained: ObjectiveConfig | None = None,
    representation: Representation | None = None,
) -> ModelSize:
    """The size of a model by its Hugging Face config, as BERT's layers have it; within a tenth for other families.

    Args:
        vocabulary: entries of the tokenizer; of a model by folder or hub id its own count.
        trained: the objective; none: the encoder alone.
        representation: what is scored; none: all tokens' states are read.

    Raises:
        UserError: if there is no such model, or its family is not supported.
    """
    named = encoder.name not in SIZES
    settings = read_settings(encoder.name, 0.0)
    shape, words = shape_from(settings), int(settings.vocab_size) if named else vocabulary
    width, embedded = shape.width, shape.embedding_width
    inner = int(getattr(settings, FAMILIES[shape.family].feed_forward))
    layer = 4 * width * width + 2 * width * inner + 9 * width + inner
    further = [value for name, value in trained or () if name.endswith("_layers")]
    is_first = representation is not None and representation.views == ("dense",) and representation.dense == "cls"
    lexical = LEXICAL if representation is not None and representation.lexical is not None else 0.0
    behind = layer * (shape.layers + sum(further))
    embeddings = words * embedded + (shape.max_length * shape.has_positions + 4) * width
    head = width * embedded + 3 * embedded + words
    queries = {"ffn": (2 * width * inner + width + inner) * shape.layers, "all": layer * shape.layers + embeddings}
    objective = None if trained is None else {**PRETRAINING, **FINETUNING}.get(trained.name)
    return ModelSize(
        layers=shape.layers,
        width=width,
        vocabulary=words,
        output=words * embedded,
        parameters=embeddings + behind + head + queries.get(encoder.experts, 0),
        behind=behind - layer * is_first,  # the last layer computes the first token alone (`encoders.families`)
        predicted=lexical + (_predicted(trained, objective.parts) if trained and objective else 0.0),
        meets=objective is not None and issubclass(objective, CoupledObjective),
    )


def _predicted(config: ObjectiveConfig, parts: Iterable[str]) -> float:
    """Words that a loss predicts for each token: all in a causal part, in others as many as are masked."""
    masked = getattr(config, "encoder_mask_ratio", 0.15)
    behind = 1.0 if getattr(config, "decoding", "") == "enhanced" else getattr(config, "decoder_mask_ratio", masked)
    shares = [
        1.0 if part.endswith("clm") else behind if part.startswith(("decoder", "ae")) else masked
        for part in parts
        if part.endswith("lm")
    ]
    return float(sum(shares))


def trained_size(config: TrainingConfig, encoder: BackboneConfig, vocabulary: int) -> ModelSize:
    """The size of what a training's config trains, on this encoder."""
    if isinstance(config, PretrainConfig):
        return model_size(encoder, vocabulary, config.objective)
    scored = config.representation if isinstance(config, FinetuneConfig) else None
    return model_size(encoder, vocabulary, config.loss, scored)


KEPT_BYTES = {False: 95, True: 42}
"""Bytes that autograd keeps of a token for each column of each layer, in fp32 and under autocast in bf16: as counted in
forward passes of BERT's base size, dropout and attention included."""
CHUNK_COPIES = 3
"""Copies of a chunk's logits: as multiplied, in fp32, and as rows of the gradient."""


@dataclass(frozen=True)
class Memory:
    """Memory of a training on one device, in bytes. Activations grow with the rows."""

    state: float  # weights, gradients and both moments of AdamW, fp32
    activations: float
    logits: float  # of a fused cross-entropy: a chunk of them, and the gradient of the output matrix

    @property
    def total(self) -> float:
        return self.state + self.activations + self.logits

    def __str__(self) -> str:
        parts = {"weights, gradients and AdamW": self.state, "activations": self.activations, "logits": self.logits}
        return " + ".join(f"{name} {gib(value)}" for name, value in parts.items() if value)


OPERATORS, OPERATORS_PER_LAYER = 270, 130
"""Operators of a training step, AdamW included, and of each layer of a text, forward and backward: counted with
torch's dispatch mode on MLM steps of 2 and 4 layers (541 and 809)."""
PER_OPERATOR = 10e-6
"""Seconds that a host takes to issue an operator: steps of one row of 8 tokens take 10 to 13 microseconds for each on a
CPU core, and a GPU's kernels are issued by the same code. No step is faster, for any model and device."""


@dataclass(frozen=True)
class Training:
    """A training whose cost is estimated."""

    config: TrainingConfig
    size: ModelSize
    tokens: float  # mean of a row
    longest: float  # tokens of the longest row
    steps: int  # of the optimiser that are still to be done
    kind: str  # of its devices, cpu or cuda
    workers: int
    room: float | None  # bytes of a device; None: unlimited

    @property
    def bf16(self) -> bool:
        precision = self.config.train.precision
        return precision == "bf16" or (precision == "auto" and self.kind == "cuda")

    @property
    def share(self) -> int:
        """Rows of a step that each device has."""
        return -(-self.config.train.batch_size // self.workers)

    @property
    def limit(self) -> float | None:
        """Bytes that a worker may use: as `train.memory_gib` says, or all of its device's; None: unlimited."""
        stated = self.config.train.memory_gib
        return self.room if stated is None else stated * GIB

    @cached_property
    def at_once(self) -> int:
        """Rows that go through the model at once on each device: as many as fit, but for what the config says; one if
        none fits, which `refusals` refuses.
        """
        if self.limit is None or self.config.train.micro_batch:
            return min(self.share, self.config.train.micro_batch or self.share)
        return even_split(self.share, max(1, self.fitting(self.limit)))

    def fitting(self, room: float) -> int:
        """How many rows of its share fit into `room` bytes; 0: not even one."""
        return bisect_right(range(1, self.share + 1), room, key=lambda rows: self.memory_of(rows).total)

    @property
    def memory(self) -> Memory:
        return self.memory_of(self.at_once)

    def memory_of(self, rows: int) -> Memory:
        """The memory of a device with so many rows at once; a GPU must hold the longest, a CPU's limit is the mean."""
        size, layer = self.size, self.size.width * KEPT_BYTES[self.bf16]
        each = layer * size.behind / (12 * size.width**2)  # decoders are as many layers as they have weights
        twice = 2 if isinstance(self.config, PretrainConfig) and self.config.self_distillation else 1
        tokens = rows * (self.longest if self.kind == "cuda" else self.tokens)
        logits = 4 * CHUNK_COPIES * min(CHUNK_VALUES[self.kind], tokens * size.predicted * size.vocabulary)
        return Memory(
            state=(WEIGHT + GRADIENT + MOMENTS) * size.parameters,
            activations=twice * tokens * each,
            logits=logits + GRADIENT * size.output * (size.predicted > 0),
        )

    @property
    def flops(self) -> float:
        """FLOPs of all steps. Rows that meet and are cut go forward twice."""
        train, rows = self.config.train, self.steps * self.config.train.batch_size
        passes = 3 + (self.size.meets and self.at_once * self.workers < train.batch_size)
        if isinstance(self.config, PretrainConfig) and self.config.self_distillation:
            passes += 4
        return 2 * passes * rows * self.tokens * (self.size.behind + self.size.predicted * self.size.output)

    @property
    def floor_seconds(self) -> float:
        """The least that the training takes, by the operators that its host issues one after another."""
        pieces = -(-self.share // self.at_once)
        sides = 2 if isinstance(self.config, FinetuneConfig) else 1
        return self.steps * (OPERATORS + OPERATORS_PER_LAYER * self.size.layers * sides * pieces) * PER_OPERATOR


@dataclass(frozen=True)
class Lengths:
    """Tokens, specials included: of a passage (or span), and of a query, pseudo-query or second span."""

    passage: float
    query: float


def mean_lengths(step: Step, volumes: Volumes) -> Lengths:
    """Mean lengths of a training's texts, read from what is finished or from what is known of the collection."""
    config: Any = step.config
    texts, longest = volumes.texts(step.inputs["tokens"]), longest_lengths(step)
    if "spans" in step.inputs:
        done = volumes.find_finished(step.inputs["spans"])
        span = done.result["tokens_per_span"] if done else min(longest.passage, texts.tokens / 2 + 1)
        return Lengths(span, span)
    if isinstance(config, PretrainConfig) and config.objective.row_form().rows == "packed":
        return Lengths(longest.passage, 0.0)
    return Lengths(min(texts.tokens, longest.passage), min(texts.query_tokens, longest.query))


def longest_lengths(step: Step) -> Lengths:
    """Maximum number of tokens of a row's texts."""
    config: Any = step.config
    if isinstance(config, FinetuneConfig | GeneratorConfig):
        return Lengths(config.passage_length, config.query_length)
    if isinstance(config, TeachConfig):
        return Lengths(config.loss.max_length, config.query_length)
    if "spans" in step.inputs:
        span = step.inputs["spans"].config.span_length  # type: ignore[attr-defined]
        return Lengths(span, span)
    passage = config.excerpt or step.inputs["tokens"].config.max_length  # type: ignore[attr-defined]
    if (queries := step.inputs.get("pseudo_queries")) is None:
        return Lengths(passage, QUERY_TOKENS)
    made = queries.inputs.get("pairs", queries)  # of which a filter may have kept a part
    return Lengths(passage, made.config.max_length)  # type: ignore[attr-defined]


def row_tokens(config: TrainingConfig, lengths: Lengths) -> float:
    """Tokens of a row whose texts have these lengths."""
    if isinstance(config, PretrainConfig):
        second = {"spans": lengths.passage, "pseudo_queries": lengths.query}.get(config.objective.row_form().rows, 0.0)
        return lengths.passage + second
    if isinstance(config, TeachConfig):
        return (1 + config.per_query) * pair_tokens(lengths.query, lengths.passage, config.loss.max_length)
    group = 1 if isinstance(config, GeneratorConfig) else 1 + config.per_query
    return lengths.query + group * lengths.passage


def pair_tokens(query: float, passage: float, longest: float) -> float:
    """Tokens of a pair: one [CLS], a [SEP] behind each text; cut at the end of the passage."""
    return min(query + passage - 1, longest)
