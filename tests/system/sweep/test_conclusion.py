"""Whole sweeps: in one process, without Ray, on real artifacts; on a Ray with GPUs by name, which find the same; and a
job on a local Ray.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from mlflow import MlflowClient

from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.app.tracked_job import TrackedJob
from midmask.backend.cluster import Resources
from midmask.experiment.events import Begun
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.store.place import Place
from midmask.sweep.conclusion import Trials, conclude, full_report, systems_of
from midmask.sweep.observer import TrialsObserver
from midmask.sweep.plan import Sweep, expected_trials, sweep_for
from midmask.sweep.run import entrants
from midmask.sweep.space import Space
from midmask.sweep.study import open_study, outcomes, remaining, suggest
from midmask.sweep.trial import RungMeasured, TrialContext, TrialEvent, run_trial
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from tests.support.benchmark.tiny import ONE_STAGE, TWO_TRIALS, write_collection
from tests.support.disks import opens
from tests.support.jobs.processes import head
from tests.support.jobs.running import JOBS, run_job

SHORT = {"settings": {**ONE_STAGE, "stages.0.train.steps": 3}, "baselines": ["none"], "seeds": [0, 1]}
DEPTH = {
    "name": "depth", "recipe": "retromae", "rungs": {"shares": [0.5], "steps": 2},
    "parameters": {
        "objective.decoding": {"values": ["enhanced", "basic"]},
        "objective.decoder_layers": {"values": [1, 2], "when": {"objective.decoding": "basic"}},
    },
}  # fmt: skip
WORDS = {"representation.lexical": "logits"}
SIZE = {
    "name": "size", "recipe": "dupmae", "protocol": "in_batch",
    "cost": "bytes_per_passage",
    "parameters": {
        "representation.lexical": {"values": ["logits", None]},
        "representation.passage_terms": {"values": [16], "when": WORDS},
        "evaluation.passage_terms": {"values": [2, 4, 16], "when": WORDS, "label": "N"},
        "representation.width": {"values": [8, 16], "when": WORDS},
    },
    "marks": {
        "CLS": {"representation.lexical": None}, "8+4": {"representation.width": 8, "evaluation.passage_terms": 4},
    },
}  # fmt: skip


class Here:
    def __init__(self) -> None:
        self.told: list[TrialEvent] = []
        self.push = self.told.append


def swept(folder: Path, fields: dict[str, Any]) -> tuple[Sweep, Trials, dict[str, Any], str, Here]:
    """A sweep, its trials, its result as data, its report, and what its trials have told."""
    given = ["--corpus", write_collection(folder / "words"), "--storage", str(folder / "store")]
    options = resolve(parse([*given, "--tracking-uri", f"sqlite:///{folder}/mlflow.db"], None))
    one, storage, heard = sweep_for(options, Space.model_validate({**fields, **SHORT})), Place(options.storage), Here()
    space, recipe = one.space, one.recipe
    study = open_study(optuna.storages.InMemoryStorage(), "s", space)
    for point in remaining(study, space).points:
        study.enqueue_trial(point)
        trial, told = study.ask(), []
        use = Resources(cpus=1, gpus=0, side_by_side=1)
        context = TrialContext(recipe, one.survey, space, storage, heard, use)  # type: ignore[arg-type]
        run_trial(context, suggest(space, trial), told.append)
        for row in told[:-1]:
            trial.report(row["objective0"], row["rung"])
        study.tell(trial, [told[-1][f"objective{number}"] for number in range(len(space.objectives))])
    trials = Trials(one, outcomes(study, space))
    runner = Runner(storage, LOCAL)
    chosen = entrants(trials)
    for step in (step for system in (*(each.evaluations for each in chosen), one.bm25) for step in system.values()):
        runner.compute(step)
    compared = systems_of(chosen, one.bm25, storage)
    result = conclude(trials, compared)
    return one, trials, result.model_dump(mode="json"), full_report(result, compared), heard


def records(storage: str | Path, step: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in Path(storage, step).glob("*/record.json")]


def test_a_conditional_space(tmp_path: Path) -> None:
    one, trials, told, out, heard = swept(tmp_path, DEPTH)
    depths = [point["parameters"].get("objective.decoder_layers") for point in told["points"]]
    assert depths == [None, 1, 2]
    highest = max(point["values"]["nDCG@10"] for point in told["points"])
    for point in told["points"]:
        assert len(point["probes"]) == 1 and point["complete"]
        assert (point["to_best"] is None) == (point["label"] == told["best"])
        assert point["front"] == (point["values"]["nDCG@10"] == highest), "equals of the best are on the front too"
    spread = np.sqrt(np.mean([np.var(system["dev"], ddof=1) for system in told["systems"]]))
    assert told["noise_floor"]["seed_spread"] == pytest.approx(spread), "that of all systems"
    assert told["noise_floor"]["seed_degrees"] == 2
    events = [told.event for told in heard.told]
    assert [event.number for event in events if isinstance(event, RungMeasured)] == [1, 2] * 3
    begun = {event.step.fingerprint for event in events if isinstance(event, Begun)}
    assert begun > {step.fingerprint for target in expected_trials(one) for step in target.upstream()}, "none is pruned"
    assert out.startswith(told["sentences"][0]) and out.count(told["sentences"][0]) == 1
    assert "too few queries" in out and "12 queries" in out and "2 fine-tuning seeds" in out
    assert [system["label"] for system in told["systems"]][1:] == ["none"] and len(told["systems"][0]["test"]) == 2
    check_lost_reports(one, trials, heard, tmp_path)


def check_lost_reports(one: Sweep, found: Trials, heard: Here, folder: Path) -> None:
    """Trials whose measurements did not reach the driver are tracked with those of the study and the store."""
    uri, storage, use = f"sqlite:///{folder}/mlflow.db", Place(one.options.storage), Resources(1, 0, side_by_side=1)
    with Tracker(uri, folder) as tracker, tracker.run("sweep", tags={}, params={}) as parent:
        context = TrialContext(one.recipe, one.survey, one.space, storage, None, use)  # type: ignore[arg-type]
        job = TrackedJob("sweep", tracker, parent, storage, use)
        observer = TrialsObserver(job, context, sweep=one.fingerprint)
        for told in heard.told:
            if not isinstance(told.event, RungMeasured):
                observer(told)
        observer.close(found.outcomes)
    trials = [run for run in read_runs(uri) if run.parent_id]
    assert {run.status for run in trials} == {"finished"}
    measured = sorted(run.metrics["words/dev/nDCG_at_10"] for run in trials)
    assert measured == sorted(outcome.last for outcome in found.outcomes)


def test_words_are_cut_without_training_and_weighed_against_bytes(tmp_path: Path) -> None:
    one, _, told, out, _ = swept(tmp_path, SIZE)
    assert len(records(one.options.storage, "pretrain")) == 1, "one middle training for all"
    first = [record for record in records(one.options.storage, "finetune") if record["config"]["train"]["seed"] == 0]
    assert len(first) == 3 + 1, "one fine-tuning a width, [CLS] alone, the baseline; none for N"

    assert len(told["points"]) == 7
    values = [(point["values"]["nDCG@10"], point["values"]["bytes_per_passage"]) for point in told["points"]]
    beaten = [any(a >= x and b <= y and (a, b) != (x, y) for a, b in values) for x, y in values]
    assert [point["front"] for point in told["points"]] == [not one for one in beaten]
    for point in told["points"]:
        words, size = point["parameters"].get("evaluation.passage_terms"), point["costs"]["bytes_per_passage"]
        if point["parameters"].get("representation.width") == 8:
            # 32 bits and an index a word, of a vocabulary of 300 at most; two headers
            assert 4 * 8 + words * 4 < size < 4 * 8 + words * (32 + 9) / 8 + (128 + 64) / 48 + 1
        assert point["costs"]["search_ms_per_query"] > 0
    assert {"CLS", "8+4", "none"} <= {system["label"] for system in told["systems"]}
    assert "front of nDCG@10 and bytes_per_passage" in out and "probe 1" not in out


FLAGS = ["--workers", "1", "--workers-per-training", "1"]
"""One trial after another, so that the same one is behind."""


def sweep_of(home: Path) -> list[dict[str, Any]]:
    """The points of the sweep's result, without what they cost."""
    (path,) = (home / "store" / "sweep").glob("*/sweep.json")
    points = json.loads(path.read_text())["points"]
    return [{name: value for name, value in point.items() if name != "costs"} for point in points]


