"""Where a call of the Python API computes and keeps its steps, and what it prints while it does."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from midmask.app.exits import mistake_in
from midmask.app.job import resolve_storage
from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Maker, Runner, Silent
from midmask.experiment.step import Step
from midmask.progress import StepProgress, clock
from midmask.redaction import has_credentials, redacted

STORE = "midmask-store"
"""The store of a call without `storage` where MIDMASK_STORAGE is not set: a folder of the working directory."""


def open_store(storage: str | Path | None) -> Place:
    """The store: as given, else MIDMASK_STORAGE, else `STORE`.

    Raises:
        UserError: for a URI that contains credentials.
    """
    given = str(storage) if storage is not None else os.environ.get("MIDMASK_STORAGE") or STORE
    if has_credentials(given):
        raise UserError(
            f"storage = {redacted(given)!r} contains credentials, which records would show; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or what your store reads) instead"
        )
    return Place(resolve_storage(given, Path.cwd()))


def runner_in(storage: Place, *, ray: bool, progress: bool) -> Runner:
    """Runs steps in this process, or on the Ray cluster that RAY_ADDRESS names (else a local Ray)."""
    makers: Mapping[str, Maker] = LOCAL
    if ray:
        from midmask.backend.connection import connect
        from midmask.backend.makers import cluster_makers
        from midmask.backend.resources import whole

        connect()
        makers = cluster_makers(whole(None).workers)
    return Runner(storage, makers, ProgressLines() if progress else Silent())


def compute(runner: Runner, step: Step) -> Artifact:
    """The step's artifact. A mistake that was raised on another node is raised here as its one line."""
    try:
        return runner.run(step)
    except Exception as error:
        mistake = mistake_in(error)
        if mistake is None or isinstance(error, UserError):
            raise
        raise UserError(mistake) from None


class ProgressLines(Silent):
    """Prints to standard error what is computed: a line when a step begins and ends, and now and then in between."""

    def __init__(self) -> None:
        self._lines: dict[str, StepProgress] = {}
        self._began: dict[str, float] = {}

    def begin(self, step: Step) -> None:
        self._lines[step.fingerprint] = StepProgress(step.name, show_line)
        self._began[step.fingerprint] = time.monotonic()
        show_line(f"{step.name} …")

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        self._lines[step.fingerprint].update(at, step.optimiser_steps, values.get("train/loss"))

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        if not cached:
            show_line(f"{step.name}: done in {clock(time.monotonic() - self._began[step.fingerprint])}")


def show_line(line: str) -> None:
    """Prints a line of progress to standard error."""
    print(line, file=sys.stderr, flush=True)


def keep_quiet(line: str) -> None:
    """Takes a line of progress and prints nothing."""
