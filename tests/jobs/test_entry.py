"""A job started with the wrong Python says so in one line; with the right one it hands over to the house's `run`."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = Path(__file__).resolve().parents[2] / "jobs" / "_entry.py"
JOB = 'from _entry import run\n\nrun("pretrain")\n'
BARE = [sys.executable, "-S"]  # a Python without site-packages: neither midmask nor what it needs


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    shutil.copy(ENTRY, tmp_path / "jobs")
    path = tmp_path / "jobs" / "work.py"
    path.write_text(JOB)
    return path


def said(*command: str | Path, path: Path | None = None) -> tuple[int, list[str]]:
    environment = {"PATH": "/usr/bin:/bin"} | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.stdout
    return done.returncode, done.stderr.splitlines()


def test_without_midmask_one_line_names_the_interpreter_and_what_to_type(job: Path) -> None:
    code, lines = said(*BARE, job)
    assert code == 2 and len(lines) == 1
    assert sys.executable in lines[0] and "lacks midmask" in lines[0] and "make venv" in lines[0]


def test_a_missing_dependency_is_named(job: Path, tmp_path: Path) -> None:
    record = tmp_path / "site" / "midmask-0.1.0.dist-info"
    record.mkdir(parents=True)
    record.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\nName: midmask\nVersion: 0.1.0\n"
        'Requires-Dist: unheard-of; extra == "dev"\nRequires-Dist: quite-missing[all]<3,>=1\n'
    )
    code, lines = said(*BARE, job, path=record.parent)
    assert code == 2 and len(lines) == 1
    assert "lacks quite-missing, which midmask needs" in lines[0]


def test_old_pythons_can_read_the_entry() -> None:
    """A syntax error would be a traceback where one line is promised."""
    ast.parse(ENTRY.read_text(), feature_version=(3, 6))


def test_with_midmask_the_job_runs(job: Path) -> None:
    done = subprocess.run([sys.executable, job, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Middle training: trains an encoder" in done.stdout, done.stderr
