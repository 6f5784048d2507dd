"""The fuzzer, short; and the fuzzer itself: what it is meant to see, it sees."""

import faulthandler
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from midmask.errors import UserError
from tests.fuzz.running import Outcome, Target, run

ROOT = Path(__file__).resolve().parents[2]
CASES, SEED = 600, 7


def test_600_bad_inputs_are_read_quarantined_or_refused() -> None:
    """In a process of its own, which forks: pytest has threads. Every target must get past the first byte of some."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(CASES), "--seed", str(SEED), "--processes", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr[-5000:]}\n{done.stdout}"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line][
        2:
    ]
    counts = {row[0]: [int(cell.replace(",", "")) for cell in row[1:6]] for row in rows}
    assert counts.pop("all")[0] == CASES and len(counts) >= 28
    for name, (_, succeeded, quarantined, refused, faults) in counts.items():
        assert succeeded + quarantined and refused + quarantined and not faults, f"{name}: {counts[name]}"


def _succeed(rng: random.Random, folder: Path) -> Outcome:
    (folder / "x").write_text("x")
    return "succeeded"


def _refuse(rng: random.Random, folder: Path) -> Outcome:
    raise UserError("no")


def _fail(rng: random.Random, folder: Path) -> Outcome:
    raise KeyError("x")


def _die(rng: random.Random, folder: Path) -> Outcome:
    faulthandler.disable()  # pytest's, which would print the stack of a death that is meant
    os.kill(os.getpid(), signal.SIGSEGV)
    return "succeeded"


def _fill(rng: random.Random, folder: Path) -> Outcome:
    return "succeeded" if bytearray(b"x") * (600 << 20) else "refused"


def _turn(rng: random.Random, folder: Path) -> Outcome:
    end = time.process_time() + 2.05
    while time.process_time() < end:
        pass
    return "succeeded"


def test_the_fuzzer_sees_faults_deaths_memory_and_time() -> None:
    cases = {"good": _succeed, "refuse": _refuse, "fail": _fail, "die": _die, "fill": _fill}
    cases |= {"turn": _turn, "last": _succeed}
    targets = {name: Target(name, case) for name, case in cases.items()}
    found = {result.target: result for result in run(targets, [(name, 0) for name in targets], seed=1)}
    assert list(found) == list(targets)
    assert [found[name].outcome for name in ("good", "refuse", "last")] == ["succeeded", "refused", "succeeded"]
    assert not any(found[name].fault for name in ("good", "refuse", "last"))
    assert found["fail"].fault.startswith("KeyError") and "SIGSEGV" in found["die"].fault
    assert "MiB" in found["fill"].fault and "processor time" in found["turn"].fault
