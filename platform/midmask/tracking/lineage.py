"""The inputs and outputs of runs in MLflow: datasets as inputs, models as outputs of one run and inputs of others.

A model is a LoggedModel without files: its tag `midmask.artifact` says where the checkpoint lies, and only registering
(`models`) copies weights. It is known by step and fingerprint, so the run that made it, the runs that use it, and a job
that sends the same once more all mean one model, in whatever order they arrive.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import mlflow.entities
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, InputTag, LoggedModelInput, LoggedModelOutput, LoggedModelStatus
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from midmask.core.redaction import redacted
from midmask.tracking.names import ARTIFACT


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


def dataset_entries(datasets: list[Dataset]) -> list[dict[str, Any]]:
    """Datasets as plain data, which `log_datasets` sends."""
    return [asdict(dataset) | {"source": redacted(dataset.source)} for dataset in datasets]


def model_entry(model: TrackedModel) -> dict[str, Any]:
    """A model as plain data, which `log_made`, `log_used` and `model_id_of` send."""
    return asdict(model) | {"place": redacted(model.place)}


def log_datasets(client: MlflowClient, run_id: str, values: list[dict[str, Any]]) -> None:
    """Logs datasets as inputs; one that the run has already keeps the context that it had first."""
    client.log_inputs(run_id, datasets=[_dataset_input(value) for value in values])


def _dataset_input(value: Mapping[str, Any]) -> DatasetInput:
    kind = "local" if value["source"].startswith("/") else "midmask"
    source, profile = json.dumps({"uri": value["source"]}), json.dumps(value["counts"])
    dataset = mlflow.entities.Dataset(value["name"], value["digest"], kind, source, profile=profile)
    return DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, value["context"])])


def log_made(client: MlflowClient, run_id: str, value: Mapping[str, Any], at: int) -> None:
    """Links the run to a model that it has trained, unless it is linked."""
    model_id = model_id_of(client, run_id, value, made_here=True)
    if model_id not in {output.model_id for output in client.get_run(run_id).outputs.model_outputs}:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, at)])


def log_used(client: MlflowClient, run_id: str, value: Mapping[str, Any]) -> None:
    """Links the run to a model that it has read, unless it is linked."""
    model_id = model_id_of(client, run_id, value)
    if model_id not in {model_input.model_id for model_input in client.get_run(run_id).inputs.model_inputs}:
        client.log_inputs(run_id, models=[LoggedModelInput(model_id)])


def model_id_of(client: MlflowClient, run_id: str, value: Mapping[str, Any], *, made_here: bool = False) -> str:
    """The id of a step's model, created if missing; one that a kill left pending is finished.

    Args:
        value: as `model_entry` gives it. made_here: whether this run is the one that trained it.
    """
    experiment = str(client.get_run(run_id).info.experiment_id)
    identity = {"midmask.step": value["step"], "midmask.fingerprint": value["fingerprint"]}
    query = " AND ".join(f"tags.`{name}` = '{text}'" for name, text in identity.items())
    models = client.search_logged_models([experiment], query)
    model = models[0] if models else client.create_logged_model(
        experiment,
        name=value["name"],
        source_run_id=run_id if made_here else None,
        tags={**value["tags"], **identity, ARTIFACT: value["place"]},
        params=dict(value["params"]),
        model_type=value["kind"],
    )  # fmt: skip
    if model.status != LoggedModelStatus.READY:
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)
