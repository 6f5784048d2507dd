"""How far a job is, by a clock that a test turns: its phases, its steps, and the time that is left."""

from collections.abc import Sequence

import pytest

from midmask.app.graph_progress import GraphProgress
from midmask.app.job_progress import JobProgress
from midmask.experiment.step import Step
from tests.support.planned_steps import STEPS, Turned, of, ten_seconds_each


def test_a_graph_has_the_phases_that_its_steps_need() -> None:
    clock = Turned()
    job = JobProgress((), ten_seconds_each, clock)
    graph = GraphProgress(job, STEPS)
    assert (job.state().phase, job.state().phases, job.state().steps) == ("collections", 3, len(STEPS))
    for step in STEPS:
        graph.begin(step, step.name)
        clock.now += 20.0
        job.estimate()
        if step.optimiser_steps:
            assert job.state().phase == "trainings" and job.state().number == 2
        graph.end(step, "")
    state = job.state()
    assert (state.done, state.phase) == (len(STEPS), "searches and evaluations")
    assert state.left is not None and state.left.middle == 0


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


def test_an_estimate_that_fails_leaves_the_job_alone(caplog: pytest.LogCaptureFixture) -> None:
    def expect(steps: Sequence[Step]) -> dict[str, float]:
        raise ValueError("no such model")

    caplog.set_level("INFO")
    clock = Turned()
    job = JobProgress((), expect, clock)
    job.plan({"all": STEPS})
    clock.now = 100.0
    job.estimate()
    job.estimate()
    assert job.state().left is None and job.state().steps == len(STEPS) and not job.waits
    assert caplog.text.count("the time that is left is not known: no such model") == 1


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
