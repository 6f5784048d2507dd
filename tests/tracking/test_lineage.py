"""Datasets and models of runs, and registered models, in a real store, asked from MLflow itself."""

import json
import os
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import ExpertSplit
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.tracking.lineage import Dataset, TrackedModel
from midmask.tracking.models import RegistryEntry, register_model
from midmask.tracking.runs import Tracker
from midmask.tracking.store import create_store
from tests.support.encoders.models import TEXTS, random_model, write_tokenizer
from tests.support.encoders.public import views
from tests.support.tracking.stores import MODEL, QUICK, SQUAD, TAGS, history, links, models

KEY = "squad/dev/nDCG_at_10"


def evaluate(tracker: Tracker) -> str:
    run = tracker.run("evaluate", tags={"midmask.fingerprint": "beef", "midmask.step": "evaluate"}, params={})
    read = Dataset(SQUAD.name, SQUAD.digest, SQUAD.source, "eval")
    run.log_inputs([read])
    run.log_input_model(MODEL)
    run.log({KEY: 0.5, "odd": float("nan")}, 0)
    run.finish()
    return run.id


def train(tracker: Tracker) -> str:
    with tracker.run("finetune", tags=TAGS, params={}) as run:
        run.log_inputs([SQUAD])
        run.log_output_model(MODEL, 500)
    return run.id


@pytest.mark.parametrize("trained_first", [True, False])
def test_one_model_links_the_run_that_made_it_and_the_one_that_used_it(uri, tmp_path, trained_first) -> None:
    """A job may send what an earlier one left behind, so the use may arrive before the making."""
    with Tracker(uri, tmp_path, QUICK) as tracker:
        order = [train, evaluate] if trained_first else [evaluate, train]
        ids = {work: work(tracker) for work in order}
    (model,) = models(uri)
    named = (model.name, model.model_type, model.status)
    assert named == ("finetune-dupmae-models-x-y", "retriever", LoggedModelStatus.READY)
    assert model.source_run_id == (ids[train] if trained_first else None)
    assert model.params == {"train.steps": "500", "loss.name": "contrastive"}
    assert model.tags.items() >= {"midmask.artifact": MODEL.place, "midmask.recipe": "dupmae"}.items()
    squad = (SQUAD.name, SQUAD.digest)
    made = [(model.model_id, 500)]
    assert links(uri, ids[train]) == {"datasets": [(*squad, "pretrain")], "used": [], "made": made}
    assert links(uri, ids[evaluate]) == {"datasets": [(*squad, "eval")], "used": [model.model_id], "made": []}
    assert not (tmp_path / "mlartifacts" / "models").exists(), "no weights are copied"
    assert history(uri, ids[evaluate], KEY) == [(0, 0.5)] and len(history(uri, ids[evaluate], "odd")) == 1


