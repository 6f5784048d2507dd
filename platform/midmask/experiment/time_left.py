"""How long the rest of a job will take: what each step is expected to take, corrected by those that were measured.

    expected seconds of every step (an estimate) ─┐
    begin, reports and end of the steps that ran ─┴─► pace of each kind of step ─► low, middle, high

Expected seconds of a step are its share of the time by the clock: of two steps that run side by side and take 10 s
each, 5. The unit cancels out, so only the proportions of the estimate must be right.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

SPREAD = math.log(1.5)
"""Standard deviation of a step's pace, as a natural logarithm, before any was measured; it counts as one measurement.
Of a kind of step that was not measured it holds to the end, on top of what the measured kinds show."""

ENOUGH = 0.05
"""Share of all expected seconds that the measured steps must have been expected to take: small steps say nothing of
trainings, since what they take is mostly their start."""

SPAN_S = 5.0
"""Seconds between two reports that tell the rate of a step."""

OVERHEAD_S = 0.5
"""Expected seconds of each step beside its estimate: its process, its files, its tracked run."""


@dataclass(frozen=True)
class TimeRange:
    """An expected duration in seconds: the actual one is between low and high about two times in three."""

    low: float  # one standard deviation of the logarithm below the middle, `high` one above it
    middle: float
    high: float


@dataclass
class _Work:
    """One step and its progress; all times are on the caller's clock."""

    kind: str
    expected: float | None = None  # seconds; None if unknown
    lanes: int = 1
    began: float | None = None
    ended: float | None = None
    first: float = 0.0  # time of the first report
    first_share: float = 0.0  # fraction of the step that was done at the first report
    last: float = 0.0  # likewise of the last report
    last_share: float = 0.0

    @property
    def seconds(self) -> float | None:
        """From begin to end, at least `OVERHEAD_S`, since both may arrive together; of a step that runs, by the rate
        between its first report and its last. None where these are too near each other: the time before the first is
        that of a start, and reports may arrive together too.
        """
        if self.began is None:
            return None
        if self.ended is not None:
            return max(self.ended - self.began, OVERHEAD_S)
        if self.last - self.first < SPAN_S:
            return None
        rate = (self.last_share - self.first_share) / (self.last - self.first)
        return self.first - self.began + (1 - self.first_share) / rate


class TimeLeft:
    """The steps of a job by key, such as a fingerprint, each of a kind, such as `pretrain`."""

    def __init__(self) -> None:
        self._work: dict[str, _Work] = {}

    def add(self, key: str, kind: str) -> None:
        """Adds a step that is still to be done; a step that was added before keeps its measured times."""
        self._work.setdefault(key, _Work(kind))

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Replaces the expected seconds of these steps."""
        for key, value in seconds.items():
            if key in self._work:
                self._work[key].expected = value + OVERHEAD_S

    def begin(self, key: str, kind: str, now: float, lanes: int = 1, among: Collection[str] = ()) -> str | None:
        """A step starts, beside lanes - 1 others. One that was not added takes the place of one of its kind that waits
        among these keys, and returns the key, if there is one: a search draws the points of its trials while it runs.
        """
        waiting = (
            name for name in among if (work := self._work.get(name)) and work.kind == kind and work.began is None
        )
        taken = key if key in self._work else next(waiting, None)
        expected = None if taken is None else self._work.pop(taken).expected
        self._work[key] = _Work(kind, expected, lanes, began=now)
        return None if taken == key else taken

    def advance(self, key: str, share: float, now: float) -> None:
        """Records the fraction of a step that is done, from 0 to 1."""
        work = self._work.get(key)
        if work is None or share <= work.last_share:
            return
        if not work.last_share:
            work.first, work.first_share = now, share
        work.last, work.last_share = now, share

    def end(self, key: str, now: float) -> None:
        if (work := self._work.get(key)) is not None:
            work.ended = now

    def drop(self, keys: Iterable[str]) -> None:
        """Removes steps that will not be done; steps that have ended stay."""
        for key in keys:
            if key in self._work and self._work[key].ended is None:
                del self._work[key]

    @property
    def is_measured(self) -> bool:
        """Whether the pace of enough of the work is known."""
        measured = sum(expected for _, _, expected in self._measured())
        return measured > 0 and measured >= ENOUGH * sum(work.expected or 0.0 for work in self._work.values())

    def left(self, now: float) -> TimeRange:
        """The expected wall-clock time until all steps have ended.

        The pace of a kind of step is the sum of the measured seconds over the sum of the expected ones; of a kind that
        was not measured, that of all kinds. The variance of its logarithm is the mean of `SPREAD` squared and of the
        squared deviations of single steps from the pace of their kind. Steps count by their expected seconds, as many
        in all as there are of equal weight (Kish's effective sample size, sum squared over sum of squares). All steps
        that are left are taken to deviate alike, since what makes one estimate wrong makes them all wrong.
        """
        measured = self._measured()
        paces = {kind: _pace([row for row in measured if row[0] == kind]) for kind, _, _ in measured}
        usual = _pace(measured)
        variance = _variance(measured, paces)
        known, unknown = math.sqrt(variance), math.sqrt(variance + SPREAD**2)
        low = middle = high = 0.0
        for work in self._work.values():
            if work.ended is None:
                rest = _rest(work, paces.get(work.kind, usual), now)
                factor = math.exp(known if work.kind in paces else unknown)
                low, middle, high = low + rest / factor, middle + rest, high + rest * factor
        return TimeRange(low, middle, high)

    def _measured(self) -> list[tuple[str, float, float]]:
        """Of steps whose time is known, or follows from their reports: kind, measured and expected share of the time by
        the clock.
        """
        durations = [(work, work.seconds) for work in self._work.values()]
        return [(work.kind, spent / work.lanes, work.expected) for work, spent in durations if spent and work.expected]


def _pace(measured: list[tuple[str, float, float]]) -> float:
    """Measured seconds for each expected one; 1 if nothing was measured."""
    return sum(row[1] for row in measured) / sum(row[2] for row in measured) if measured else 1.0


def _variance(measured: list[tuple[str, float, float]], paces: Mapping[str, float]) -> float:
    if not measured:
        return SPREAD**2
    weights = [expected for _, _, expected in measured]
    squares = [math.log(spent / expected / paces[kind]) ** 2 for kind, spent, expected in measured]
    mean = sum(weight * square for weight, square in zip(weights, squares, strict=True)) / sum(weights)
    count = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    return (SPREAD**2 + count * mean) / (1 + count)


def _rest(work: _Work, pace: float, now: float) -> float:
    """Wall-clock seconds that a step still adds to the job."""
    whole = (OVERHEAD_S if work.expected is None else work.expected) * pace
    if work.began is None:
        return whole
    spent = now - work.began
    return max(0.0, (whole if work.seconds is None else work.seconds / work.lanes) - spent / work.lanes)
