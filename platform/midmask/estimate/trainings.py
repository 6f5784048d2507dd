"""The cost of models: their sizes, and what a training takes of a device.

FLOPs       of a token: 2 for each weight behind the embeddings, decoders included, and for each of the output matrix
            where a word is predicted; in training three times that
memory      of a device: 16 bytes a parameter (weights, gradients, AdamW's moments, fp32); how many rows fit beside
            them is rehearsed when the training begins (`training.rehearsal`)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.families import FAMILIES, shape_from
from midmask.encoders.reading import SIZES, read_settings
from midmask.estimate.volumes import TextVolumes, Volumes
from midmask.experiment.graph import Step
from midmask.experiment.steps import FinetuneConfig, PretrainConfig, TrainingConfig
from midmask.objectives import FINETUNING, PRETRAINING, CoupledObjective, ObjectiveConfig
from midmask.queries.query_model import GeneratorConfig
from midmask.teacher.teach import TeachConfig
from midmask.training.rehearsal import GRADIENT, MOMENTS, WEIGHT


@dataclass(frozen=True)
class ModelSize:
    """The size of an encoder, or of what an objective trains: encoder, decoders and head."""

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
    encoder: BackboneConfig, vocabulary: int, trained: ObjectiveConfig | None = None, *, lexical: bool = False
) -> ModelSize:
    """The size of a model by its Hugging Face config, as BERT's layers have it; within a tenth for other families.

    Args:
        vocabulary: entries of the tokenizer; of a model by folder or hub id its own count.
        trained: the objective; none: the encoder alone.
        lexical: whether words are scored.

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
    behind = layer * (shape.layers + sum(further))
    embeddings = words * embedded + (shape.max_length * shape.has_positions + 4) * width
    head = width * embedded + 3 * embedded + words
    queries = {"ffn": (2 * width * inner + width + inner) * shape.layers, "all": layer * shape.layers + embeddings}
    objective = None if trained is None else {**PRETRAINING, **FINETUNING}.get(trained.name)
    return ModelSize(
        width=width,
        vocabulary=words,
        output=words * embedded,
        parameters=embeddings + behind + head + queries.get(encoder.experts, 0),
        behind=behind,
        predicted=LEXICAL * lexical + (_predicted(trained, objective.parts) if trained and objective else 0.0),
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
    lexical = isinstance(config, FinetuneConfig) and config.representation.lexical is not None
    return model_size(encoder, vocabulary, config.loss, lexical=lexical)


@dataclass(frozen=True)
class Training:
    """A training whose cost is estimated."""

    config: TrainingConfig
    size: ModelSize
    tokens: float  # mean of a row
    steps: int  # of the optimiser that are still to be done
    kind: str  # of its devices, cpu or cuda

    @property
    def bf16(self) -> bool:
        precision = self.config.train.precision
        return precision == "bf16" or (precision == "auto" and self.kind == "cuda")

    @property
    def state(self) -> float:
        """Bytes of weights, gradients and both moments of AdamW, fp32: what a device must hold, however few rows go
        through the model at once.
        """
        return (WEIGHT + GRADIENT + MOMENTS) * self.size.parameters

    @property
    def flops(self) -> float:
        """FLOPs of all steps. Rows that meet in the loss and are cut go forward twice."""
        train, rows = self.config.train, self.steps * self.config.train.batch_size
        passes = 3 + (self.size.meets and train.micro_batch is not None)
        return 2 * passes * rows * self.tokens * (self.size.behind + self.size.predicted * self.size.output)


def row_tokens(step: Step, volumes: Volumes) -> float:
    """Mean tokens of a training's row, specials included, by what is finished or what is known of the collection."""
    config: Any = step.config
    texts = volumes.texts(step.inputs["tokens"])
    if isinstance(config, PretrainConfig):
        return _pretraining_tokens(step, config, texts, volumes)
    query = min(texts.query_tokens, config.query_length)
    if isinstance(config, TeachConfig):
        return (1 + config.per_query) * pair_tokens(query, texts.tokens, config.loss.max_length)
    group = 1 if isinstance(config, GeneratorConfig) else 1 + config.per_query
    return float(query + group * min(texts.tokens, config.passage_length))


def _pretraining_tokens(step: Step, config: PretrainConfig, texts: TextVolumes, volumes: Volumes) -> float:
    read: dict[str, Any] = {name: source.config for name, source in step.inputs.items()}
    longest = float(config.excerpt or read["tokens"].max_length)
    rows = config.objective.row_form().rows
    if rows == "spans":
        done = volumes.find_finished(step.inputs["spans"])
        guess = min(read["spans"].span_length, texts.tokens / 2 + 1)
        return 2 * float(done.result["tokens_per_span"] if done else guess)
    if rows == "packed":
        return longest
    queries = min(texts.query_tokens, read["pseudo_queries"].max_length) if rows == "pseudo_queries" else 0
    return min(texts.tokens, longest) + queries


def pair_tokens(query: float, passage: float, longest: float) -> float:
    """Tokens of a pair: one [CLS], a [SEP] behind each text; cut at the end of the passage."""
    return min(query + passage - 1, longest)
