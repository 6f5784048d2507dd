"""Temporary folders, swept if their process was killed; and long calls into Ray, which end at an interrupt."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from midmask.backend.interrupt import run_interruptibly
from midmask.backend.scratch import ROOT, Scratch, scratch

OWNER = """
import sys, time
from pathlib import Path
from midmask.backend.scratch import Scratch
print(Scratch(Path(sys.argv[1])).folder, flush=True)
time.sleep(600)
"""


def test_folders_of_killed_processes_are_swept_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    owners = [
        subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    dead, living = (Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout)
    (tmp_path / "mm-of-somebody").mkdir()
    (tmp_path / "mm-made-again" / "ray" / "session").mkdir(parents=True)
    (dead / "ray" / "session").mkdir(parents=True)
    owners[0].send_signal(signal.SIGKILL)
    owners[0].communicate()
    assert dead.exists()
    with scratch(tmp_path) as own:
        assert not dead.exists()
        assert {path.name for path in tmp_path.iterdir()} == {own.name, living.name, "mm-of-somebody"}
    assert living.exists() and not own.exists()
    owners[1].kill()
    owners[1].communicate()


def test_a_folder_is_private_and_short(tmp_path: Path) -> None:
    own = Scratch(tmp_path)
    assert stat.S_IMODE(own.folder.stat().st_mode) == 0o700
    assert len(str(ROOT / own.folder.name)) <= 16
    own.remove()
    assert list(tmp_path.iterdir()) == []


LONG = """
import signal, threading, time
from midmask.backend.interrupt import run_interruptibly

def fit():
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda number, frame: None)
    print("begun", flush=True)
    time.sleep(600)

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    run_interruptibly(fit)
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_an_interrupt_ends_a_call_that_would_swallow_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    process.stdout.close()


def test_results_and_errors_come_back() -> None:
    assert run_interruptibly(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0)
