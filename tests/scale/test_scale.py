"""A cluster whose nodes share nothing makes what one machine makes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale.machine import missing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(missing()), reason=missing() or "never")
def test_the_pipeline_on_machines_without_a_common_disk(tmp_path: Path, data: Path) -> None:
    flags = ["--only", "pipeline", "--out", str(tmp_path), "--collection", str(data / "cranfield")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.scale", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "files are equal" in done.stdout
