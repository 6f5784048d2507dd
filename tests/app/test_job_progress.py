"""How far a job is, by a clock that a test turns: its steps, the time that is left, and the lines that tell of it."""

import io
import logging
import sys
import threading
from collections.abc import Callable, Sequence

import pytest

from midmask.app.job import log_file, set_up_logging
from midmask.app.progress import TRUST_S, JobProgress, displayed
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
    return {step.fingerprint: 10.0 for step in steps}


def ran(job: JobProgress, clock: Turned, step: Step, seconds: float) -> None:
    job.begin(step)
    clock.now += seconds
    job.end(step)


def test_the_time_left_is_the_plans_times_the_pace_so_far() -> None:
    """Where the job has taken three times as long as was expected, so will the rest, once the start counts little."""
    clock = Turned()
    job, steps = JobProgress(lambda steps: {step.fingerprint: 1000.0 for step in steps}, clock), STEPS[:4]
    job.plan(steps)
    assert job.seconds_left() == pytest.approx(4000.0)
    ran(job, clock, steps[0], 3000.0)
    assert job.seconds_left() == pytest.approx(3000.0 * (3000 + TRUST_S) / (1000 + TRUST_S)) and job.steps() == (1, 4)
    job.drop([steps[1]])
    assert job.seconds_left() == pytest.approx(2000.0 * (3000 + TRUST_S) / (1000 + TRUST_S)) and job.steps() == (1, 3)
    job.budget_left = lambda: 7.0
    assert job.seconds_left() == 7.0


def test_a_running_training_counts_by_its_share() -> None:
    clock = Turned()
    job, training = JobProgress(ten_seconds_each, clock), of("pretrain")
    job.plan([training, of("finetune")])
    job.begin(training)
    clock.now = 8.0
    job.advance(training, training.optimiser_steps * 4 // 5)
    assert job.seconds_left() == pytest.approx(0.2 * 10 + 10)


def test_trials_that_are_pruned_leave_no_work_behind() -> None:
    """A sweep plans stand-ins: what is drawn takes their places, and what is left of the phase is given up."""
    clock = Turned()
    job = JobProgress(ten_seconds_each, clock)
    job.enter("trials", [of("pretrain"), of("finetune"), of("evaluate"), of("encode")])
    ran(job, clock, Step("pretrain", of("pretrain").config, content={"drawn": 1}), 10.0)
    assert job.steps() == (1, 4) and job.phase == "trials"
    job.enter("comparison", [of("encode")])
    assert job.steps() == (1, 2) and str(job) == "comparison · 1 of 2 steps · about 10 s left"


def test_an_estimate_that_fails_leaves_the_time_unknown() -> None:
    def fail(steps: Sequence[Step]) -> dict[str, float]:
        raise OSError("the collection cannot be read")

    job = JobProgress(fail, Turned())
    job.plan(STEPS)
    job.best = "nDCG@10 0.4814"
    assert str(job) == f"starting · 0 of {len(STEPS)} steps · best so far nDCG@10 0.4814"
    job.begin(of("pretrain"))
    assert str(job).startswith("pretrain · 0 of ")


def test_a_line_is_due_when_a_phase_begins_and_once_a_minute() -> None:
    clock = Turned()
    job, shown = JobProgress(ten_seconds_each, clock), []
    job.enter("one", [of("pretrain"), of("finetune")])
    for second in range(200):
        clock.now = float(second)
        if second == 90:
            job.enter("two", [of("finetune")])
        if line := job.due_line():
            shown.append((second, line))
    assert [when for when, _ in shown] == [0, 60, 90, 150]
    assert shown[0][1] == "one · 0 of 2 steps · about 20 s left"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_lines_are_logged_and_a_terminal_has_a_bar_in_their_place(stream, monkeypatch, caplog) -> None:
    shown, heard, told = stream(), [], threading.Event()

    def tell(line: str) -> None:
        heard.append(line)
        told.set()

    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    job = JobProgress()
    job.enter("trials")
    with caplog.at_level(logging.INFO, "midmask.app.progress"), displayed(job, tell):
        assert told.wait(60)
    assert heard == ["trials"]
    assert caplog.messages == (heard if stream is io.StringIO else [])
    assert ("\x1b[" in shown.getvalue()) == (stream is Terminal), "escape codes of a bar"


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
    with log_file(tmp_path / "logs", "sweep") as path:
        details.info("step 10 of 40")
        details.warning("a query has no token")
        logging.getLogger("a_library").warning("a node died")
        progress.info("trials · 1 of 3 steps")
        monkeypatch.setenv("MIDMASK_VERBOSE", "1")
        details.info("step 20 of 40")
    shown = [line.split(": ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["a query has no token", "a node died", "trials · 1 of 3 steps", "step 20 of 40"]
    kept = [line.split(": ", 1)[1] for line in path.read_text().splitlines()]
    assert kept == ["step 10 of 40", *shown]
