"""Shows the progress of a job on standard error: a bar on a terminal, elsewhere plain lines, at most one a minute; of a
job with a budget of time one every minute of its first half hour.

A line is also shown when a phase begins. Lines are log records of this module, which the console always shows; on a
terminal other lines go above the bar.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from midmask.app.job_progress import JobProgress, JobState
from midmask.experiment.time_left import TimeRange
from midmask.progress import clock
from midmask.ticking import ticking

if TYPE_CHECKING:
    from rich.table import Table

log = logging.getLogger(__name__)
seconds_log = logging.getLogger(f"{__name__}.seconds")
"""Of lines that only the log file has."""

MINUTE = 60.0
SLOWER = 3
"""A line also waits for this part of the job's time so far (1 in 3): 8 lines in 13 minutes, and some 20 in 2 hours."""
SLOWER_WITH_BUDGET = 30
"""The same of a job with a budget of time, which people watch run out."""
LONGEST_WAIT_S = 600.0
LONGEST_SILENCE_S = 180.0
"""A line without the time that is left waits so long for it."""
LOOK_EVERY_S = 1.0
BAR_WIDTH = 30


@contextmanager
def displayed(progress: JobProgress, tell: Callable[[str], None]) -> Iterator[None]:
    """Shows the job's progress until the block ends.

    Args:
        tell: gets every line too, also where a terminal shows a bar in place of lines.
    """
    # Estimates have a thread of their own: they take seconds, in which a line may be due. One that is being made when
    # the block ends, ends with the process.
    with ticking(progress.estimate, LOOK_EVERY_S, "estimate", patience=2 * LOOK_EVERY_S):
        if sys.stderr.isatty():
            with show_bar(progress), show_lines(progress, tell):
                yield
        else:
            with show_lines(progress, tell, partial(log.info, "%s")):
                yield


class LineSchedule:
    """Decides when a line is due.

    Args:
        listeners: get the text of each line.
    """

    def __init__(self, progress: JobProgress, listeners: Sequence[Callable[[str], None]]) -> None:
        self._progress, self._listeners = progress, listeners
        self._due, self._phase = MINUTE, ""

    def look(self) -> None:
        """Called now and then; shows a line if another phase has begun, or when one is due: after a minute, as soon as
        the time that is left is known, and then at most once a minute.
        """
        phase, now = self._progress.phase, self._progress.elapsed()
        is_due = now >= self._due and not (self._progress.waits and now < LONGEST_SILENCE_S)
        if phase != self._phase or is_due:
            self._phase = phase
            if is_due or (now >= MINUTE and not self._progress.waits):
                slower = SLOWER if self._progress.budget_left is None else SLOWER_WITH_BUDGET
                self._due = now + max(MINUTE, min(now / slower, LONGEST_WAIT_S))
            state = self._progress.state()
            line = words(state)
            for listener in self._listeners:
                listener(line)
            if (left := state.left) is not None:
                times = (self._progress.elapsed(), left.low, left.high, left.middle)
                seconds_log.info("after %.0f s: %.0f to %.0f s left, middle %.0f", *times)


@contextmanager
def show_lines(progress: JobProgress, *listeners: Callable[[str], None]) -> Iterator[None]:
    with ticking(LineSchedule(progress, listeners).look, LOOK_EVERY_S, "progress"):
        yield


@contextmanager
def show_bar(progress: JobProgress) -> Iterator[None]:
    from rich.console import Console  # here, so that --help does not wait for it
    from rich.live import Live

    with Live(
        get_renderable=lambda: bar(progress.state()),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
    ):
        yield


def bar(state: JobState) -> "Table":
    """A line of the terminal: a bar as long as the share of the time that is over, and the words."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=1.0, completed=share_done(state), width=BAR_WIDTH), Text(words(state)))
    return row


def share_done(state: JobState) -> float:
    """Of the time, where its end is known; else of the steps. From 0 to 1."""
    rest = state.left.middle if state.left else state.at_most
    if rest is not None:
        return state.elapsed / (state.elapsed + max(rest, 0.0)) if state.elapsed > 0 else 0.0
    return state.done / state.steps if state.steps else 0.0


def words(state: JobState) -> str:
    """`phase 2 of 3: trials · 12 of 64 steps · 3 to 5 min left · best so far …`, without what is not known."""
    parts = [f"phase {state.number} of {state.phases}: {state.phase}"] if state.phase else ["starting"]
    parts += [f"{state.done} of {state.steps} steps"] if state.steps else []
    parts += [f"{range_words(state.left)} left"] if state.left and state.left.middle > 0 else []
    parts += [f"{clock(max(0.0, state.at_most))} of the budget left"] if state.at_most is not None else []
    parts += [f"best so far {state.best}"] if state.best else []
    return " · ".join(parts)


def range_words(left: TimeRange) -> str:
    """`20 to 40 s`, `3 to 5 min`, `1.5 to 2.5 h`; `about 3 min` where both ends are the same."""
    unit, size = ("s", 1.0) if left.high < 90 else ("min", 60.0) if left.high < 5400 else ("h", 3600.0)
    low, high = (f"{value / size:.1f}" if unit == "h" else f"{value / size:.0f}" for value in (left.low, left.high))
    return f"about {high} {unit}" if low == high else f"{low} to {high} {unit}"
