"""One cycle: a job that meets kills or losses at drawn moments and is started again by the same command until it is
done. Moments are told by what is done then, so that they do not depend on the machine's speed.
"""

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PATIENCE = 6.0
"""A start may take so many times as long as the undisturbed run, a minute, and the time of its losses, before it counts
as hung."""

ENDS_WITHIN_S = 60.0
"""After what ends the whole job, nothing of it may be left after so long."""

APART_S = 4.0
"""Seconds between two blows, so that what follows from the first can be seen."""

STARTS = 60
"""A job that is not done after so many will not be."""

AWAY_S = (5.0, 100.0)
"""Between these, how long a lost node is away: shorter and longer than a training takes to go on without it."""


Job = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Blow:
    """What is hit when: `after` seconds after `done` marks. pick: between 0 and 1, chooses among several of a kind.
    away: seconds until what is lost is back.
    """

    number: int
    kind: str
    done: int
    after: float
    pick: float
    away: float


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start at which an undisturbed run reached each mark (a finished artifact, a started step), and
    at which it ended.
    """

    marks: Sequence[float]
    total: float


Site = Any
"""Where a job runs, and what can be done to it there: `Local` or `Bed`.

kinds: of blows, as often as they are to be drawn. lethal: those that end the job's driver; after any other the same job
must go on. nodes: kinds whose time away is drawn; outage: that of all others. is_up: the job's Ray is there, and makes
marks. marks: how many have been reached, in whichever start. strike: returns what gives back what is lost now; none:
nothing of the kind is there yet, which the cycle waits for. settle: looks at what is left after a start that a blow has
ended, or "". give_up: ends a job that hangs. finish: looks at what a job that is done has left. troubles: of it all.
"""


def draw(site: Site, timeline: Timeline, count: int, seed: str) -> list[Blow]:
    """Blows in the order of their moments, each kind about as often as it is named.

    A quarter of the moments is drawn uniformly over the time of the undisturbed run, of which starts and trainings take
    much; the others uniformly over what is being made then, so that short and late steps are hit too.
    """
    chance = random.Random(seed)
    rounds = -(-count // len(site.kinds))
    kinds = [kind for _ in range(rounds) for kind in chance.sample(site.kinds, len(site.kinds))][:count]
    ends = [0.0, *timeline.marks, timeline.total]
    moments = []
    for number in range(count):
        step = chance.randrange(len(ends) - 1)
        at = chance.uniform(*((0.0, timeline.total) if number % 4 == 0 else (ends[step], ends[step + 1])))
        done = sum(mark <= at for mark in timeline.marks)
        moments.append((done, at - ends[done]))
    blows = []
    for number, (kind, (done, after)) in enumerate(zip(kinds, sorted(moments), strict=True)):
        away = round(chance.uniform(*AWAY_S), 1) if kind in site.nodes else site.outage
        blows.append(Blow(number, kind, done, round(after, 2), chance.random(), away))
    return blows


class Cycle:
    """struck: blows that were carried out; others came too late, since the job had ended. starts: of the job."""

    def __init__(self, site: Site, timeline: Timeline, journal: Callable[[dict[str, Any]], None]) -> None:
        self.site, self.timeline, self._journal = site, timeline, journal
        self.struck = self.starts = 0

    def run(self, blows: Sequence[Blow]) -> None:
        """Carries out the blows, and lets the job end."""
        waiting = list(blows)
        limit = 60 + PATIENCE * self.timeline.total + sum(blow.away for blow in blows)
        while self.starts < STARTS:
            self.starts += 1
            job = self.site.start(self.starts)
            killed = self._follow(job, waiting, time.monotonic() + limit)
            self.site.settle(job, killed)
            if job.returncode == 0:
                self.site.finish()
                return
            if not killed:
                self._trouble(f"ended with exit code {job.returncode} although nothing that ends it was hit")
        self._trouble("is still not done")

    def _follow(self, job: Job, waiting: list[Blow], until: float) -> str:
        """Until one start ends; the kind of blow that ended it. Blows that are carried out no longer wait."""
        began = changed = time.monotonic()
        struck, seen, is_up = began - APART_S, self.site.marks(), False
        while job.poll() is None:
            if time.monotonic() > until:
                self._trouble("hangs")
                self.site.give_up(job)
                return "hang"
            now = (self.site.marks(), is_up or self.site.is_up())
            if now != (seen, is_up):
                (seen, is_up), changed = now, time.monotonic()
            since = time.monotonic() - (changed if seen else began)
            may = waiting and time.monotonic() - struck >= APART_S and _is_due(waiting[0], seen, since, is_up)
            if may and job.poll() is None and (mend := self.site.strike(waiting[0], job)):
                blow = waiting.pop(0)
                self._hit(blow, job, mend, seen)
                struck = time.monotonic()
                if blow.kind in self.site.lethal:
                    return blow.kind
            time.sleep(0.02)
        return ""

    def _hit(self, blow: Blow, job: Job, mend: Callable[[], None], marks: int) -> None:
        self.struck, began = self.struck + 1, time.monotonic()
        if blow.kind in self.site.lethal:
            try:
                job.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._trouble(f"goes on {ENDS_WITHIN_S:g} s after {blow.kind} was hit")
                self.site.give_up(job)
            if job.returncode == 0:
                self._trouble(f"exit code 0 after {blow.kind} was hit")
        took = round(time.monotonic() - began, 1)  # to end, if it must
        self._journal({"event": "blow", **asdict(blow), "start": self.starts, "marks": marks, "took": took})
        mend()

    def _trouble(self, what: str) -> None:
        self.site.troubles.append(f"start {self.starts}: {what}")


def _is_due(blow: Blow, marks: int, since: float, is_up: bool) -> bool:
    """Whether the moment has come: also if more is done already than it waits for. A job that is started again must
    first have come so far that it makes marks.
    """
    return (is_up or blow.done == 0) and (marks > blow.done or (marks == blow.done and since >= blow.after))


def undisturbed(site: Site, limit: float = 3600) -> Timeline:
    """Runs a job without blows. Raises RuntimeError if it does not end well in time, or leaves anything."""
    began = time.monotonic()
    job, marks = site.start(1), []
    while job.poll() is None and time.monotonic() < began + limit:
        marks += [round(time.monotonic() - began, 2)] * (site.marks() - len(marks))
        time.sleep(0.05)
    total = time.monotonic() - began
    if job.poll() != 0:
        site.give_up(job)
        raise RuntimeError(f"the undisturbed job ended with {job.returncode}")
    site.settle(job, "")
    site.finish()
    if site.troubles:
        raise RuntimeError("\n".join(site.troubles))
    return Timeline(marks, round(total, 2))
