"""Stores in each state that a user meets: nothing yet, one job, jobs that run, were killed or failed, many systems."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import ViewType

from midmask.tracking import LOG, PROGRESS, TrackedRun, Tracker
from midmask.tracking.lease import OWNER, lease_tags
from tests.support.choice.searched import write_verdict
from tests.support.dashboards import compared, many, swept, tracked
from tests.support.dashboards.tracked import QUICK

RUNS = 5000
"""Of the state "many"."""

Filled = Callable[[Path, Path], AbstractContextManager[list[str]]]
"""(folder with an empty store, folder with a worked one) -> the flags of the pages; the context is the state's life."""


@contextmanager
def empty(home: Path, worked: Path) -> Iterator[list[str]]:
    yield _flags(home)


@contextmanager
def one_job(home: Path, worked: Path) -> Iterator[list[str]]:
    """One recipe, from its passages to its evaluation; the other jobs of the store are deleted."""
    shutil.copy(worked / "mlflow.db", home)
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiments = [one.experiment_id for one in client.search_experiments(ViewType.ALL)]
    for run in client.search_runs(experiments, "tags.`midmask.recipe` != 'retromae'"):
        client.delete_run(run.info.run_id)
    yield _flags(home)


@contextmanager
def unfinished(home: Path, worked: Path) -> Iterator[list[str]]:
    """A job that runs, one whose process was killed, and one that failed; nothing was evaluated yet."""
    log = home / "job.log"
    log.write_text("".join(f"line {number} of the log\n" for number in range(100)))
    with Tracker(f"sqlite:///{home}/mlflow.db", home, QUICK) as tracker:
        running, killed, failed = (_job(tracker, name, log) for name in ("alive", "killed", "failed"))
        killed.tag({OWNER: _ended_owner()})
        failed.tag({"midmask.reason": "ValueError: the loss is not finite at step 250"})
        failed.finish("failed")
        tracker.find("none", step="none")  # waits until all is sent
        yield _flags(home)
        running.finish("killed")


def _job(tracker: Tracker, name: str, log: Path) -> TrackedRun:
    """A job's run with a training nested in it that is a quarter through."""
    own = {"midmask.step": "job", "midmask.job": "run_recipe", LOG: str(log), PROGRESS: "phase 2 of 3: trainings"}
    job = tracker.run(f"run_recipe-{name}", tags=own, params={})
    own = tracked.tags("pretrain", "retromae", f"p-{name}")
    training = tracker.run(f"pretrain-{name}", tags=own, params={"pretrain.steps": 1000}, parent=job.id)
    for step in range(0, 251, 25):
        training.log({"pretrain/loss": 9 - step / 100, "pretrain/step_seconds": 6.0}, step)
    if name == "failed":
        training.finish("failed")
    return job


def _ended_owner() -> str:
    """The owner's tag of a process of this machine that has ended: it began in 1970."""
    return lease_tags()[OWNER].rpartition(":")[0] + ":1"


@contextmanager
def several(home: Path, worked: Path) -> Iterator[list[str]]:
    """Recipes with artifacts, a benchmark, two sweeps, what runs and what failed, and a verdict."""
    shutil.copy(worked / "mlflow.db", home)
    uri = f"sqlite:///{home}/mlflow.db"
    tracked.everything(uri, home)
    compared.store(uri, home)
    with Tracker(uri, home, QUICK) as tracker:
        swept.track(tracker)
    yield [*_flags(home), "--verdict", str(write_verdict(home / "verdict", extra=30))]


@contextmanager
def thousands(home: Path, worked: Path) -> Iterator[list[str]]:
    many.fill(f"sqlite:///{home}/mlflow.db", home, RUNS)
    yield _flags(home)


def _flags(home: Path) -> list[str]:
    return ["--tracking-uri", f"sqlite:///{home}/mlflow.db"]


STATES: Mapping[str, Filled] = {
    "empty": empty,
    "one job": one_job,
    "unfinished": unfinished,
    "several": several,
    "thousands": thousands,
}
