"""The inputs and outputs of runs in MLflow: datasets as inputs, models as outputs of one run and inputs of others.

A model is a LoggedModel without files: its tag `midmask.artifact` says where the checkpoint lies, and only registering
(`models`) copies weights. It is known by step and fingerprint, so the run that made it, the runs that use it, and a job
that sends the same once more all mean one model, in whatever order they arrive.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mlflow.entities
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, InputTag, LoggedModelInput, LoggedModelOutput, LoggedModelStatus
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from midmask.core.redaction import redacted
from midmask.tracking.names import ARTIFACT
from midmask.tracking.opening import params_as_texts, tags_as_texts


@dataclass(frozen=True)
class Dataset:
    """A collection that a run has read."""

    name: str
    digest: str  # its fingerprint
    source: str  # where it was read from
    context: str  # its use: pretrain, train, eval, or several of them
    counts: Mapping[str, float] = field(default_factory=dict)  # of passages, queries and the like; MLflow's profile


@dataclass(frozen=True)
class TrackedModel:
    """A checkpoint in the storage, identified by the step that made it and the step's fingerprint."""

    name: str
    step: str  # that made it
    fingerprint: str  # of that step
    kind: str  # encoder, retriever or cross-encoder: MLflow's model type
    place: str  # its artifact
    params: Mapping[str, Any] = field(default_factory=dict)  # of the step's config
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", model_name(self.name))


def model_name(text: str) -> str:
    """The text as MLflow takes it for a model: signs that it refuses, such as `/` and `:`, become hyphens."""
    return re.sub(r"\W+", "-", text).strip("-")


def dataset_input(dataset: Dataset) -> DatasetInput:
    """The dataset as MLflow takes it for the input of a run."""
    kind = "local" if dataset.source.startswith("/") else "midmask"
    source, profile = json.dumps({"uri": redacted(dataset.source)}), json.dumps(dict(dataset.counts))
    entity = mlflow.entities.Dataset(dataset.name, dataset.digest, kind, source, profile=profile)
    return DatasetInput(entity, [InputTag(MLFLOW_DATASET_CONTEXT, dataset.context)])


def log_made(client: MlflowClient, run_id: str, model: TrackedModel, at: int) -> None:
    """Links the run to a model that it has trained, unless it is linked."""
    model_id = model_id_of(client, run_id, model, made_here=True)
    if model_id not in {output.model_id for output in client.get_run(run_id).outputs.model_outputs}:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, at)])


def log_used(client: MlflowClient, run_id: str, model: TrackedModel) -> None:
    """Links the run to a model that it has read, unless it is linked."""
    model_id = model_id_of(client, run_id, model)
    if model_id not in {model_input.model_id for model_input in client.get_run(run_id).inputs.model_inputs}:
        client.log_inputs(run_id, models=[LoggedModelInput(model_id)])


def model_id_of(client: MlflowClient, run_id: str, model: TrackedModel, *, made_here: bool = False) -> str:
    """The id of a step's model, created if missing; one that a kill left pending is finished.

    Args:
        made_here: whether this run is the one that trained it.
    """
    experiment = str(client.get_run(run_id).info.experiment_id)
    identity = {"midmask.step": model.step, "midmask.fingerprint": model.fingerprint}
    query = " AND ".join(f"tags.`{name}` = '{text}'" for name, text in identity.items())
    models = client.search_logged_models([experiment], query)
    logged = models[0] if models else client.create_logged_model(
        experiment,
        name=model.name,
        source_run_id=run_id if made_here else None,
        tags={**tags_as_texts(model.tags), **identity, ARTIFACT: redacted(model.place)},
        params=params_as_texts(model.params),
        model_type=model.kind,
    )  # fmt: skip
    if logged.status != LoggedModelStatus.READY:
        client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    return str(logged.model_id)
