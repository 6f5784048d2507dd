"""Datasets and models of runs in a real store, asked from MLflow itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

from midmask.tracking.lineage import Dataset
from midmask.tracking.runs import Tracker
from tests.support.tracking.stores import MODEL, QUICK, SQUAD, TAGS, history, links, models

KEY = "squad/dev/nDCG_at_10"


def evaluate(tracker: Tracker) -> str:
    run = tracker.run("evaluate", tags={"midmask.fingerprint": "beef", "midmask.step": "evaluate"}, params={})
    read = Dataset(SQUAD.name, SQUAD.digest, SQUAD.source, "eval")
    run.log_inputs([read])
    run.log_input_model(MODEL)
    run.log({KEY: 0.5, "odd": float("nan")}, 0, of=MODEL, on=read)
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
    (measured,) = model.metrics or []
    assert (measured.key, measured.value, measured.run_id) == (KEY, 0.5, ids[evaluate]), "a NaN would be told as 0"
    assert (measured.dataset_name, measured.dataset_digest) == squad


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
