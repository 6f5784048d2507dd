"""The setup of a training worker, a class for each kind of training.

A setup is plain data and places, so that it can be sent to any node. The bias of a fresh MLM head begins at the
log-probabilities of the corpus's tokens: a head whose bias is 0 first has to learn which words are frequent.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from midmask.core.batch import Batch
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.encoders.cross_encoder import CrossEncoder, build_cross_encoder
from midmask.encoders.folder import save_bi_encoder, take_projection
from midmask.encoders.model_settings import TextForm
from midmask.encoders.reading import named_folder
from midmask.encoders.representation import Representation
from midmask.encoders.seq2seq import Seq2Seq, build_seq2seq
from midmask.objectives import Objective, ObjectiveConfig, build_objective
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.sample import finetuning_batch, pretraining_batch
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.text.vocabulary import Vocabulary
from midmask.training.examples import Examples
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples

COUNTED_PASSAGES = 100_000
"""Passages that are counted, at least, from the first; enough for every frequent token."""


def unigram_log_probabilities(tokens: Place, vocabulary: Vocabulary) -> Tensor:
    """The logarithm of each token's share in the passages, every token counted once more than it stands there, so that
    all are finite; float32 [V].

    Args:
        tokens: an artifact of tokenised passages.
    """
    counts_V = np.ones(vocabulary.size, dtype=np.int64)
    counted = 0
    for name in (tokens / "passages").names():
        if counted >= COUNTED_PASSAGES:
            break
        ids = read_table(tokens / "passages" / name, ["ids"])["ids"].combine_chunks()
        counts_V += np.bincount(ids.flatten().to_numpy(), minlength=vocabulary.size)
        counted += len(ids)
    counts_V[vocabulary.special_V.numpy()] = 1  # they are never predicted
    return torch.from_numpy(np.log(counts_V / counts_V.sum())).float()


Built = tuple[Backbone | CrossEncoder | Seq2Seq, Objective, Vocabulary]
"""Model and objective with the weights that a run begins with, which depend on the seed alone."""


@dataclass(frozen=True)
class TrainingSetup(ABC):
    """One training run, picklable and small; its places are reached from wherever the worker runs."""

    path: ClassVar[str]  # where a recipe has the config of such a training, for messages; `stages.*`: every stage
    objective: ObjectiveConfig
    train: TrainConfig
    backbone: BackboneConfig
    tokens: Place  # an artifact whose tokenizer the model has
    rows: Examples  # what a row of the run is

    @property
    def stop(self) -> int:
        """Steps after which the run ends."""
        return self.train.steps

    @property
    def origin(self) -> Path | None:
        """The folder whose weights the run begins with, if it is on this machine's disk."""
        return None

    @property
    def tokenizer(self) -> Path:
        return (self.tokens / "tokenizer").local()

    @abstractmethod
    def build(self) -> Built: ...

    def save(self, objective: Objective, folder: Path) -> None:
        """Writes the trained model as a Hugging Face folder."""
        objective.backbone.save(folder, self.tokenizer)

    def longest_rows(self, count: int, words: Vocabulary) -> Batch:
        """Made-up rows, each as long as a row of this run can be."""
        assert isinstance(self.rows, PairExamples)
        query, passage = self.rows.query_length, self.rows.passage_length
        return finetuning_batch(words, queries=count, group=1 + self.rows.per_query, query=query, passage=passage)


@dataclass(frozen=True)
class StartedSetup(TrainingSetup):
    """A run that may begin with the weights of another."""

    start: Place | None = None  # an artifact whose `model/` is trained on
    form: TextForm = field(default_factory=TextForm)  # how the texts were written before they were tokenised

    @property
    def origin(self) -> Path | None:
        if self.start is not None:
            return (self.start / "model").local()
        return named_folder(self.backbone.name) if self.backbone.is_pretrained else None

    def encoder(self, vocabulary: Vocabulary) -> Backbone:
        """The encoder that is trained on."""
        if self.start is None:
            return build_backbone(self.backbone, vocabulary, seed=self.train.seed)
        folder = (self.start / "model").local()
        backbone = load_backbone(folder, dropout=self.backbone.dropout, config=self.backbone)
        backbone.pair_sep = vocabulary.pair_sep
        return backbone

    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the run's rows."""
        return Vocabulary.of(self.tokenizer).joined_by(self.form.title_join)


@dataclass(frozen=True)
class PretrainSetup(StartedSetup):
    """Middle training."""

    path: ClassVar[str] = "pretrain"
    resume: Place | None = None  # an artifact of a prefix of this very run, to go on from
    stop_after: int | None = None  # steps to stop after, as a prefix of the whole run
    longest: int = 512  # tokens that a text has at most

    @property
    def stop(self) -> int:
        return min(self.stop_after or self.train.steps, self.train.steps)

    def build(self) -> Built:
        vocabulary = self.vocabulary()
        backbone = self.encoder(vocabulary)
        if backbone.has_fresh_head and self.backbone.head_bias == "unigram":
            backbone.set_output_bias(unigram_log_probabilities(self.tokens, vocabulary))
        return backbone, build_objective(self.objective, backbone, vocabulary, seed=self.train.seed), vocabulary

    def longest_rows(self, count: int, words: Vocabulary) -> Batch:
        return pretraining_batch(self.objective, words, rows=count, length=self.longest)


@dataclass(frozen=True)
class FinetuneSetup(StartedSetup):
    """Fine-tuning of a bi-encoder."""

    path: ClassVar[str] = "stages.*.train"
    rows: PairExamples
    representation: Representation = field(default_factory=Representation)

    def build(self) -> Built:
        vocabulary = self.vocabulary()
        backbone = self.encoder(vocabulary)
        backbone.represent_as(self.representation, seed=self.train.seed)
        if self.origin is not None:
            take_projection(backbone, self.origin)
        return backbone, build_objective(self.objective, backbone, vocabulary, seed=self.train.seed), vocabulary

    def save(self, objective: Objective, folder: Path) -> None:
        save_bi_encoder(
            objective.backbone,
            folder,
            self.tokenizer,
            max_length=self.rows.passage_length,
            query_length=self.rows.query_length,
            form=self.form,
        )


@dataclass(frozen=True)
class TeachSetup(TrainingSetup):
    """Training of a cross-encoder."""

    path: ClassVar[str] = "stages.*.teacher.train"
    objective: ListwiseRanking.Config

    def build(self) -> Built:
        length, seed = self.objective.max_length, self.train.seed
        vocabulary = Vocabulary.of(self.tokenizer)
        encoder = build_cross_encoder(self.backbone, self.tokenizer, max_length=length, seed=seed)
        return encoder, ListwiseRanking(self.objective, encoder, vocabulary), vocabulary


@dataclass(frozen=True)
class GeneratorSetup(TrainingSetup):
    """Training of an encoder-decoder that writes queries."""

    path: ClassVar[str] = "stages.0.train"
    objective: QueryGeneration.Config
    rows: PairExamples

    def build(self) -> Built:
        vocabulary = Vocabulary.of(self.tokenizer)
        layers, seed = self.objective.decoder_layers, self.train.seed
        model = build_seq2seq(self.backbone, vocabulary, decoder_layers=layers, seed=seed)
        return model, QueryGeneration(self.objective, model, vocabulary), vocabulary

    def save(self, objective: Objective, folder: Path) -> None:
        assert isinstance(objective, QueryGeneration)
        objective.backbone.save(folder, self.tokenizer, length=self.rows.passage_length)
