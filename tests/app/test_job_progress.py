"""How far a job is, by a clock that a test turns: its steps, the time that is left, and the lines that tell of it."""

import logging
import re
from collections.abc import Callable, Sequence

import pytest

from midmask.app.job import log_file, set_up_logging
from midmask.app.progress import JobProgress, LineSchedule
from midmask.experiment.graph import Step
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES

STEPS = list(plan(RECIPES["mlm"]()).evaluation(RECIPES["mlm"]().evaluation).upstream())


class Turned:
    """A clock that stands still until it is turned."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def of(kind: str) -> Step:
    return next(step for step in STEPS if step.name == kind)


def ten_seconds_each(steps: Sequence[Step]) -> dict[str, float]:
    return {step.fingerprint: 9.5 for step in steps}


def test_no_time_is_told_in_the_first_minute_and_then_it_follows_from_what_was_measured() -> None:
    clock, asked = Turned(), []

    def expect(steps: Sequence[Step]) -> dict[str, float]:
        asked.append({step.name for step in steps})
        return ten_seconds_each(steps)

    job = JobProgress((), expect, clock)
    job.plan({"all": [of("pretrain"), of("finetune")]})
    job.begin(of("pretrain").fingerprint, "pretrain")
    clock.now = 19.0
    job.estimate()
    assert not asked, "a short job does not wait for an estimate"
    clock.now = 20.0
    job.estimate()
    assert asked == [{"pretrain", "finetune"}] and job.waits
    clock.now = 70.0
    assert job.state().left is None and job.waits, "an estimate alone is no measurement"
    clock.now = 40.0
    job.advance(of("pretrain").fingerprint, 0.25)
    assert job.waits, "a start is no measurement"
    clock.now = 59.0
    job.advance(of("pretrain").fingerprint, 0.5)
    assert job.state().left is None and not job.waits
    clock.now = 60.0
    left = job.state().left
    assert left is not None and left.middle == pytest.approx(97.0 - 60.0 + 97.0)
    assert left.low < left.middle < left.high
    job.estimate()
    assert len(asked) == 1, "it was estimated before"


def test_a_collection_that_is_read_makes_the_estimate_anew() -> None:
    clock, asked = Turned(), []

    def expect(steps: Sequence[Step]) -> dict[str, float]:
        asked.append(len(steps))
        return ten_seconds_each(steps)

    job = JobProgress((), expect, clock)
    job.plan({"all": STEPS})
    clock.now = 59.0
    job.estimate()
    assert not asked, "how much there is to read may soon be known"
    clock.now = 61.0
    for kind in ("prepare", "pretrain"):
        job.estimate()
        job.begin(of(kind).fingerprint, kind)
        job.end(of(kind).fingerprint, kind)
    job.estimate()
    assert asked == [len(STEPS), len(STEPS) - 1], "not again after the training"


def test_trials_that_are_pruned_leave_no_work_behind() -> None:
    """A sweep plans stand-ins: what is drawn takes their places, and what is left of the phase is given up."""
    clock = Turned()
    job = JobProgress(("trials", "comparison"), ten_seconds_each, clock)
    job.plan({"trials": [of("pretrain"), of("finetune"), of("evaluate")], "comparison": [of("encode")]})
    job.begin("a drawn point", "pretrain")
    clock.now = 60.0
    job.estimate()
    clock.now = 70.0
    job.end("a drawn point", "pretrain")
    assert (job.state().done, job.state().steps, job.state().phase) == (1, 4, "trials")
    job.enter("comparison")
    state = job.state()
    assert (state.done, state.steps, state.number, state.phase) == (1, 2, 2, "comparison")
    assert state.left is not None and state.left.middle == pytest.approx(70.0)


def test_steps_that_are_planned_late_have_no_time_before_they_are_estimated() -> None:
    """A sweep plans its comparison when the best point is known: what ran before says little of it."""
    clock = Turned()
    job = JobProgress(("trials", "comparison"), ten_seconds_each, clock)
    job.plan({"trials": [of("pretrain")]})
    job.begin(of("pretrain").fingerprint, "pretrain")
    clock.now = 60.0
    job.estimate()
    clock.now = 70.0
    job.end(of("pretrain").fingerprint, "pretrain")
    job.plan({"comparison": [of("finetune"), of("encode")]})
    assert job.state().left is None and job.waits
    job.estimate()
    left = job.state().left
    assert left is not None and left.middle == pytest.approx(140.0) and not job.waits


def test_a_line_is_due_when_a_phase_begins_and_once_a_minute() -> None:
    clock = Turned()
    job, shown = JobProgress(("one", "two"), ten_seconds_each, clock), []
    lines = LineSchedule(job, [lambda text: shown.append((clock.now, text))])
    job.plan({"one": [of("pretrain")], "two": [of("finetune")]})
    job.begin(of("pretrain").fingerprint, "pretrain")
    for second in range(800):
        clock.now = float(second)
        if second in (40, 70):
            job.advance(of("pretrain").fingerprint, second / 90)
        if second == 90:
            job.end(of("pretrain").fingerprint, "pretrain")
            job.enter("two")
        job.estimate()
        lines.look()
    assert [when for when, _ in shown] == [0.0, 70.0, 90.0, 150.0, 210.0, 280.0, 374.0, 499.0, 666.0]
    assert shown[0][1] == "phase 1 of 2: one · 0 of 2 steps"
    own = r"phase 1 of 2: one · 0 of 2 steps · \d+ to \d+ (s|min) left"
    assert re.fullmatch(own, shown[1][1]), "it waited for the time"
    assert re.fullmatch(r"phase 2 of 2: two · 1 of 2 steps · 1 to 2 min left", shown[2][1])


@pytest.fixture
def logging_of_a_job() -> Callable[[], None]:
    """Handlers and levels as they were before, afterwards."""
    root, own = logging.getLogger(), logging.getLogger("midmask")
    before, levels = list(root.handlers), (root.level, own.level)
    set_up_logging()
    yield
    root.handlers[:] = before
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def test_details_go_to_the_file_and_warnings_to_both(logging_of_a_job: None, capsys, tmp_path, monkeypatch) -> None:
    details, progress = logging.getLogger("midmask.sweep.run"), logging.getLogger("midmask.app.progress")
    monkeypatch.delenv("MIDMASK_VERBOSE", raising=False)
    details.info("before the file is open")
    with log_file(tmp_path / "logs", "sweep") as path:
        details.info("step 10 of 40")
        details.warning("a query has no token")
        logging.getLogger("a_library").warning("a node died")
        progress.info("phase 1 of 3")
        monkeypatch.setenv("MIDMASK_VERBOSE", "1")
        details.info("step 20 of 40")
    shown = [line.split(": ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["a query has no token", "a node died", "phase 1 of 3", "step 20 of 40"]
    kept = [line.split(": ", 1)[1] for line in path.read_text().splitlines()]
    assert kept == ["before the file is open", "step 10 of 40", *shown]
