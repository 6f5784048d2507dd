"""What an observer of several systems tracks and logs while their steps run, asked from a real store."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from midmask.app.graph_progress import GraphProgress
from midmask.app.observer import GraphObserver, TrackedSystem
from midmask.app.tracked_job import TrackedJob
from midmask.artifact import Place, load
from midmask.backend.resources import Resources
from midmask.experiment.costs import TRAINING
from midmask.experiment.graph import Graph
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.steps import LOCAL
from midmask.recipes import RECIPES
from midmask.tracking import TrackedRow, Tracker, read_runs
from tests.support.benchmark.tiny import short, write_collection
from tests.support.tracking.stores import QUICK


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> list[TrackedSystem]:
    """One recipe with two seeds, which share all steps before the fine-tuning."""
    corpus = write_collection(tmp_path_factory.mktemp("observed") / "tiny")
    recipes = [short(RECIPES["none"](), corpus).seeded(seed) for seed in (0, 1)]
    evaluations = [{"dev": plan(recipe).evaluation(recipe.evaluation)} for recipe in recipes]
    return [
        TrackedSystem(f"none, seed {seed}", recipe, own, main="dev", tags={"midmask.setting": "short"})
        for seed, (recipe, own) in enumerate(zip(recipes, evaluations, strict=True))
    ]


def observe(systems: Sequence[TrackedSystem], folder: Path, uri: str) -> dict[str, str]:
    """Runs what is left of the systems in a job of their own; what could not be measured."""
    storage, targets = Place(str(folder / "store")), [system.evaluations["dev"] for system in systems]
    with Tracker(uri, folder, QUICK) as tracker, tracker.run("job", tags={}, params={}) as parent:
        graph = Graph.left_in(storage, targets)
        job = TrackedJob("observed", tracker, parent, storage, Resources(cpus=1, gpus=0, side_by_side=1))
        progress = GraphProgress(job.progress, graph.left.values())
        observer = GraphObserver(job, systems, progress, step_runs=TRAINING, keep_going=True)
        for step in targets:
            if step.is_finished(storage):
                observer.end(step, load(step.place(storage)), cached=True)
        runner = Runner(storage, LOCAL, observer)
        while ready := graph.ready():
            try:
                runner.run_next(graph, ready[0])
            except OSError:
                continue
        return observer.failures


def children(uri: str) -> list[TrackedRow]:
    return [run for run in read_runs(uri) if run.parent_id]


def test_a_failed_step_takes_its_system_along_and_the_next_job_links_what_is_there(
    systems: list[TrackedSystem], tmp_path: Path, empty_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file lies where the second system's fine-tuned model should be."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    doomed = next(step for step in systems[1].evaluations["dev"].upstream() if step.name == "finetune")
    obstacle = tmp_path / "store" / "finetune" / doomed.fingerprint
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    caplog.set_level("INFO")

    failures = observe(systems, tmp_path, uri)
    assert list(failures) == ["none, seed 1"] and failures["none, seed 1"].startswith("finetune: ")
    assert sorted((run.tags["midmask.step"], run.status) for run in children(uri)) == [
        ("evaluate", "finished"),
        ("finetune", "failed"),
        ("finetune", "finished"),
    ]
    (row,) = [run for run in children(uri) if run.tags["midmask.step"] == "evaluate"]
    assert row.name == "none, seed 0" and row.tags["midmask.setting"] == "short"
    dev = systems[0].evaluations["dev"].place(Place(str(tmp_path / "store")))
    assert row.tags["midmask.artifact"] == str(load(dev).address)
    assert row.metrics["tiny/dev/nDCG_at_10"] == pytest.approx(load(dev).result["measures"]["nDCG@10"])
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.endswith("steps · 0 of 2 systems measured") for line in lines)
    assert any(line.startswith("finetune-none-tiny-") and "(none, seed 0): step 2 of 2" in line for line in lines)

    obstacle.unlink()
    caplog.clear()
    assert not observe(systems, tmp_path, uri)
    later = [run for run in children(uri) if run.parent_id != row.parent_id]
    assert sorted((run.name, run.status) for run in later if run.tags["midmask.step"] == "evaluate") == [
        ("none, seed 0 (cached)", "cached"),
        ("none, seed 1", "finished"),
    ]
    assert "steps · 2 of 2 systems measured" in caplog.text
