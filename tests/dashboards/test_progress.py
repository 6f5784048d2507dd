"""The Progress page: what a job does, whether it lives, and the end of its log."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from midmask.tracking import LOG, TrackedRow
from midmask.tracking.lease import OWNER, lease_tags
from tests.support.dashboards.page import html, page, table


@pytest.mark.parametrize("killed", [False, True])
def test_a_job_is_shown_with_its_life_and_the_end_of_its_log(tmp_path: Path, killed: bool) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {number} of the log\n" for number in range(2000)))
    tags = {**lease_tags(), LOG: str(log)}
    if killed:
        tags[OWNER] = tags[OWNER].rpartition(":")[0] + ":1"
    now = datetime.now(UTC)
    job = TrackedRow("1", "1", "run_recipe <a>", None, "running", now, None, tags, {}, {})
    early = TrackedRow("2", "1", "lost", None, "failed", now, now, {"midmask.reason": "ValueError: no"}, {}, {})
    app = page("progress", [job, early])
    assert ("Its process has ended" in html(app)) == killed and "run_recipe &lt;a&gt;" in html(app)
    lines = app.code[0].value.splitlines()
    assert lines == [f"line {number} of the log" for number in range(2000 - len(lines), 2000)] and len(lines) > 5
    assert table(app, "ended early")[1][0][4].startswith("ValueError: no")
