"""All that a worker needs to know to train: plain data and places, so that it travels to any node."""

from dataclasses import dataclass
from typing import Literal

from midmask.artifact import Place
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.objectives import Objective, ObjectiveConfig, build_objective
from midmask.train.examples import Examples, PairExamples, PassageExamples
from midmask.train.optimiser import TrainConfig
from midmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainingSetup:
    """One training run, picklable and small; its places are reached from wherever the worker runs.

    start: an artifact whose `model/` is trained on. resume: an artifact of a prefix of this very run, to go on from.
    stop_after: steps to stop after, as a prefix of the whole run.
    corpus, negatives, per_query, query_length, passage_length, split: fine-tuning only.
    """

    kind: Literal["pretrain", "finetune"]
    objective: ObjectiveConfig
    train: TrainConfig
    backbone: BackboneConfig
    tokens: Place
    fingerprint: str
    start: Place | None = None
    resume: Place | None = None
    stop_after: int | None = None
    corpus: Place | None = None
    negatives: Place | None = None
    per_query: int = 0
    query_length: int = 32
    passage_length: int = 128
    split: str = "train"

    @property
    def stop(self) -> int:
        return min(self.stop_after or self.train.steps, self.train.steps)

    def examples(self) -> Examples:
        if self.kind == "pretrain":
            return PassageExamples(self.tokens, self.fingerprint)
        if self.corpus is None:
            raise ValueError("fine-tuning needs a corpus")
        return PairExamples(
            tokens=self.tokens,
            corpus=self.corpus,
            split=self.split,
            fingerprint=self.fingerprint,
            negatives=self.negatives / "negatives.parquet" if self.negatives else None,
            per_query=self.per_query,
            query_length=self.query_length,
            passage_length=self.passage_length,
        )

    def build(self) -> tuple[Backbone, Objective, Vocabulary]:
        """Backbone and objective with the weights the run begins with; depends on the seed alone."""
        vocabulary = Vocabulary.of((self.tokens / "tokenizer").local())
        if self.start is not None:
            backbone = load_backbone(
                (self.start / "model").local(), dropout=self.backbone.dropout, wanted=self.backbone
            )
        else:
            backbone = build_backbone(self.backbone, vocabulary, seed=self.train.seed)
        return backbone, build_objective(self.objective, backbone, vocabulary, seed=self.train.seed), vocabulary
