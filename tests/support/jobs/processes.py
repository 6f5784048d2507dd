"""Jobs as processes: started in a folder of their own, waited for, killed, and what they have left behind; a cluster of
its own for the length of a block.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil

from tests.support.jobs.running import JOBS
from tests.support.waiting import wait_until


def interruptible() -> None:
    """Run first in a process: a shell's background jobs, and what they start, ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(home: Path, job: str, *arguments: str) -> subprocess.Popen[str]:
    """A job in a session of its own, as from a terminal: an interrupt goes to it and to all that it started."""
    environment = {**os.environ, "MIDMASK_HOME": str(home)}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(JOBS / f"{job}.py"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, start_new_session=True, preexec_fn=interruptible)


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Ends a process and its descendants at once, and reads what is left of its output."""
    for pid in [*(child.pid for child in psutil.Process(process.pid).children(recursive=True)), process.pid]:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def has_row(path: Path, query: str, *values: object) -> bool:
    """Whether a query of a SQLite file finds something. Looked up without MLflow or Optuna, which would make tables in
    a file whose tables a job is just making.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            return store.execute(query, values).fetchone() is not None
    except sqlite3.OperationalError:
        return False


def finished_points(home: Path) -> list[dict[str, Any]]:
    """Parameters of every finished trial; empty before there is one."""
    path = home / "store" / "optuna.db"
    if not has_row(path, "SELECT 1 FROM trials WHERE state = 'COMPLETE'"):
        return []
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    names = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=names[0], storage=storage).trials if names else []
    return [trial.params for trial in trials if trial.state.name == "COMPLETE"]


def killed_after_one_trial(home: Path, job: str, *arguments: str) -> list[dict[str, Any]]:
    """Starts a sweep and ends it with -9, and all that it started, once a trial is done; the points done by then."""
    doomed = start(home, job, *arguments)
    wait_until(lambda: finished_points(home), doomed)
    kill_tree(doomed)
    return finished_points(home)


DEMO = [sys.executable, str(JOBS.parent / "deploy" / "demo.py")]
WAITS = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"


@contextlib.contextmanager
def head(**resources: int) -> Iterator[dict[str, str]]:
    """By the script of `make demo`. Yields the environment of commands that should find the cluster.

    Args:
        resources: of its only node, such as CPU=1; others are as Ray counts them.
    """
    override = json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES", "{}"))
    environment = {**os.environ, "RAY_OVERRIDE_RESOURCES": json.dumps({**override, **resources})}
    command, pipe = [*DEMO, sys.executable, "-c", WAITS], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait()