def executors(home: Path) -> dict[str, set[str]]:
    """Step of a run -> where its trainings ran."""
    ran: dict[str, set[str]] = {}
    for run in read_runs(f"sqlite:///{home}/mlflow.db"):
        ran.setdefault(run.tags["midmask.step"], set()).add(run.tags["midmask.executor"])
    return ran


@pytest.mark.timeout(900)
def test_trials_on_gpus_are_groups_and_equal_to_those_in_a_process(ray_local, tmp_path, monkeypatch) -> None:
    project, corpus = tmp_path / "project", write_collection(tmp_path / "words")
    shutil.copytree(JOBS, project / "jobs")
    (project / "pyproject.toml").touch()
    (project / "search_spaces").mkdir()
    (project / "search_spaces" / "mask_ratio.yaml").write_text(yaml.safe_dump(TWO_TRIALS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", json.dumps({"GPU": 2}))
    submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--", "jobs/sweep_mask_ratio.py"]
    with contextlib.chdir(project), head(CPU=2) as environment:
        done = subprocess.run([*submit, "--corpus", corpus, *FLAGS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert executors(project)["trial"] == {"ray train"}
    tags = [run.tags for run in read_runs(f"sqlite:///{project}/mlflow.db")]
    assert sorted(own["midmask.status"] for own in tags if own["midmask.step"] == "trial") == ["finished", "pruned"]

    space = project / "search_spaces" / "mask_ratio.yaml"
    (tmp_path / "one").mkdir()
    inside = run_job("sweep", "--space", str(space), "--corpus", corpus, *FLAGS, home=tmp_path / "one")
    assert inside.code == 0, inside.err[-2000:]
    assert executors(tmp_path / "one")["trial"] == {"process"}
    assert sweep_of(project) == sweep_of(tmp_path / "one")


def test_a_sweep_of_two_trials_ends_the_one_that_is_behind(ray_local: None, tmp_path: Path) -> None:
    space, store, collection = tmp_path / "two.yaml", tmp_path / "store", write_collection(tmp_path / "words")
    space.write_text(yaml.safe_dump(TWO_TRIALS))
    with opens(tmp_path / "words", tmp_path / "words" / "qrels") as counts:
        done = run_job("sweep", "--space", str(space), "--corpus", collection, "--workers", "1", home=tmp_path)
    assert done.code == 0, done.err[-2000:]
    assert max(counts.values()) <= 10, "twice whole, by the plan and by prepare; the others look at the first rows"

    assert re.search(rf"\n\nmodel: {store}/finetune/\w+/model\n", done.out)
    assert re.search(r"\npictures: .* leaderboard\nnext: \S+ search .*/model --corpus=beir:.*\n$", done.out), done.out
    (log,) = (store / "logs").iterdir()
    assert "progress.details" in log.read_text() and "progress.details" not in done.err, "details are in the file alone"

    storage = optuna.storages.RDBStorage(f"sqlite:///{store}/optuna.db")
    (name,) = optuna.get_all_study_names(storage)
    whole, behind = optuna.load_study(study_name=name, storage=storage).trials
    assert [whole.params, behind.params] == [{"tokens.query_length": 16}, {"tokens.query_length": 4}]
    assert behind.values[0] < whole.intermediate_values[1], "four tokens of a query tell less than all"
    assert sorted(record["result"]["steps"] for record in records(store, "pretrain")) == [2, 2, 4]
    (summary,) = (json.loads(path.read_text()) for path in (store / "sweep").glob("*/sweep.json"))
    best, other = summary["points"]
    assert best["complete"] and not other["complete"] and other["probes"] == behind.values and not other["values"]
    assert best["values"] == {"nDCG@10": pytest.approx(whole.values[0])}
    evaluated = {record["result"]["measures"]["nDCG@10"] for record in records(store, "evaluate")}
    assert {*behind.values, *whole.values, *whole.intermediate_values.values()} <= evaluated

    runs = read_runs(f"sqlite:///{tmp_path}/mlflow.db")
    assert all(run.ended is not None for run in runs)
    (parent,) = (run for run in runs if run.tags["midmask.step"] == "sweep")
    assert parent.tags["midmask.status"] == "finished"
    (read,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(parent.run_id).inputs.dataset_inputs
    assert json.loads(read.dataset.profile)["passages"] == 48, "also where the sweep itself prepares its collection"
    trials = [run for run in runs if run.tags["midmask.step"] == "trial"]
    assert sorted(run.tags["midmask.status"] for run in trials) == ["finished", "pruned"]
