"""One start of a scenario's job: its process, what it has finished so far, when a kill is due."""

import contextlib
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from midmask.artifact import RECORD
from tests.chaos.scenarios import Scenario, environment

RAY_IS_UP = "started a local one"
"""Words of the log line after which steps begin."""


@dataclass(frozen=True)
class Moment:
    """A point of a run that does not depend on the machine's speed: `after` seconds after `done` finished artifacts."""

    done: int
    after: float


@dataclass(frozen=True)
class Timeline:
    """When an undisturbed run finished each artifact, and when it ended, in seconds from its start."""

    finished: Sequence[float]
    total: float

    def moment(self, at: float) -> Moment:
        before = [0.0, *(second for second in self.finished if second <= at)]
        return Moment(len(before) - 1, at - before[-1])


class Job:
    """A running job. Its output goes to a file in `home`."""

    def __init__(self, scenario: Scenario, collection: str, home: Path, number: int) -> None:
        self.home = home
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        self.log = home / f"start-{number:02}.log"
        with open(self.log, "wb") as log:
            command = scenario.command(collection)
            self.process = subprocess.Popen(
                command, env=environment(home), cwd=home, stdout=log, stderr=subprocess.STDOUT
            )
        self.began = time.monotonic()
        self._up: float | None = None
        self._done, self._since = 0, self.began

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def finished(self) -> list[Path]:
        """Records of the artifacts that are finished."""
        while True:
            with contextlib.suppress(FileNotFoundError):  # a folder is deleted while it is looked into
                return list((self.home / "store").glob(f"*/*/{RECORD}"))

    def is_due(self, moment: Moment) -> bool:
        """Whether the moment has come: also if more is finished already than it waits for."""
        now, done = time.monotonic(), len(self.finished())
        if done != self._done:
            self._done, self._since = done, now
        if self._up is None and RAY_IS_UP in self.log.read_text(errors="replace"):
            self._up = now
        if moment.done == 0:
            return done > 0 or now - self.began >= moment.after
        if self._up is None:
            return False
        return done > moment.done or (done == moment.done and now - max(self._since, self._up) >= moment.after)

    def last_lines(self, count: int = 1) -> str:
        return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-count:])
