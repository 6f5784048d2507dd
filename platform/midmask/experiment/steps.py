"""The steps of an experiment, each `f(config, inputs, out) -> small results`, in one process, without Ray.

They are what a sweep's trial runs, and the oracle that the distributed twins in `backend/` must equal.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator

from midmask import corpora, tokens
from midmask.artifact import Artifact, Place
from midmask.derived.given_tokens import read_tokens
from midmask.derived.kept_pairs import KEEP_PAIRS, list_pairs
from midmask.derived.pseudo_queries import PSEUDO_QUERIES
from midmask.derived.spans import SPANS
from midmask.derived.terms import WEIGH
from midmask.derived.words import STATISTICS
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.damage import refuse_no_model
from midmask.encoders.representation import Representation
from midmask.encoders.text_form import TextForm
from midmask.evaluation.retriever import evaluate_retriever
from midmask.experiment.merge import merge
from midmask.experiment.untuned import untuned
from midmask.identity import Config, added
from midmask.mining.given_negatives import read_negatives
from midmask.mining.mine import mine
from midmask.mining.near_duplicates import NEAR_DUPLICATES
from midmask.mining.query_subset import draw_queries
from midmask.objectives import ObjectiveConfig, finetuning_config, pretraining_config
from midmask.objectives.finetuning.ranking import RankingConfig
from midmask.queries.step import make_queries
from midmask.queries.train import GeneratorConfig, generator_setup, train_generator
from midmask.retrieve.bm25 import rank_with_bm25
from midmask.retrieve.bm25_index import BM25_INDEX
from midmask.retrieve.bm25_words import BM25_WORDS
from midmask.retrieve.encode import encode
from midmask.retrieve.fusion import fuse_lists
from midmask.retrieve.index import build_index
from midmask.retrieve.index_recall import draw_sample
from midmask.retrieve.models import refuse_unfit
from midmask.retrieve.run_file import read_run
from midmask.retrieve.search import search, search_in_parts
from midmask.retrieve.timing import time_searches
from midmask.sharded import Sharded
from midmask.teacher.given_scores import read_scores
from midmask.teacher.score import SCORE
from midmask.teacher.teach import TeachConfig, teach, teach_setup
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.rows import pretraining_rows
from midmask.training.run import Log, local_reader, run_training
from midmask.training.setup import FinetuneSetup, PretrainSetup, TrainingSetup
from midmask.vocabulary import Vocabulary


class PretrainConfig(Config):
    """Middle training: an objective on all passages of a corpus."""

    backbone: BackboneConfig = Field(description="the encoder that is trained")
    objective: SerializeAsAny[ObjectiveConfig] = Field(description="what it is trained on")
    train: TrainConfig = Field(description="length, batch and optimiser")
    stop_after: int | None = Field(
        None, ge=1, description="steps to stop after, as a prefix of the whole run; none: all"
    )
    self_distillation: float = added(
        0.0, "weight of the distance to the starting encoder's vectors in the loss", ge=0.0
    )
    excerpt: int | None = added(None, "tokens of a passage that each visit reads, drawn anew; none: all", ge=8)

    @field_validator("objective", mode="before")
    @classmethod
    def _objective_by_name(cls, value: Any) -> Any:
        return pretraining_config(value)


class FinetuneConfig(Config):
    """One stage of fine-tuning: a bi-encoder on the train queries of a corpus."""

    backbone: BackboneConfig = Field(description="the encoder, if it does not come from another step")
    representation: Representation = Field(default_factory=Representation, description="what is scored")
    loss: SerializeAsAny[RankingConfig] = Field(description="the ranking loss")
    train: TrainConfig = Field(description="length, batch and optimiser")
    per_query: int = Field(0, ge=0, description="hard negatives a query in each step")
    missing_positive_score: Literal["refuse", "highest"] = Field(
        "refuse", description="a positive that the teacher has not scored: an error, or its query's highest score"
    )
    query_length: int = Field(32, ge=4, description="tokens of a query")
    passage_length: int = Field(128, ge=8, description="tokens of a passage")

    @field_validator("loss", mode="before")
    @classmethod
    def _loss_by_name(cls, value: Any) -> Any:
        return finetuning_config(value)


TrainingConfig = PretrainConfig | FinetuneConfig | TeachConfig | GeneratorConfig
"""The config of a step that trains."""


class InitialConfig(Config):
    """The encoder as it is before any training."""

    backbone: BackboneConfig = Field(description="the encoder")
    seed: int = Field(0, ge=0, lt=2**31, description="of weights that are made afresh")


def initial(config: InitialConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Writes `model/`, what recipes without middle training start from."""
    tokenizer = (inputs["tokens"].place / "tokenizer").local()
    backbone = build_backbone(config.backbone, Vocabulary.of(tokenizer), seed=config.seed)
    with tempfile.TemporaryDirectory() as name:
        backbone.save(Path(name), tokenizer)
        (out / "model").upload(Path(name))
    return {"parameters": sum(parameter.numel() for parameter in backbone.parameters())}


class AdoptConfig(Config):
    """A model folder from elsewhere, to be evaluated or mined with as if it had been trained here."""

    folder: str = Field(description="Hugging Face or sentence-transformers folder")


