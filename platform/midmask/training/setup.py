"""All that a worker needs to know to train: plain data and places, so that it travels to any node."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from midmask.artifact import Place
from midmask.encoders.backbone import SIZES, Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.encoders.cross_encoder import CrossEncoder, build_cross_encoder
from midmask.encoders.folder import take_projection
from midmask.encoders.representation import Representation
from midmask.encoders.text_form import TextForm
from midmask.objectives import PRETRAINING, CoupledObjective, Objective, ObjectiveConfig, build_objective
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.training.contexts import PseudoQueryExamples, SpanExamples
from midmask.training.examples import Examples, PassageExamples
from midmask.training.optimiser import TrainConfig
from midmask.training.packing import PackedExamples
from midmask.training.pairs import PairExamples
from midmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainingSetup:
    """One training run, picklable and small; its places are reached from wherever the worker runs.

    start: an artifact whose `model/` is trained on. resume: an artifact of a prefix of this very run, to go on from.
    stop_after: steps to stop after, as a prefix of the whole run.
    spans, pseudo_queries, weights: what the objective reads besides the tokens. corpus: for fine-tuning, or a probe.
    probed: the corpus's tokens, if the middle training reads others.
    passage_length: for fine-tuning, or the length of packed rows. representation, negatives, per_query, query_length,
    split: for fine-tuning, and for teaching, the training of a cross-encoder.
    form: how the texts were written before they were tokenised, for the folder of a fine-tuned model.
    fingerprint: of the artifact whose rows are read, which their order depends on.
    """

    kind: Literal["pretrain", "finetune", "teach"]
    objective: ObjectiveConfig
    train: TrainConfig
    backbone: BackboneConfig
    tokens: Place
    fingerprint: str
    start: Place | None = None
    resume: Place | None = None
    stop_after: int | None = None
    spans: Place | None = None
    pseudo_queries: Place | None = None
    weights: Place | None = None
    corpus: Place | None = None
    probed: Place | None = None
    negatives: Place | None = None
    scores: Place | None = None
    missing_positive_score: Literal["refuse", "highest"] = "refuse"
    queries: Place | None = None
    per_query: int = 0
    query_length: int = 32
    passage_length: int = 128
    split: str = "train"
    representation: Representation = field(default_factory=Representation)
    form: TextForm = field(default_factory=TextForm)

    @property
    def stop(self) -> int:
        return min(self.stop_after or self.train.steps, self.train.steps)

    def examples(self) -> Examples:
        """What a row of the run is.

        Raises:
            ValueError: if a place that it is read from is not given.
        """
        if self.kind == "pretrain":
            return self._texts()
        if self.corpus is None:
            raise ValueError("fine-tuning needs a corpus")
        return PairExamples(
            tokens=self.tokens,
            corpus=self.corpus,
            split=self.split,
            fingerprint=self.fingerprint,
            negatives=self.negatives / "negatives.parquet" if self.negatives else None,
            scores=self.scores / "scores.parquet" if self.scores else None,
            missing_positive_score=self.missing_positive_score,
            queries=self.queries / "queries.parquet" if self.queries else None,
            per_query=self.per_query,
            query_length=self.query_length,
            passage_length=self.passage_length,
        )

    def _texts(self) -> Examples:
        """What the objective reads, and only that: of an artifact that it does not read nothing is known here."""
        reads = self.objective.reads()
        weights = _given(self.weights, "weights") if reads.term_weights else None
        by_length = not issubclass(PRETRAINING[self.objective.name], CoupledObjective)
        if reads.rows == "packed":
            return PackedExamples(self.tokens, self.fingerprint, self.passage_length, weights)
        if reads.rows == "spans":
            return SpanExamples(_given(self.spans, "spans"), self.fingerprint, reads.context)
        if reads.rows == "pseudo_queries":
            queries = _given(self.pseudo_queries, "pseudo_queries")
            return PseudoQueryExamples(self.tokens, queries, self.fingerprint, weights, by_length)
        return PassageExamples(self.tokens, self.fingerprint, weights, by_length)

    def build(self) -> tuple[Backbone | CrossEncoder, Objective, Vocabulary]:
        """Model and objective with the weights the run begins with; depends on the seed alone."""
        vocabulary = Vocabulary.of((self.tokens / "tokenizer").local())
        if isinstance(self.objective, ListwiseRanking.Config):
            encoder = build_cross_encoder(
                self.backbone,
                (self.tokens / "tokenizer").local(),
                max_length=self.objective.max_length,
                seed=self.train.seed,
            )
            return encoder, ListwiseRanking(self.objective, encoder, vocabulary), vocabulary
        if self.start is not None:
            backbone = load_backbone(
                (self.start / "model").local(), dropout=self.backbone.dropout, wanted=self.backbone
            )
        else:
            backbone = build_backbone(self.backbone, vocabulary, seed=self.train.seed)
        if self.kind == "finetune":
            backbone.represent_as(self.representation, seed=self.train.seed)
            if self.origin is not None:
                take_projection(backbone, self.origin)
        return backbone, build_objective(self.objective, backbone, vocabulary, seed=self.train.seed), vocabulary

    @property
    def origin(self) -> Path | None:
        """The folder whose weights the run begins with, if it is on this machine's disk."""
        if self.start is not None:
            return (self.start / "model").local()
        return None if self.backbone.fresh or self.backbone.name in SIZES else Path(self.backbone.name)


def _given(place: Place | None, name: str) -> Place:
    if place is None:
        raise ValueError(f"the objective reads {name}, and the setup has no place for them")
    return place