def test_datasets_who_ran_it_and_why_it_failed_are_told_without_credentials(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        with pytest.raises(OSError), tracker.run("a", tags={}, params={}) as run:
            run.log_inputs([SQUAD, Dataset("far", "d", "beir:s3://key:pw@bucket/far", "train")])
            run.log_inputs([])
            run.describe("| a | b |")
            raise OSError("no room on postgresql://me:pw@h/d\nsecond line")
    tags = MlflowClient(uri).get_run(run.id).data.tags
    assert tags["midmask.reason"] == "OSError: no room on postgresql://***@h/d"
    assert tags["mlflow.note.content"] == "| a | b |" and tags["mlflow.source.type"] == "LOCAL" and tags["mlflow.user"]
    found = {one.dataset.name: one.dataset for one in MlflowClient(uri).get_run(run.id).inputs.dataset_inputs}
    assert json.loads(found["squad"].source) == {"uri": "beir:/data/squad"}
    assert json.loads(found["squad"].profile or "") == {"passages": 18000, "queries": 300}
    assert json.loads(found["far"].source) == {"uri": "beir:s3://***@bucket/far"}
    assert b":pw@" not in (tmp_path / "mlflow.db").read_bytes()


@pytest.mark.parametrize("call", ["create_logged_model", "log_outputs", "log_inputs"])
def test_a_connection_that_breaks_half_way_leaves_no_second_model(uri, tmp_path, monkeypatch, call) -> None:
    """The request arrives, its answer does not."""
    whole = getattr(MlflowClient, call)
    broken: list[str] = []

    def breaks(self: MlflowClient, *args: Any, **named: Any) -> Any:
        answer = whole(self, *args, **named)
        if not broken:
            broken.append(call)
            raise ConnectionResetError("the connection was reset")
        return answer

    monkeypatch.setattr(MlflowClient, call, breaks)
    with Tracker(uri, tmp_path, QUICK) as tracker:
        ids = [train(tracker), evaluate(tracker)]
    assert broken == [call]
    (model,) = models(uri)
    assert model.status == LoggedModelStatus.READY
    assert links(uri, ids[0])["made"] == [(model.model_id, 500)]
    assert links(uri, ids[1])["used"] == [model.model_id]


def test_a_server_too_old_to_know_models_costs_nothing_but_them(uri, tmp_path, monkeypatch, caplog) -> None:
    """It answers as every server does to an address that it has not: 404."""

    def unknown(self: MlflowClient, *args: Any, **named: Any) -> None:
        raise MlflowException("API request to endpoint failed with error code 404", ENDPOINT_NOT_FOUND)

    monkeypatch.setattr(MlflowClient, "search_logged_models", unknown)
    with Tracker(uri, tmp_path, QUICK) as tracker:
        run_id = train(tracker)
        with tracker.run("after", tags={}, params={}) as run:
            run.log({"loss": 1.0}, 0)
    assert history(uri, run.id, "loss") == [(0, 1.0)]
    assert MlflowClient(uri).get_run(run_id).info.status == "FINISHED"
    assert "refuses made" in caplog.text


LINEAGE = {"recipe": "dupmae", "corpus": "squad"}
ENTRY = RegistryEntry("contrastive", "tiny", "f00d", {"dense": 3, "lexical": 40}, LINEAGE)
NAME = "midmask.contrastive.tiny"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files like a model's; the registry does not look into them."""
    place = tmp_path / "model"
    (place / "1_Pooling").mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"hidden_size": 3}))
    (place / "1_Pooling" / "config.json").write_text("{}")
    (place / "model.safetensors").write_bytes(os.urandom(1000))
    return place


def register(uri: str, home: Path, folder: Path, entry: RegistryEntry = ENTRY, alias: str = "candidate") -> str:
    return register_model(uri, home, folder, entry, alias=alias, patience=QUICK)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_mlflow_itself_knows_signature_and_lineage(uri, tmp_path, folder, monkeypatch) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        run = tracker.run("finetune", tags={"midmask.step": "finetune"}, params={})
        run.finish("finished")
    entry = RegistryEntry(**{**vars(ENTRY), "run_id": run.id, "lineage": {**LINEAGE, "step.pretrain": "beef"}})
    made = register(uri, tmp_path, folder, entry, "best-dev")
    version = MlflowClient(uri).get_model_version_by_alias(NAME, "best-dev")
    assert (version.run_id, int(version.version), made) == (run.id, 1, f"models:/{NAME}/1")
    tags = {"fingerprint": "f00d", "recipe": "dupmae", "corpus": "squad", "step.pretrain": "beef"}
    tags |= {"objective": "contrastive", "backbone": "tiny"}
    logged = MlflowClient(uri).get_logged_model(version.tags.pop("midmask.logged_model"))
    assert version.tags == {f"midmask.{name}": value for name, value in tags.items()}
    assert logged.source_run_id == run.id and logged.status == "READY" and logged.tags.items() >= version.tags.items()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    signature = mlflow.models.get_model_info(f"models:/{NAME}@best-dev").signature
    assert signature.inputs.to_dict() == [{"type": "string", "required": True}]
    shapes = {output.name: (output.type.name, output.shape) for output in signature.outputs}
    assert shapes == {"dense": ("float32", (-1, 3)), "lexical": ("float32", (-1, 40))}


