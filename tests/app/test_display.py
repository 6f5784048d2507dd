"""What is shown of a job, by a clock that a test turns: lines, the bar, and where the details go."""

import io
import logging
import re
from collections.abc import Callable

import pytest

from midmask.app.console import log_file, set_up_logging
from midmask.app.display import LineSchedule, displayed, range_words
from midmask.app.job_progress import JobProgress
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
