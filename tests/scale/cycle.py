"""One run of a job on a cluster that loses what it is told to, until the job is done."""

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.scale.bed import Cluster
from tests.scale.losses import LETHAL, Loss, strike
from tests.scale.watch import Watch
from tests.scale.workload import ROOT, Task, flags_there

STARTS = 12
"""A job that is not done after so many starts will not be."""

RUNS = """
import sys
from tests.chaos.compare import tracked
print("".join(f"{line}\\n" for line in tracked(sys.argv[1], int(sys.argv[2]))), end="")
"""


@dataclass
class Cycle:
    """limit: seconds of one start after which it counts as hung. lost: the losses that were carried out; others came
    too late, since the job had ended. troubles: a line for everything that went wrong. seconds: of the job.
    """

    there: Cluster
    task: Task
    corpus: str
    limit: float
    watch: Watch = field(default_factory=Watch)
    lost: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, wanted: list[Loss]) -> None:
        """Starts the job until it is done, and looks at its tracked runs."""
        waiting = list(wanted)
        for number in range(STARTS):
            if self._start(number, waiting):
                self.seconds = round(self.watch.seconds(), 1)
                self.troubles += self._runs()
                return
        self.troubles.append(f"{STARTS} starts and not done")

    def _start(self, number: int, waiting: list[Loss]) -> bool:
        """One start of the job; whether it did all. Losses that are carried out are taken from those that wait."""
        began, killed = time.monotonic(), False
        job = self.there.job(self.task.job, *flags_there(self.task, self.corpus), log=f"start-{number}")
        while job.poll() is None and time.monotonic() - began < self.limit:
            self.watch.look(self.there)
            if waiting and job.poll() is None and self.watch.is_due(waiting[0]):
                killed |= waiting[0].kind in LETHAL
                self._lose(waiting.pop(0), number)
        if job.poll() is None:
            self.troubles.append(f"start {number} hangs after {self.limit:.0f} s")
            job.kill()
            job.wait()
        elif job.returncode != 0 and not killed:
            self.troubles.append(f"start {number} ended with exit code {job.returncode}, and its head was there")
        return job.returncode == 0

    def _lose(self, loss: Loss, start: int) -> None:
        """Loses it and, when it was away as long as the loss says, gives it back; the job goes on meanwhile."""
        at = self.watch.seconds()
        mend = strike(self.there, loss)
        time.sleep(loss.away)
        mend()
        self.watch.lost = self.watch.seconds()
        running = list(self.watch.seen)[-1]
        when = {"at": round(at, 1), "back": round(self.watch.lost, 1), "started_last": running}
        self.lost.append({**asdict(loss), "start": start, **when})

    def _runs(self) -> list[str]:
        """What is wrong with the tracked runs."""
        path = f"PYTHONPATH={ROOT}:{ROOT / 'platform'}"
        uri = self.there.variables["MLFLOW_TRACKING_URI"]
        killed = sum(loss["kind"] in LETHAL for loss in self.lost)
        asked = self.there.head.run("env", path, sys.executable, "-c", RUNS, uri, str(killed))
        return asked.stdout.splitlines() if asked.returncode == 0 else [asked.stderr[-500:]]