def adopt(config: AdoptConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Copies the folder's files to `model/`.

    Raises:
        UserError: if it holds no model.
    """
    folder = Path(config.folder)
    refuse_no_model(f"--model {folder}", folder)
    refuse_unfit(folder)
    (out / "model").upload(folder)
    return {"folder": str(folder)}


def pretrain_setup(config: PretrainConfig, inputs: Mapping[str, Artifact]) -> PretrainSetup:
    """Builds the setup of a pre-training worker from config and input artifacts, as plain data that can be sent."""
    name = config.objective.reads().rows
    longest = config.excerpt or _max_length(inputs["tokens"])
    read = inputs[name if name in inputs else "tokens"]
    places = {name: artifact.place for name, artifact in inputs.items()}
    return PretrainSetup(
        objective=config.objective,
        train=config.train,
        backbone=config.backbone,
        tokens=places["tokens"],
        rows=pretraining_rows(config.objective, places, read.fingerprint, longest, config.excerpt),
        stop_after=config.stop_after,
        self_distillation=config.self_distillation,
        longest=int(read.record["config"]["span_length"]) if name == "spans" else longest,
        form=TextForm.of(inputs["tokens"].record["config"]),
        **{name: places.get(name) for name in ("start", "resume", "corpus", "probed")},
    )


def finetune_setup(config: FinetuneConfig, inputs: Mapping[str, Artifact]) -> FinetuneSetup:
    """Builds the setup of a fine-tuning worker from config and input artifacts."""
    rows = PairExamples(
        tokens=inputs["tokens"].place,
        corpus=inputs["corpus"].place,
        split="train",
        fingerprint=inputs["tokens"].fingerprint,
        negatives=_file(inputs, "negatives", "negatives.parquet"),
        scores=_file(inputs, "scores", "scores.parquet"),
        missing_positive_score=config.missing_positive_score,
        queries=_file(inputs, "queries", "queries.parquet"),
        per_query=config.per_query,
        query_length=config.query_length,
        passage_length=config.passage_length,
    )
    return FinetuneSetup(
        objective=config.loss,
        representation=config.representation,
        train=config.train,
        backbone=config.backbone,
        tokens=rows.tokens,
        rows=rows,
        start=inputs["start"].place if "start" in inputs else None,
        form=TextForm.of(inputs["tokens"].record["config"]),
    )


def _max_length(tokens: Artifact) -> int:
    """Tokens of a passage at most."""
    return int(tokens.record["config"]["max_length"])


def _file(inputs: Mapping[str, Artifact], name: str, file: str) -> Place | None:
    """A file of an input, if there is that input."""
    return inputs[name].place / file if name in inputs else None


def pretrain(config: PretrainConfig, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
    return run_training(pretrain_setup(config, inputs), out, local_reader, log)


def finetune(config: FinetuneConfig, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
    return run_training(finetune_setup(config, inputs), out, local_reader, log)


def _quiet(step: Callable[[Any, Mapping[str, Artifact], Place], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A step that reports nothing while it runs."""

    def make(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        return step(config, inputs, out)

    return make


SETUPS: dict[str, Callable[[Any, Mapping[str, Artifact]], TrainingSetup]] = {
    "pretrain": pretrain_setup,
    "finetune": finetune_setup,
    "teach": teach_setup,
    "generator": generator_setup,
}
"""Step name -> what makes the setup of such a training from its config and inputs."""

SHARDED: dict[str, Sharded] = {
    "tokenise": tokens.tokenise,
    "spans": SPANS,
    "pseudo_queries": PSEUDO_QUERIES,
    "keep_pairs": KEEP_PAIRS,
    "statistics": STATISTICS,
    "weigh": WEIGH,
    "bm25_words": BM25_WORDS,
    "bm25_index": BM25_INDEX,
    "near_duplicates": NEAR_DUPLICATES,
    "score": SCORE,
}
"""Steps that work shard by shard: one distributed twin does for all (`backend.shards`)."""

LOCAL: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": _quiet(corpora.prepare),
    "queries": _quiet(make_queries),
    "join": _quiet(corpora.join),
    "read_tokens": _quiet(read_tokens),
    "list_pairs": _quiet(list_pairs),
    **{name: _quiet(step) for name, step in SHARDED.items()},
    "initial": _quiet(initial),
    "pretrain": pretrain,
    "finetune": finetune,
    "teach": teach,
    "generator": train_generator,
    "adopt": _quiet(adopt),
    "merge": _quiet(merge),
    "untuned": _quiet(untuned),
    "encode": _quiet(encode),
    "index": _quiet(build_index),
    "sample": _quiet(draw_sample),
    "search": _quiet(search),
    "search_sample": _quiet(search_in_parts),
    "time_searches": _quiet(time_searches),
    "draw_queries": _quiet(draw_queries),
    "read_negatives": _quiet(read_negatives),
    "read_scores": _quiet(read_scores),
    "read_run": _quiet(read_run),
    "mine": _quiet(mine),
    "bm25": _quiet(rank_with_bm25),
    "fuse": _quiet(fuse_lists),
    "evaluate": _quiet(evaluate_retriever),
}
"""Step name -> the function that computes it in this process."""
