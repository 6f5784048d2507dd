"""How far a job is, by a clock that a test turns: its steps, the time that is left, and the lines that tell of it."""

import io
import logging
import sys
import threading
from collections.abc import Callable, Sequence

import pytest

from midmask.app.job import log_file, set_up_logging
from midmask.app.progress import GraphProgress, JobProgress, displayed
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


def ran(job: JobProgress, clock: Turned, key: str, kind: str, seconds: float, lanes: int = 1) -> None:
    job.begin(key, kind, lanes)
    clock.now += seconds
    job.end(key)


def test_steps_take_what_steps_of_their_kind_took_and_nothing_is_known_of_others() -> None:
    clock = Turned()
    job = JobProgress((), clock=clock)
    trainings, encode = [Step("pretrain", of("pretrain").config, content={"number": n}) for n in range(3)], of("encode")
    job.plan({"all": [*trainings, encode]})
    ran(job, clock, trainings[0].fingerprint, "pretrain", 30.0)
    assert job.seconds_left() is None, "an encoding was never measured"
    ran(job, clock, trainings[1].fingerprint, "pretrain", 50.0)
    job.drop([encode.fingerprint])
    assert job.seconds_left() == pytest.approx(40.0) and job.steps() == (2, 3)


def test_the_plan_tells_what_was_not_measured_and_a_running_step_its_own_pace() -> None:
    clock = Turned()
    job = JobProgress((), ten_seconds_each, clock)
    job.plan({"all": [of("pretrain"), of("finetune")]})
    job.begin(of("pretrain").fingerprint, "pretrain")
    clock.now = 4.0
    assert job.seconds_left() == pytest.approx(6.0 + 10.0)
    clock.now = 12.0
    assert job.seconds_left() == pytest.approx(10.0), "late, it has no time left, and none below zero"
    for second, share in ((12.0, 0.1), (12.1, 0.2), (18.0, 0.3)):
        clock.now = second
        assert job.seconds_left() == pytest.approx(10.0), "a start is no measurement, and reports may arrive together"
        job.advance(of("pretrain").fingerprint, share)
    assert job.seconds_left() == pytest.approx(0.7 * 6.0 / 0.2 + 10.0)
    clock.now = 20.0
    assert job.seconds_left() == pytest.approx(0.7 * 6.0 / 0.2 - 2.0 + 10.0)
    job.budget_left = lambda: 7.0
    assert job.seconds_left() == 7.0


def test_two_side_by_side_share_the_clock() -> None:
    """Both take 40 s beside each other, so two more take 40 s."""
    clock = Turned()
    job, steps = JobProgress((), clock=clock), [Step("encode", of("encode").config, content={"n": n}) for n in range(4)]
    job.plan({"all": steps})
    for step in steps[:2]:
        job.begin(step.fingerprint, "encode", lanes=2)
    clock.now = 40.0
    for step in steps[:2]:
        job.end(step.fingerprint)
    assert job.seconds_left() == pytest.approx(40.0)


def test_trials_that_are_pruned_leave_no_work_behind() -> None:
    """A sweep plans stand-ins: what is drawn takes their places, and what is left of the phase is given up."""
    clock = Turned()
    job = JobProgress(("trials", "comparison"), ten_seconds_each, clock)
    job.plan({"trials": [of("pretrain"), of("finetune"), of("evaluate")], "comparison": [of("encode")]})
    ran(job, clock, "a drawn point", "pretrain", 70.0)
    assert job.steps() == (1, 4) and job.phase == "trials"
    job.enter("comparison")
    assert job.steps() == (1, 2) and str(job) == "phase 2 of 2: comparison · 1 of 2 steps · about 10 s left"


def test_an_estimate_that_fails_leaves_the_time_unknown() -> None:
    def fail(steps: Sequence[Step]) -> dict[str, float]:
        raise OSError("the collection cannot be read")

    job = JobProgress((), fail, Turned())
    job.plan({"all": STEPS})
    job.best("nDCG@10 0.4814")
    assert str(job) == f"phase 1 of 1: all · 0 of {len(STEPS)} steps · best so far nDCG@10 0.4814"


def test_a_graphs_phases_follow_its_steps() -> None:
    job = JobProgress()
    graph = GraphProgress(job, [of("tokenise"), of("pretrain"), of("search")])
    seen = []
    for kind in ("tokenise", "pretrain", "search"):
        graph.begin(of(kind), kind)
        seen.append(str(job))
        graph.end(of(kind), "")
    assert [line[:11] for line in seen] == ["phase 1 of ", "phase 2 of ", "phase 3 of "] and job.steps() == (3, 3)


def test_a_line_is_due_when_a_phase_begins_and_once_a_minute() -> None:
    clock = Turned()
    job, shown = JobProgress(("one", "two"), ten_seconds_each, clock), []
    job.plan({"one": [of("pretrain")], "two": [of("finetune")]})
    for second in range(200):
        clock.now = float(second)
        if second == 90:
            job.enter("two")
        if line := job.due_line():
            shown.append((second, line))
    assert [when for when, _ in shown] == [0, 60, 90, 150]
    assert shown[0][1] == "phase 1 of 2: one · 0 of 2 steps · about 20 s left"


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
    job = JobProgress(("trials",))
    with caplog.at_level(logging.INFO, "midmask.app.progress"), displayed(job, tell):
        assert told.wait(60)
    assert heard == ["phase 1 of 1: trials"]
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
