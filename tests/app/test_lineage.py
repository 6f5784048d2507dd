"""What a recipe's steps, a sweep's trials and several systems leave in MLflow while they run, from a real store."""

import json
import pickle
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Run

from midmask.app.run_contents import all_datasets, base_tags, behind, collection_name
from midmask.app.tracked_job import GraphObserver, TrackedJob, TrackedSystem
from midmask.core.config import fingerprint, override
from midmask.experiment.changes import apply_changes
from midmask.experiment.events import Ended, Logged
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, report_finished
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.leaderboard.rows import rows
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.artifact import RECORD, Artifact, load
from midmask.store.place import Place
from midmask.sweep.observer import TrialsObserver
from midmask.sweep.plan import Measured, final_evaluation
from midmask.sweep.space import Space
from midmask.sweep.study import Outcome
from midmask.sweep.trial import EndedEarly, RungMeasured, TrialContext, TrialEvent, TrialStarted
from midmask.tracking.reading import TrackedRow, read_runs
from midmask.tracking.runs import TrackedRun, Tracker
from tests.support.benchmark.tiny import short, write_collection
from tests.support.corpora.collections import json_lines, write
from tests.support.dashboards.worked import ALONE, JOB, recipes, run_tracked_here
from tests.support.tracking.stores import QUICK, history

