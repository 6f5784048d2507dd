"""Tests of a group run in one process, as tests/conftest.py counts on: two Rays, or two stores, would fill the machine.

pytest 9.2 keeps node ids where pytest-xdist 3.8 does not look, and groups are then ignored without a word
(pytest-xdist issue 1386); hence `pytest<9.2`.
"""

import re
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test(number):
    pass
"""


def test_a_group_is_run_by_one_process(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-v", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    processes = re.findall(r"^\[(gw\d)\]", done.stdout, re.MULTILINE)
    assert len(processes) == 12 and len(set(processes)) == 1, done.stdout
