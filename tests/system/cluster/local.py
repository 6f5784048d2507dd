"""A job on a local Ray of its own, of which processes are killed: the driver, the actor of the channel, a worker, a
trial, or all.

This process adopts the orphans among its descendants (a subreaper, as `man 2 prctl` calls it), so that nothing that a
job has started can leave its tree.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from midmask.store.artifact import RECORD
from tests.system.cluster import compare
from tests.system.cluster.cycle import ENDS_WITHIN_S, Blow, Job
from tests.system.cluster.work import Work, environment

CHANNEL = re.compile(r"ray::Mailbox")
TRIAL = re.compile(r"ray::(ImplicitFunc|trainable|bundle)")
AGENT = re.compile(r"ray::(RuntimeEnvAgent|DashboardAgent|DashboardHead|LogMonitor|IDLE)")
"""Daemons of Ray's with a worker's kind of title (a raylet ends with its agents), and workers that run nothing."""

RAY_IS_UP = "started a local one"
"""Words of the log line after which steps begin."""

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent dies."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def alive(pid: int | None = None) -> list[psutil.Process]:
    """Every descendant of a process, by default of this one, that has not ended."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def title(process: psutil.Process) -> str:
    """The command line, which a Ray worker sets to `ray::` and what it runs; empty if the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kind(process: psutil.Process) -> str:
    """channel, trial, worker or other."""
    text = title(process)
    if not text.startswith("ray::") or AGENT.match(text):
        return "other"
    return "channel" if CHANNEL.match(text) else "trial" if TRIAL.match(text) else "worker"


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


class Local:
    """A site below the folder `home`, one start's log for each.

    Args:
        known: what an undisturbed run leaves in its temporary folder: libraries' caches.
    """

    lethal = ("driver", "group")
    nodes: tuple[str, ...] = ()
    outage = 0.0

    def __init__(self, work: Work, corpus: str, home: Path, known: set[str] | None = None) -> None:
        trial = ("trial", "trial") if work.job == "sweep" else ("worker",)
        self.kinds = (*self.lethal, "channel", "worker", "worker", *trial)
        self.work, self.corpus, self.home, self.known = work, corpus, home, known
        self.troubles: list[str] = []
        self._before: dict[str, tuple[int, int, int]] = {}
        self._log = home / "start-1.log"

    def start(self, number: int) -> Job:
        variables = environment(self.home)
        self._log = self.home / f"start-{number}.log"
        command = self.work.command(self.corpus, self.work.here)
        with open(self._log, "wb") as log:
            return subprocess.Popen(command, env=variables, cwd=self.home, stdout=log, stderr=subprocess.STDOUT)

    def is_up(self) -> bool:
        return RAY_IS_UP in self._log.read_text(errors="replace")

    def marks(self) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError):  # a folder is deleted while it is looked into
                return len(list((self.home / "store").glob(f"*/*/{RECORD}")))

    def strike(self, blow: Blow, job: Job) -> Callable[[], None] | None:
        driver, below = psutil.Process(job.pid), alive(job.pid)
        own = sorted((process for process in below if kind(process) == blow.kind), key=lambda process: process.pid)
        found = {"group": [driver, *below], "driver": [driver]}.get(blow.kind) or own
        if not found:
            return None
        kill(found if blow.kind == "group" else [found[int(blow.pick * len(found))]])
        return lambda: None

    def settle(self, job: Job, killed: str) -> None:
        with contextlib.suppress(ChildProcessError):  # the exit codes of adopted orphans
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        now = compare.identities(self.home)
        self.troubles += compare.rewritten(self._before, now)
        self._before = now

    def give_up(self, job: Job) -> None:
        kill(alive())
        job.wait()

    def finish(self) -> None:
        until = time.monotonic() + ENDS_WITHIN_S
        while (orphans := alive()) and time.monotonic() < until:
            time.sleep(0.1)
        left = [f"process {title(one)[:60].strip()}" for one in orphans]
        kill(orphans)
        if self.known is not None:
            left += [str(path) for path in (self.home / "tmp").iterdir() if path.name not in self.known]
        self.troubles += [f"left behind {one}" for one in left]

    def unlike(self, reference: Path) -> Iterator[str]:
        """What differs from an undisturbed run, and what is left of the disturbances."""
        yield from compare.differences(compare.contents(reference), compare.contents(self.home))
        yield from compare.differences(compare.metrics(reference), compare.metrics(self.home))
        left = compare.unfinished(self.home) - compare.unfinished(reference)
        yield from (f"left behind in the store: {name}" for name in left)
        yield from compare.tracked(f"sqlite:///{self.home}/mlflow.db")
