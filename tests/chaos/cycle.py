"""One cycle: a job that is killed at given moments and started again by the same command until it is done."""

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import processes
from tests.chaos.compare import identities, rewritten
from tests.chaos.job import Job, Timeline
from tests.chaos.scenarios import LETHAL, Scenario

PATIENCE = 6.0
"""A start may take so many times as long as the undisturbed run, and a minute, before it counts as hung."""

ENDS_WITHIN_S = 60.0
"""After its driver, its raylet or all of it was killed, nothing of a job may be left after so long."""

APART_S = 3.0
"""Seconds between two kills, so that what follows from the first can be seen."""

Journal = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Kill:
    """Whom to kill when; `pick` chooses among several victims of one kind."""

    number: int
    victim: str
    at: float
    pick: float


def draw(scenario: Scenario, timeline: Timeline, count: int, seed: str) -> list[Kill]:
    """Kills in the order of their moments; each kind of victim about as often as the scenario names it.

    A quarter of the moments is drawn uniformly over the time of the undisturbed run, of which much is its start; the
    others uniformly over what is being made then, so that short and late steps are hit too.
    """
    chance = random.Random(seed)
    rounds = count // len(scenario.victims) + 1
    kinds = [kind for _ in range(rounds) for kind in chance.sample(scenario.victims, len(scenario.victims))][:count]
    chance.shuffle(kinds)
    ends = [0.0, *timeline.finished, timeline.total]
    moments = []
    for number in range(count):
        step = chance.randrange(len(ends) - 1)
        low, high = (0.0, timeline.total) if number % 4 == 0 else (ends[step], ends[step + 1])
        moments.append(chance.uniform(low, high))
    pairs = zip(kinds, sorted(moments), strict=True)
    return [Kill(number, kind, at, chance.random()) for number, (kind, at) in enumerate(pairs)]


@dataclass
class Cycle:
    """Runs one scenario in `home` with the given kills.

    troubles: one line for everything that went wrong. struck: kills that were carried out; others came too late, since
    the job had ended. folders: temporary folders of the local Rays seen. known: what the undisturbed run leaves in its
    temporary folder: libraries' caches.
    """

    scenario: Scenario
    collection: str
    home: Path
    timeline: Timeline
    journal: Journal
    known: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)
    struck: int = 0
    starts: int = 0
    folders: set[str] = field(default_factory=set)
    _before: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _meant_to_end: bool = False
    _struck_at: float = 0.0

    def run(self, kills: list[Kill], started: int = 0) -> None:
        """Carries out the kills, then lets the job end.

        Args:
            started: starts of an earlier process that was itself ended in the middle of this cycle.
        """
        self.starts = started
        job, waiting = self._start(), list(kills)
        while True:
            may = waiting and job.is_running() and time.monotonic() - self._struck_at > APART_S
            if may and job.is_due(self.timeline.moment(waiting[0].at)) and self._strike(job, waiting[0]):
                waiting.pop(0)
            if not job.is_running():
                self._settle(job)
                if job.process.returncode == 0:
                    break
                job = self._start()
            elif job.seconds() > self.limit:
                self._give_up(job, f"hangs after {self.limit:.0f} s")
            time.sleep(0.02)
        self._check_leftovers()

    @property
    def limit(self) -> float:
        return 60 + PATIENCE * self.timeline.total

    def _start(self) -> Job:
        self.starts += 1
        if self.starts > 60:
            raise RuntimeError(f"{self.home}: 60 starts and not done")
        self._meant_to_end = False
        return Job(self.scenario, self.collection, self.home, self.starts)

    def _strike(self, job: Job, kill: Kill) -> bool:
        """Kills the victim, if there is one of its kind now, and waits for the job to end if it must."""
        found = processes.victims(kill.victim, job.pid)
        if not found:
            return False
        self.folders |= processes.ray_folders()
        hit = found if kill.victim == "group" else [found[int(kill.pick * len(found))]]
        titles = [processes.title(one)[:60] for one in hit[:1]]
        done = len(job.finished())
        processes.kill(hit)
        self.struck, self._struck_at = self.struck + 1, time.monotonic()
        event = {"event": "kill", **asdict(kill), "start": self.starts, "hit": titles[0], "finished": done}
        began = time.monotonic()
        if kill.victim in LETHAL:
            self._meant_to_end = True
            ended = self._wait_for_end(job, kill)
            event |= {"ended": ended, "within": round(time.monotonic() - began, 1), "code": job.process.returncode}
            if kill.victim == "raylet":
                event["said"] = job.last_lines()
        self.journal(event)
        return True

    def _wait_for_end(self, job: Job, kill: Kill) -> bool:
        deadline = time.monotonic() + ENDS_WITHIN_S
        while job.is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
        if job.is_running():
            self._give_up(job, f"goes on {ENDS_WITHIN_S:g} s after its {kill.victim} was killed")
            return False
        if job.process.returncode == 0:
            self._trouble(job, f"exit code 0 after its {kill.victim} was killed")
        elif "Traceback (most recent call last)" in job.last_lines(30) and kill.victim == "raylet":
            self._trouble(job, "ends in a traceback after its raylet was killed")
        return True

    def _settle(self, job: Job) -> None:
        """After a start has ended: nothing that was finished may have changed."""
        code = job.process.returncode
        if code != 0 and not self._meant_to_end:
            self._trouble(job, f"ended with exit code {code} although no driver, raylet or group was killed")
        processes.bury()
        now = identities(self.home)
        self.troubles += rewritten(self._before, now)
        self._before = now

    def _give_up(self, job: Job, why: str) -> None:
        """Writes down where every process stands, and ends them all."""
        (self.home / f"stacks-{self.starts:02}.txt").write_text(processes.stacks())
        self._trouble(job, f"{why}; stacks-{self.starts:02}.txt")
        self._meant_to_end = True
        processes.kill(processes.alive())
        job.process.wait()

    def _trouble(self, job: Job, what: str) -> None:
        self.troubles.append(f"{self.home.name}, {job.log.name}: {what}")

    def _check_leftovers(self) -> None:
        orphans = processes.wait_until_gone(ENDS_WITHIN_S)
        left = [f"process {processes.title(one)[:60].strip()}" for one in orphans]
        processes.kill(orphans)
        left += [folder for folder in sorted(self.folders) if Path(folder).exists()]
        left += [str(path) for path in (self.home / "tmp").iterdir() if path.name not in self.known]
        self.troubles += [f"{self.home.name}: left behind {path}" for path in left]


def undisturbed(scenario: Scenario, collection: str, home: Path, limit: float = 900) -> Timeline:
    """Runs a scenario without kills.

    Raises:
        RuntimeError: if it does not end well within `limit` seconds.
    """
    job = Job(scenario, collection, home, 1)
    finished: list[float] = []
    while job.is_running() and job.seconds() < limit:
        finished += [job.seconds()] * (len(job.finished()) - len(finished))
        time.sleep(0.05)
    total = job.seconds()
    code = job.process.poll()
    left = processes.wait_until_gone(ENDS_WITHIN_S)
    if code != 0 or left:
        processes.kill(processes.alive())
        raise RuntimeError(f"the undisturbed {scenario.job}: exit code {code}, {len(left)} processes left; {job.log}")
    return Timeline(finished, total)