RATES = {"pretrain.learning_rate": {"values": [1e-4, 2e-4]}}
SPACE = Space(name="lr", recipe="mlm", search="grid", parameters=RATES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny: fine-tuned and evaluated on; there: passages of its own."""
    place = tmp_path_factory.mktemp("lineage")
    write_collection(place / "tiny")
    write(place / "there" / "corpus.jsonl", json_lines([{"_id": f"d{n}", "text": f"birch {n}"} for n in range(40)]))
    return place


def recipe_on(folder: Path, protocol: str = "in_batch") -> Recipe:
    """Pre-trained on another collection than it is fine-tuned on."""
    recipe = short(PROTOCOLS[protocol]().on(RECIPES["mlm"](), "demo"), f"beir:{folder}/tiny")
    return override(recipe, {"pretrain_on": [f"beir:{folder}/there"], "pretrain.threads": 1})


def names(steps: list[Step]) -> list[str]:
    return [collection_name(step) if step.name == "prepare" else step.name for step in steps]


def test_a_walk_back_ends_at_models_and_sees_what_is_read_alone(folder: Path) -> None:
    recipe = recipe_on(folder, "ance")
    planned = plan(recipe)
    dev = planned.evaluation(recipe.evaluation)
    found = {step.name: [names(part) for part in behind(step)] for step in (planned.pretrained, dev)}
    assert found == {"pretrain": [["there"], []], "evaluate": [["tiny"], ["finetune"]]}
    assert behind(dev)[1] == [planned.stages[-1]]
    first, last = planned.stages[0], planned.stages[-1]
    assert first is not last and behind(first) == ([planned.corpus], [planned.pretrained])
    assert set(names(behind(last)[1])) >= {"finetune"}, "negatives are mined with the stage before"
    assert behind(planned.bm25_evaluation(recipe.evaluation)) == ([planned.corpus], [])
    contexts = {one.name: one.context for one in all_datasets([dev], Place(str(folder / "nothing")))}
    assert contexts == {"there": "pretrain", "tiny": "train, eval"}


@pytest.fixture(scope="module")
def store(folder: Path, empty_store: Path) -> str:
    """The recipe run twice in one process: the second time everything is there already."""
    uri, recipe, storage = f"sqlite:///{folder}/mlflow.db", recipe_on(folder), Place(str(folder / "store"))
    planned = plan(recipe)
    shutil.copy(empty_store, folder / "mlflow.db")
    with Tracker(uri, folder, QUICK) as tracker:
        for name in ("first", "second"):
            with tracker.run(name, tags={}, params={}) as parent:
                targets = (planned.evaluation(recipe.evaluation), planned.bm25_evaluation(recipe.evaluation))
                run_tracked_here(TrackedJob("run_recipe", tracker, parent, storage, ALONE), recipe, targets)
    return uri


def runs(uri: str) -> list[Run]:
    """All of them, each asked for by itself: a search leaves the models that were used out."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("midmask")
    return [client.get_run(run.info.run_id) for run in client.search_runs([experiment.experiment_id])]


def models(uri: str) -> dict[str, LoggedModel]:
    """By the step that made them."""
    found = MlflowClient(uri).search_logged_models([runs(uri)[0].info.experiment_id])
    assert len({model.tags["midmask.fingerprint"] for model in found}) == len(found), "each model once"
    return {model.tags["midmask.step"]: model for model in found}


def of(uri: str, step: str, **tags: str) -> Run:
    """The one run of a step that computed something."""
    wanted = {"midmask.step": step, "midmask.status": "finished", **{f"midmask.{key}": tags[key] for key in tags}}
    (found,) = [run for run in runs(uri) if wanted.items() <= run.data.tags.items()]
    return found


def test_a_recipes_runs_are_linked_by_datasets_and_models(store: str, folder: Path) -> None:
    made = models(store)
    assert set(made) == {"pretrain", "finetune"}
    pretrain, finetune, dev = of(store, "pretrain"), of(store, "finetune"), of(store, "evaluate", recipe="mlm")
    seen = {
        run.data.tags["midmask.step"]: (
            [(one.dataset.name, one.tags[0].value) for one in run.inputs.dataset_inputs],
            [one.model_id for one in run.inputs.model_inputs],
            [(one.model_id, one.step) for one in run.outputs.model_outputs],
        )
        for run in (pretrain, finetune, dev)
    }
    first, last = made["pretrain"].model_id, made["finetune"].model_id
    assert seen == {
        "pretrain": ([("there", "pretrain")], [], [(first, 3)]),
        "finetune": ([("tiny", "train")], [first], [(last, 2)]),
        "evaluate": ([("tiny", "eval")], [last], []),
    }
    assert made["finetune"].name == finetune.info.run_name
    assert (Path(made["finetune"].tags["midmask.artifact"]) / "model" / "model.safetensors").is_file()
    assert not (folder / "mlartifacts" / "models").exists(), "weights are not copied"


def test_an_evaluation_has_measures_of_its_dataset(store: str, folder: Path) -> None:
    dev = of(store, "evaluate", recipe="mlm")
    assert any(key.startswith("tiny/") for key in dev.data.metrics)
    (dataset,) = [one.dataset for one in dev.inputs.dataset_inputs]
    assert json.loads(dataset.profile or "")["passages"] == 48
    record = folder / "store" / "prepare" / dataset.digest / RECORD
    assert json.loads(record.read_text())["config"]["name"] == json.loads(dataset.source)["uri"]
    bm25 = of(store, "evaluate", recipe="bm25")
    assert not bm25.inputs.model_inputs and [one.dataset.name for one in bm25.inputs.dataset_inputs] == ["tiny"]


def test_runs_are_nested_and_a_second_time_only_linked(store: str) -> None:
    parents = {run.info.run_name: run.info.run_id for run in runs(store) if "mlflow.parentRunId" not in run.data.tags}
    assert set(parents) - {"5eed", "e4ded"} == {"first", "second"}, "beside the sweeps of other tests"
    children = [run for run in runs(store) if run.data.tags.get("mlflow.parentRunId") == parents["second"]]
    assert children and all(run.info.run_name.endswith(" (cached)") for run in children)
    assert of(store, "finetune").data.tags["mlflow.parentRunId"] == parents["first"]


@contextmanager
def sweep(
    folder: Path, uri: str, name: str, protocol: str = "ance"
) -> Iterator[tuple[Tracker, TrackedRun, TrialContext, TrialsObserver]]:
    recipe, storage = recipe_on(folder, protocol), Place(str(folder / "store"))
    context = TrialContext(recipe, Survey(), SPACE, storage, None, ALONE)
    with Tracker(uri, folder, QUICK) as tracker, tracker.run(name, tags={}, params={}) as parent:
        job = TrackedJob("sweep", tracker, parent, storage, ALONE)
        yield tracker, parent, context, TrialsObserver(job, context, sweep=name)


def test_trials_share_metric_keys_by_optimiser_step_and_tell_their_models(folder: Path, store: str) -> None:
    """Events as a worker sends them: a probe's fine-tuning is no curve, a second stage goes on after the first."""
    with sweep(folder, store, "5eed") as (_, parent, context, board):
        for number, rate in enumerate((1e-4, 2e-4)):
            point = {"pretrain.learning_rate": rate}
            start, dev = TrialStarted(point), evaluation_of(context, point)
            trainings = [step for step in dev.upstream() if step.name in ("pretrain", "finetune")]
            tell = partial(tell_of_trial, board, fingerprint(point))
            for _ in range(2):  # its process died, and Ray Tune started it again
                tell(start)
            probe = Step("finetune", trainings[1].config, {})
            for step in (probe, *trainings):
                for at in range(1, step.optimiser_steps + 1):  # so that no curve lacks a point
                    tell(Logged(step, at, {"train/loss": 1.0 / at}))
                tell(Ended(step, Artifact(step.place(context.storage), {}), cached=number == 1))
        board.close(())
    client = MlflowClient(store)
    trials = [run for run in runs(store) if run.data.tags.get("mlflow.parentRunId") == parent.id]
    names_of_trials = sorted(run.info.run_name.rsplit("-", 1)[0] for run in trials)
    assert names_of_trials == ["trial 0.0001-mlm-tiny", "trial 0.0002-mlm-tiny"]
    stages = len(recipe_on(folder, "ance").stages)
    for run in trials:
        assert run.data.tags["midmask.sweep"] == "5eed"
        history = client.get_metric_history(run.info.run_id, "finetune/loss")
        assert sorted(point.step for point in history) == list(range(1, 2 * stages + 1))
        assert {"pretrain/loss", "finetune/loss"} <= set(run.data.metrics)
        contexts = {one.dataset.name: one.tags[0].value for one in run.inputs.dataset_inputs}
        assert contexts == {"there": "pretrain", "tiny": "train, eval"}
    first, second = sorted(trials, key=lambda run: run.info.run_name)
    assert len(first.outputs.model_outputs) == 1 + stages and not first.inputs.model_inputs
    assert len(second.inputs.model_inputs) == 1 + stages and not second.outputs.model_outputs


def tell_of_trial(board: TrialsObserver, trial: str, event: Any) -> None:
    """As the channel delivers it."""
    board(pickle.loads(pickle.dumps(TrialEvent(trial, event))))


def evaluation_of(context: TrialContext, point: dict[str, float]) -> Step:
    """The last measurement of a trial."""
    return final_evaluation(apply_changes(context.recipe, point), context.survey)


def test_trials_are_told_apart_by_how_they_ended(folder: Path, store: str) -> None:
    """One was measured, and has its collection and number of queries; one was pruned at a rung; one died."""
    with sweep(folder, store, "e4ded") as (tracker, parent, context, board):
        points = [{"pretrain.learning_rate": rate} for rate in (1e-4, 2e-4, 3e-4)]
        measured, pruned, died = map(fingerprint, points)
        for source, point in zip((measured, pruned, died), points, strict=True):
            tell_of_trial(board, source, TrialStarted(point))
        rung = RungMeasured(len(SPACE.shares), 1.0, 1.0, Measured("tiny", 12, {"nDCG@10": 0.5}, {}))
        tell_of_trial(board, measured, rung)
        tell_of_trial(board, pruned, EndedEarly("pruned"))
        tracker.find("none", step="none")  # waits until all is sent
        at_once = [run.status for run in read_runs(store) if run.parent_id == parent.id and "0.0002" in run.name]
        assert at_once == ["pruned"], "while others run"
        board.close([Outcome(points[0], {1: 0.5}, True, (0.5,)), Outcome(points[1], {}, False)])
    found = {run.name.split("-")[0]: run for run in read_runs(store) if run.parent_id == parent.id}
    statuses = {name: run.status for name, run in found.items()}
    assert statuses == {"trial 0.0001": "finished", "trial 0.0002": "pruned", "trial 0.0003": "failed"}
    (only,) = rows(found.values())
    corpus = plan(recipe_on(folder, "ance"), context.survey).corpus
    assert only.trial and only.place == ("tiny", "dev", corpus.fingerprint, 12)


def test_a_trial_that_was_killed_before_its_run_had_ended_is_tracked_by_the_next_job(folder: Path, store: str) -> None:
    """Its steps are in the store and its result in the study; MLflow has the beginning of its run."""
    point = {"pretrain.learning_rate": recipe_on(folder).pretrain.learning_rate}
    with pytest.raises(KeyboardInterrupt), sweep(folder, store, "dead", "in_batch") as (_, _, context, board):
        dev = evaluation_of(context, point)
        tell_of_trial(board, fingerprint(point), TrialStarted(point))
        training = next(step for step in dev.upstream() if step.name == "pretrain")
        tell_of_trial(board, fingerprint(point), Logged(training, 1, {"train/loss": 9.0}))
        raise KeyboardInterrupt
    value = Runner(context.storage, LOCAL).compute(dev).result["measures"]["nDCG@10"]
    for _ in range(2):  # the second time there is nothing to do
        with sweep(folder, store, "dead", "in_batch") as (_, _, _, board):
            board.complete([Outcome(point, {1: value}, True, (value,))])
    identity = fingerprint({"sweep": "dead", "trial": fingerprint(point)})
    (trial,) = [run for run in runs(store) if run.data.tags.get("midmask.fingerprint") == identity]
    assert trial.data.tags["midmask.status"] == "finished" and len(trial.inputs.model_inputs) == 2
    assert trial.data.tags["midmask.artifact"] == str(dev.place(context.storage)), "garbage collection keeps it"
    assert trial.data.metrics["tiny/dev/nDCG_at_10"] == pytest.approx(value)
    curve = MlflowClient(store).get_metric_history(trial.info.run_id, "pretrain/loss")
    assert [point.step for point in curve] == [1, training.optimiser_steps]
    assert "finetune/loss" not in trial.data.metrics, "another run has trained it"


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> list[TrackedSystem]:
    """One recipe with two seeds, which share all steps before the fine-tuning."""
    corpus = write_collection(tmp_path_factory.mktemp("observed") / "tiny")
    recipes = [short(RECIPES["none"](), corpus).seeded(seed) for seed in (0, 1)]
    dev, tags = [plan(recipe).evaluation(recipe.evaluation) for recipe in recipes], {"midmask.setting": "short"}
    return [TrackedSystem(f"none, seed {n}", recipes[n], {"dev": dev[n]}, main="dev", tags=tags) for n in (0, 1)]


def observe(systems: Sequence[TrackedSystem], folder: Path, uri: str) -> dict[str, str]:
    """Runs what is left of the systems in a job of their own; what could not be measured."""
    storage, targets = Place(str(folder / "store")), [system.evaluations["dev"] for system in systems]
    with Tracker(uri, folder, QUICK) as tracker, tracker.run("job", tags={}, params={}) as parent:
        graph = Graph.left_in(storage, targets)
        job = TrackedJob("observed", tracker, parent, storage, ALONE)
        job.progress.plan(graph.unfinished.values())
        observer = GraphObserver(job, systems, has_run=lambda kind: kind.trains, keep_going=True)
        for step in targets:
            if step.is_finished(storage):
                observer(Ended(step, load(step.place(storage)), cached=True))
        runner = Runner(storage, LOCAL, observer)
        while ready := graph.ready():
            try:
                runner.compute_next(graph, ready[0])
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
    ended = sorted((run.tags["midmask.step"], run.status) for run in children(uri))
    assert ended == [("evaluate", "finished"), ("finetune", "failed"), ("finetune", "finished")]
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
    measured = sorted((run.name, run.status) for run in later if run.tags["midmask.step"] == "evaluate")
    assert measured == [("none, seed 0 (cached)", "cached"), ("none, seed 1", "finished")]
    assert "steps · 2 of 2 systems measured" in caplog.text


def run_whole(uri: str, home: Path, recipe: Recipe) -> None:
    """Computes what is missing, after a report of every step that is finished."""
    target, storage = plan(recipe).stages[-1], Place(str(home / "store"))
    with Tracker(uri, home, QUICK) as tracker, tracker.run(JOB, tags=base_tags(JOB, recipe), params={}) as parent:
        job = TrackedJob(JOB, tracker, parent, storage, ALONE)
        observer = GraphObserver(job, [TrackedSystem(recipe.name, recipe)])
        report_finished(target.upstream(), storage, observer)
        run_tracked_here(job, recipe, [target])


def curves(uri: str) -> dict[str, list[tuple[int, float]]]:
    """Key -> history, of what trainings report."""
    trainings = [row for row in read_runs(uri) if row.tags.get("midmask.step") in ("pretrain", "finetune")]
    told = [row for row in trainings if f"{row.tags['midmask.step']}/loss" in row.metrics]
    keys = [(row.run_id, key) for row in told for key in row.metrics if not key.startswith("health/")]
    return {key: history(uri, run_id, key) for run_id, key in keys}


def test_the_same_command_logs_from_the_store_what_was_computed_once(uri, tmp_path, empty_store) -> None:
    recipe = override(recipes(write_collection(tmp_path / "tiny"))[0], {"pretrain.log_every": 3, "pretrain.steps": 7})
    run_whole(uri, tmp_path, recipe)
    computed = curves(uri)
    assert {"pretrain/loss", "finetune/loss", "pretrain/tokens_per_second"} <= computed.keys()
    assert [step for step, _ in computed["pretrain/loss"]] == [3, 6, 7]
    shutil.copy(empty_store, tmp_path / "another.db")
    another = f"sqlite:///{tmp_path}/another.db"
    run_whole(another, tmp_path, recipe)
    assert curves(another) == computed

    (training,) = [row for row in read_runs(another) if row.tags.get("midmask.step") == "pretrain"]
    client = MlflowClient(another)
    client.set_tag(training.run_id, "midmask.status", "killed")
    run_whole(another, tmp_path, recipe)
    assert curves(another) == computed
    assert client.get_run(training.run_id).data.tags["midmask.status"] == "finished"