@pytest.mark.parametrize("routed", [False, True])
def test_mlflow_itself_loads_a_dense_model(routed: bool, uri: str, tmp_path: Path, monkeypatch) -> None:
    """Queries and passages of a routed one differ, which pyfunc cannot say."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer", "no pairs", 64)
    backbone = Backbone(random_model("bert"), dropout=0.0, split=ExpertSplit("ffn") if routed else None).eval()
    backbone.represent_as(Representation(dense="mean", width=8), seed=3)
    save_bi_encoder(backbone, tmp_path / "dense", tokenizer, max_length=12)
    vectors_BD = views(backbone, tokenizer).tensors()[0].numpy()
    made = register(uri, tmp_path, tmp_path / "dense", RegistryEntry("contrastive", "tiny", "f00d", {"dense": 8}))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    model = mlflow.sentence_transformers.load_model(made)
    np.testing.assert_allclose(model.encode_document(TEXTS), vectors_BD, rtol=1e-5, atol=1e-5)
    if routed:
        with pytest.raises(MlflowException, match="python_function"):
            mlflow.pyfunc.load_model(made)
    else:
        np.testing.assert_allclose(mlflow.pyfunc.load_model(made).predict(TEXTS), vectors_BD, rtol=1e-5, atol=1e-5)


def test_the_model_that_runs_are_linked_to_is_the_one_that_is_registered(uri, tmp_path, folder) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("finetune", tags={}, params={}) as run:
        run.log_output_model(TrackedModel("finetune-dupmae", "finetune", "f00d", "retriever", "/store/f00d"), 7)
    register(uri, tmp_path, folder)
    client = MlflowClient(uri)
    (output,) = client.get_run(run.id).outputs.model_outputs
    version = client.get_model_version_by_alias(NAME, "candidate")
    assert version.tags["midmask.logged_model"] == output.model_id
    (model,) = client.search_logged_models([create_store(uri, tmp_path)[1]])
    assert model.tags.items() >= {"midmask.artifact": "/store/f00d", "midmask.corpus": "squad"}.items()
    place = client.get_model_version_download_uri(NAME, version.version)
    found = files_in(Path(download_artifacts(artifact_uri=place, dst_path=str(tmp_path / "own"), tracking_uri=uri)))
    assert b"python_function" not in found.pop("MLmodel") and found == files_in(folder), "nothing can be unpickled"


def test_the_same_model_is_registered_once_and_an_alias_is_of_one_version(uri, tmp_path, folder) -> None:
    register(uri, tmp_path, folder)
    assert register(uri, tmp_path, folder, alias="best-dev") == f"models:/{NAME}/1"
    other = RegistryEntry(**{**vars(ENTRY), "fingerprint": "beef"})
    assert register(uri, tmp_path, folder, other, "best-dev") == f"models:/{NAME}/2"
    client = MlflowClient(uri)
    versions = {alias: client.get_model_version_by_alias(NAME, alias).version for alias in ("candidate", "best-dev")}
    assert {alias: int(version) for alias, version in versions.items()} == {"candidate": 1, "best-dev": 2}
    assert len(client.search_logged_models([create_store(uri, tmp_path)[1]])) == 2


@pytest.mark.parametrize(("backbone", "name"), [("google-bert/base", "google-bert-base"), ("/it's: y", "it-s-y")])
def test_names_are_those_mlflow_takes(backbone: str, name: str, uri: str, tmp_path: Path, folder: Path) -> None:
    entry = RegistryEntry("dupmae", backbone, "f00d", {"dense": 3})
    assert register(uri, tmp_path, folder, entry) == f"models:/midmask.dupmae.{name}/1"
    assert register(uri, tmp_path, folder, entry) == f"models:/midmask.dupmae.{name}/1"


def test_what_mlflow_takes_for_something_else_and_what_is_no_model_is_refused(uri, tmp_path, folder) -> None:
    for alias in ("latest", "v3", "best dev", "", "a@b"):
        with pytest.raises(UserError, match="such as candidate"):
            register(uri, tmp_path, folder, alias=alias)
    with pytest.raises(UserError, match="holds no model to register"):
        register(uri, tmp_path, tmp_path)


def test_an_upload_that_fails_is_marked_and_makes_no_version(uri: str, tmp_path: Path, folder: Path) -> None:
    _, experiment = create_store(uri, tmp_path)
    place = tmp_path / "mlartifacts"
    place.mkdir(exist_ok=True)
    (place / "models").write_text("a file where MLflow wants a folder")
    with pytest.raises(UserError, match=f"{NAME} cannot be registered in sqlite"):
        register(uri, tmp_path, folder)
    client = MlflowClient(uri)
    assert not client.search_model_versions(f"name='{NAME}'")
    assert [model.status for model in client.search_logged_models([experiment])] == ["FAILED"]
    (place / "models").unlink()
    assert register(uri, tmp_path, folder) == f"models:/{NAME}/1"
