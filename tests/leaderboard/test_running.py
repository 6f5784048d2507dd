"""Jobs that run: told from killed ones by their process or their last sign of life; how far their trainings are."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from midmask.leaderboard.running import LATELY, SILENT_S, BestSoFar, ended_early, running_jobs, step_state
from midmask.processes import start_of
from midmask.tracking import TrackedRow, metric_key
from midmask.tracking.histories import MetricPoint
from midmask.tracking.lease import EXPIRES_S, LEASE, OWNER, lease_tags

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
ELSEWHERE = "another0host:17:4711"
HERE = lease_tags()[OWNER]


def run(
    name: str,
    status: str = "running",
    parent: str | None = None,
    *,
    owner: str = "",
    silent: float = 0.0,
    step: str = "",
    params: dict[str, str] | None = None,
    metrics: dict[str, float] | None = None,
) -> TrackedRow:
    """A tracked run, begun an hour ago; `silent`: seconds since its last sign of life."""
    tags = {OWNER: owner, LEASE: f"{NOW.timestamp() - silent:.0f}"} if owner else {}
    ended = None if status == "running" else NOW - timedelta(minutes=30)
    tags |= {"midmask.step": step} if step else {}
    began = NOW - timedelta(hours=1)
    return TrackedRow(name, "1", name, parent, status, began, ended, tags, params or {}, metrics or {})


def dead_owner() -> str:
    host, pid, _ = HERE.split(":")
    assert start_of(os.getpid())
    return f"{host}:{pid}:1"  # this process id, of a process that started at another time


@pytest.mark.parametrize(
    ("owner", "silent", "life"),
    [
        (HERE, 5, "running"),
        (HERE, SILENT_S + 20, "silent"),
        (dead_owner(), 5, "killed"),
        (ELSEWHERE, 5, "running"),
        (ELSEWHERE, SILENT_S + 20, "silent"),
        (ELSEWHERE, EXPIRES_S + 20, "killed"),
        ("", 5, "unknown"),
    ],
    ids=["here", "silent", "another", "elsewhere", "silent elsewhere", "expired", "no owner"],
)
def test_life_is_told_by_the_process_here_and_by_the_lease_elsewhere(owner: str, silent: float, life: str) -> None:
    (job,) = running_jobs([run("job", owner=owner, silent=silent)], NOW)
    assert job.life == life
    if owner:
        assert job.seen is not None and (NOW - job.seen).total_seconds() == pytest.approx(silent, abs=1)


def test_a_nested_run_gives_a_sign_of_life_for_its_job() -> None:
    runs = [run("job", owner=ELSEWHERE, silent=500), run("pretrain", parent="job", owner=ELSEWHERE, silent=5)]
    (job,) = running_jobs(runs, NOW)
    assert job.life == "running" and [one.name for one in job.current] == ["pretrain"]


def test_jobs_have_their_nested_runs_and_no_others() -> None:
    value = {metric_key("pydocs", "dev", "nDCG@10"): 0.5, metric_key("pydocs", "test", "nDCG@10"): 0.9}
    better = {metric_key("pydocs", "dev", "nDCG@10"): 0.6}
    runs = [
        run("alone", owner=HERE),
        run("sweep", owner=HERE),
        run("trial 3", parent="sweep", owner=HERE),
        run("trial 2", "finished", "sweep", metrics=better),
        run("trial 1", "finished", "sweep", metrics=value),
        run("tokens", "cached", "sweep"),
        run("other", "finished", "elsewhere", metrics={key: 0.99 for key in better}),
        run("left behind", parent="gone", owner=HERE),
    ]
    alone, sweep, left = running_jobs(runs, NOW)
    assert (alone.run.name, alone.current, alone.best) == ("alone", [], None)
    assert [one.name for one in sweep.current] == ["trial 3"] and (sweep.finished, sweep.cached) == (2, 1)
    assert sweep.best == BestSoFar("nDCG@10 on pydocs dev", 0.6, "trial 2")
    assert left.run.name == "left behind", "a run whose parent is no running job stands for itself"


def test_what_ended_early_is_listed_for_a_day() -> None:
    lost = run("lost", "killed")
    old = replace(lost, run_id="old", ended=NOW - LATELY)
    newer = replace(lost, run_id="newer", status="failed", ended=NOW)
    assert [one.run_id for one in ended_early([lost, old, newer, run("done", "finished")], NOW)] == ["newer", "lost"]


def test_time_left_is_that_of_the_steps_less_what_passed_since() -> None:
    params = {"stages.0.train.steps": "300", "stages.1.train.steps": "300", "pretrain.steps": "800"}
    own = run("finetune-a", owner=HERE, params=params, step="finetune")
    at = NOW.timestamp() - 8
    last = {"finetune/loss": MetricPoint(120, 0.25, at), "finetune/step_seconds": MetricPoint(120, 2.0, at)}
    state = step_state(own, last, NOW)
    assert state is not None and (state.at, state.of, state.loss) == (120, 300, 0.25)
    assert state.left == pytest.approx(180 * 2.0 - 8)
    assert state.told == NOW - timedelta(seconds=8)
    nothing = step_state(own, {}, NOW)
    assert nothing is not None and (nothing.at, nothing.of, nothing.told, nothing.left) == (0, 300, None, None)
    unlike = run("finetune-b", params={**params, "stages.1.train.steps": "50"}, step="finetune")
    state = step_state(unlike, last, NOW)
    assert state is not None and state.of is None and state.left is None, "which stage it is, it does not tell"
    assert step_state(run("encode", step="encode"), {}, NOW) is None


def test_a_trial_is_as_far_as_its_newest_training() -> None:
    own = run("trial 0.3", owner=HERE, params={"pretrain.steps": "300", "stages.0.train.steps": "100"}, step="trial")
    at = NOW.timestamp()
    first = {"pretrain/loss": MetricPoint(75, 8.5, at - 60), "pretrain/step_seconds": MetricPoint(75, 0.1, at - 60)}
    state = step_state(own, first, NOW)
    assert state is not None and (state.training, state.at, state.of) == ("pretrain", 75, 300)
    state = step_state(own, {**first, "finetune/loss": MetricPoint(20, 1.5, at - 5)}, NOW)
    assert state is not None and (state.training, state.at, state.of, state.left) == ("finetune", 20, 100, None)
    assert step_state(own, first, NOW).left is None, "more follows after it"  # type: ignore[union-attr]
