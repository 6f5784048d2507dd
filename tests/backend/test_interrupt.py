"""A long call into Ray ends at an interrupt as all else does, whatever handlers it would install."""

import signal
import subprocess
import sys

import pytest

from midmask.backend.interrupt import run_interruptibly

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
