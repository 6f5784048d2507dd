"""The steps of an experiment, each `f(config, inputs, out) -> small results`, in one process, without Ray.

They are what a sweep's trial runs, and the oracle that the distributed twins in `backend/` must equal. Defined here are
the trainings, and the encoders that need none: the fresh or given one, and one that is used without fine-tuning.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from midmask.core.config import Config, added
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.model_settings import TextForm
from midmask.encoders.reading import refuse_no_model
from midmask.encoders.representation import Representation
from midmask.experiment.schema import Recipe
from midmask.objectives import ObjectiveConfig, finetuning_config, pretraining_config
from midmask.objectives.finetuning.ranking import RankingConfig
from midmask.queries.query_model import GeneratorConfig
from midmask.retrieve.text_encoder import refuse_unfit
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.teacher.teach import TeachConfig
from midmask.text.vocabulary import Vocabulary
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.pretraining_rows import pretraining_examples
from midmask.training.setup import FinetuneSetup, PretrainSetup


class UntunedConfig(Config):
    """How an encoder that was not fine-tuned is read as a retriever."""

    representation: Representation = Field(description="which views of a text are scored")
    form: TextForm = Field(description="how texts are written before they are tokenised")
    query_length: int = Field(ge=4, description="tokens of a query")
    passage_length: int = Field(ge=8, description="tokens of a passage")
    seed: int = Field(0, ge=0, lt=2**31, description="of a projection, which nothing has trained")


def untuned_config(recipe: Recipe) -> UntunedConfig:
    """How the recipe reads an encoder that was not fine-tuned."""
    tokens = recipe.tokens
    return UntunedConfig(
        representation=recipe.representation,
        form=TextForm.of(tokens.model_dump()),
        query_length=tokens.query_length,
        passage_length=tokens.max_length,
        seed=recipe.pretrain.seed,
    )


def untuned(config: UntunedConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `start`, an artifact with a Hugging Face folder in `model/`; tokens.

    Writes `model/`, which transformers, sentence-transformers and midmask read alike.
    """
    backbone = load_backbone((inputs["start"].place / "model").local(), dropout=0.0)
    backbone.represent_as(config.representation, seed=config.seed)
    tokenizer = (inputs["tokens"].place / "tokenizer").local()
    longest, query_length = config.passage_length, config.query_length
    with tempfile.TemporaryDirectory() as name:
        save_bi_encoder(
            backbone, Path(name), tokenizer, max_length=longest, query_length=query_length, form=config.form
        )
        (out / "model").upload(Path(name))
    return {}


class PretrainConfig(Config):
    """Middle training: an objective on all passages of a corpus."""

    backbone: BackboneConfig = Field(description="the encoder that is trained")
    objective: Annotated[SerializeAsAny[ObjectiveConfig], BeforeValidator(pretraining_config)] = Field(
        description="what it is trained on"
    )
    train: TrainConfig = Field(description="length, batch and optimiser")
    stop_after: int | None = Field(
        None, ge=1, description="steps to stop after, as a prefix of the whole run; none: all"
    )
    excerpt: int | None = added(None, "tokens of a passage that each visit reads, drawn anew; none: all", ge=8)


class FinetuneConfig(Config):
    """One stage of fine-tuning: a bi-encoder on the train queries of a corpus."""

    backbone: BackboneConfig = Field(description="the encoder, if it does not come from another step")
    representation: Representation = Field(default_factory=Representation, description="what is scored")
    loss: Annotated[SerializeAsAny[RankingConfig], BeforeValidator(finetuning_config)] = Field(
        description="the ranking loss"
    )
    train: TrainConfig = Field(description="length, batch and optimiser")
    per_query: int = Field(0, ge=0, description="hard negatives a query in each step")
    missing_positive_score: Literal["refuse", "highest"] = Field(
        "refuse", description="a positive that the teacher has not scored: an error, or its query's highest score"
    )
    query_length: int = Field(32, ge=4, description="tokens of a query")
    passage_length: int = Field(128, ge=8, description="tokens of a passage")


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
    """Copies the folder's files to `model/`. Raises UserError if it holds no model."""
    folder = Path(config.folder)
    refuse_no_model(f"--model {folder}", folder)
    refuse_unfit(folder)
    (out / "model").upload(folder)
    return {"folder": str(folder)}


def pretrain_setup(config: PretrainConfig, inputs: Mapping[str, Artifact]) -> PretrainSetup:
    """Builds the setup of a pre-training worker from config and input artifacts, as plain data that can be sent."""
    rows = config.objective.row_form().rows
    longest = config.excerpt or int(inputs["tokens"].record["config"]["max_length"])
    source = inputs[rows if rows in inputs else "tokens"]
    places = {name: artifact.place for name, artifact in inputs.items()}
    return PretrainSetup(
        objective=config.objective,
        train=config.train,
        backbone=config.backbone,
        tokens=places["tokens"],
        rows=pretraining_examples(config.objective, places, source.fingerprint, longest, config.excerpt),
        stop_after=config.stop_after,
        longest=int(source.record["config"]["span_length"]) if rows == "spans" else longest,
        form=TextForm.of(inputs["tokens"].record["config"]),
        **{role: places.get(role) for role in ("start", "resume")},
    )


def finetune_setup(config: FinetuneConfig, inputs: Mapping[str, Artifact]) -> FinetuneSetup:
    """Builds the setup of a fine-tuning worker from config and input artifacts."""
    rows = PairExamples.of(
        inputs,
        missing_positive_score=config.missing_positive_score,
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
