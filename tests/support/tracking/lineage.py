"""Datasets and models of a run, read from MLflow."""

from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel

from midmask.tracking import Dataset, TrackedModel

SQUAD = Dataset("squad", "c0ffee123456", "beir:/data/squad", "pretrain", {"passages": 18000, "queries": 300})
MODEL = TrackedModel(
    "finetune-dupmae-/models/x: y", "finetune", "f00df00df00d", "retriever", "/store/finetune/f00df00df00d",
    {"train.steps": 500, "loss.name": "contrastive"}, {"midmask.recipe": "dupmae"},
)  # fmt: skip


def models(uri: str) -> list[LoggedModel]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("midmask")
    assert experiment is not None
    return list(client.search_logged_models([experiment.experiment_id]))


def links(uri: str, run_id: str) -> dict[str, Any]:
    """Of a run: (name, digest, context) of its datasets, and the models that it used and made, with duplicates."""
    run = MlflowClient(uri).get_run(run_id)
    found = [(one.dataset.name, one.dataset.digest, one.tags[0].value) for one in run.inputs.dataset_inputs]
    return {
        "datasets": sorted(found),
        "used": [one.model_id for one in run.inputs.model_inputs],
        "made": [(one.model_id, one.step) for one in run.outputs.model_outputs],
    }
