"""Curves of trainings that a killed job, or one without its tracking store, has left untracked."""

import shutil
from pathlib import Path

from mlflow import MlflowClient

from midmask.app.run_contents import base_tags
from midmask.app.tracked_job import GraphObserver, GraphProgress, TrackedJob, TrackedSystem
from midmask.core.config import override
from midmask.experiment.plan import plan
from midmask.experiment.run import report_finished
from midmask.experiment.schema import Recipe
from midmask.store.place import Place
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from tests.support.benchmark.tiny import write_collection
from tests.support.dashboards.worked import ALONE, JOB, recipes, run_tracked_here
from tests.support.tracking.stores import QUICK, history


def run(uri: str, home: Path, recipe: Recipe) -> None:
    """Computes what is missing, after a report of every step that is finished."""
    target, storage = plan(recipe).stages[-1], Place(str(home / "store"))
    with Tracker(uri, home, QUICK) as tracker, tracker.run(JOB, tags=base_tags(JOB, recipe), params={}) as parent:
        job = TrackedJob(JOB, tracker, parent, storage, ALONE)
        observer = GraphObserver(job, [TrackedSystem(recipe.name, recipe)], GraphProgress(job.progress, ()))
        report_finished(target.upstream(), storage, observer)
        run_tracked_here(job, recipe, [target])


def curves(uri: str) -> dict[str, list[tuple[int, float]]]:
    """Key -> history, of what trainings report."""
    trainings = [row for row in read_runs(uri) if row.tags.get("midmask.step") in ("pretrain", "finetune")]
    return {
        key: history(uri, row.run_id, key)
        for row in trainings
        for key in row.metrics
        if f"{row.tags['midmask.step']}/loss" in row.metrics and not key.startswith("health/")
    }


def test_the_same_command_logs_from_the_store_what_was_computed_once(
    uri: str, tmp_path: Path, empty_store: Path
) -> None:
    recipe = override(recipes(write_collection(tmp_path / "tiny"))[0], {"pretrain.log_every": 3, "pretrain.steps": 7})
    run(uri, tmp_path, recipe)
    computed = curves(uri)
    assert {"pretrain/loss", "finetune/loss", "pretrain/tokens_per_second"} <= computed.keys()
    assert [step for step, _ in computed["pretrain/loss"]] == [3, 6, 7]
    shutil.copy(empty_store, tmp_path / "another.db")
    another = f"sqlite:///{tmp_path}/another.db"
    run(another, tmp_path, recipe)
    assert curves(another) == computed

    (training,) = [row for row in read_runs(another) if row.tags.get("midmask.step") == "pretrain"]
    client = MlflowClient(another)
    client.set_tag(training.run_id, "midmask.status", "killed")
    run(another, tmp_path, recipe)
    assert curves(another) == computed
    assert client.get_run(training.run_id).data.tags["midmask.status"] == "finished"
