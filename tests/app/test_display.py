"""What is shown of a job, by a clock that a test turns: lines, the bar, and where the details go."""

import io
import logging
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from midmask.app.console import log_file, set_up_logging
from midmask.app.display import LineSchedule, bar, displayed, range_words, share_done, words
from midmask.app.job_progress import JobProgress, JobState
from midmask.experiment.time_left import TimeRange
from tests.support.planned_steps import Turned, of, ten_seconds_each


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
    assert re.fullmatch(r"phase 1 of 2: one · 0 of 2 steps · \d+ to \d+ (s|min) left", shown[1][1]), (
        "it waited for the time"
    )
    assert re.fullmatch(r"phase 2 of 2: two · 1 of 2 steps · 1 to 2 min left", shown[2][1])


def test_a_phase_that_begins_late_does_not_put_off_the_time_that_is_left() -> None:
    clock = Turned()
    job, shown = JobProgress(("one", "two"), ten_seconds_each, clock), []
    lines = LineSchedule(job, [lambda text: shown.append((clock.now, "left" in text))])
    job.plan({"one": [of("encode")], "two": [of("pretrain")]})
    for second in range(100):
        clock.now = float(second)
        job.estimate()
        if second == 62:
            job.enter("two")
            job.begin(of("pretrain").fingerprint, "pretrain")
        if second in (70, 80):
            job.advance(of("pretrain").fingerprint, second / 400)
        lines.look()
    assert shown == [(0.0, False), (62.0, False), (80.0, True)]


def test_a_line_does_not_wait_for_ever_for_the_time_that_is_left() -> None:
    clock = Turned()
    job, shown = JobProgress(("one",), ten_seconds_each, clock), []
    lines = LineSchedule(job, [lambda text: shown.append(clock.now)])
    job.plan({"one": [of("pretrain")]})
    job.begin(of("pretrain").fingerprint, "pretrain")
    for second in range(250):
        clock.now = float(second)
        job.estimate()
        lines.look()
    assert shown == [0.0, 180.0, 240.0]


def test_of_a_budget_there_is_a_line_every_minute() -> None:
    clock = Turned()
    job, shown = JobProgress(("one",), ten_seconds_each, clock), []
    lines = LineSchedule(job, [lambda text: shown.append(clock.now)])
    job.plan({"one": [of("pretrain")]})
    job.budget_left = lambda: 1800.0 - clock.now
    for second in range(901):
        clock.now = float(second)
        lines.look()
    assert shown == [60.0 * minute for minute in range(16)]


STATE = JobState(2, 3, "trials", 12, 64, 300.0, TimeRange(180.0, 220.0, 300.0), None, "nDCG@10 0.4814 (0.15)")


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ((20.0, 28.0, 40.0), "20 to 40 s"),
        ((180.0, 230.0, 300.0), "3 to 5 min"),
        ((5400.0, 7000.0, 9000.0), "1.5 to 2.5 h"),
        ((170.0, 180.0, 185.0), "about 3 min"),
    ],
)
def test_a_range_in_words(left: tuple[float, float, float], text: str) -> None:
    assert range_words(TimeRange(*left)) == text


def test_the_bar_has_the_words_and_the_share_of_the_time() -> None:
    screen = Console(file=io.StringIO(), width=140, force_terminal=True, color_system=None)
    screen.print(bar(STATE))
    text = screen.file.getvalue()
    assert words(STATE) == (
        "phase 2 of 3: trials · 12 of 64 steps · 3 to 5 min left · best so far nDCG@10 0.4814 (0.15)"
    )
    assert words(STATE) in text and "━" in text
    assert share_done(STATE) == pytest.approx(300 / 520)


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


def test_details_go_to_the_file_and_warnings_to_both(
    logging_of_a_job: None, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    details, progress = logging.getLogger("midmask.sweep.run"), logging.getLogger("midmask.app.display")
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


def test_lines_go_above_the_bar_of_a_terminal(logging_of_a_job: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches a terminal: each warning is a whole line of its own, and the bar is gone at the end."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    job = JobProgress(("trials",))
    with displayed(job, lambda line: None):
        logging.getLogger("midmask.sweep.run").warning("a query has no token")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert re.search(r"(^|[\r\n])\d\d:\d\d:\d\d WARNING midmask.sweep.run: a query has no token\n", plain)
    assert "phase 1 of 1: trials" in plain
    assert screen.getvalue().rstrip("\n").endswith("\x1b[2K") or plain.rstrip().endswith("trials")
