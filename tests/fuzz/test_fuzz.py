"""The fuzzer, short; and the fuzzer itself: what it is meant to see, it sees."""

import faulthandler
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from midmask.errors import UserError
from tests.fuzz.running import Outcome, Target, run

ROOT = Path(__file__).resolve().parents[2]
CASES, SEED = 600, 9


def test_600_bad_inputs_are_read_quarantined_or_refused() -> None:
    """In a process of its own, which forks: pytest has threads. Every target must get past the first byte of some."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(CASES), "--seed", str(SEED), "--processes", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
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


def _hang(rng: random.Random, folder: Path) -> Outcome:
    while True:
        pass


def test_the_fuzzer_sees_faults_deaths_and_memory() -> None:
    cases = {"good": _succeed, "refuse": _refuse, "fail": _fail, "die": _die, "fill": _fill, "last": _succeed}
    targets = {name: Target(name, case) for name, case in cases.items()}
    found = {result.target: result for result in run(targets, [(name, 0) for name in targets], seed=1)}
    assert list(found) == list(targets)
    assert [found[name].outcome for name in ("good", "refuse", "last")] == ["succeeded", "refused", "succeeded"]
    assert not any(found[name].fault for name in ("good", "refuse", "last"))
    assert found["fail"].fault.startswith("KeyError") and "SIGSEGV" in found["die"].fault
    assert "MiB" in found["fill"].fault


def test_the_fuzzer_ends_what_has_no_end() -> None:
    targets = {"hang": Target("hang", _hang), "last": Target("last", _succeed)}
    hung, last = run(targets, [("hang", 0), ("last", 0)], seed=1, ended_after=0.5)
    assert "SIGPROF" in hung.fault and (last.outcome, last.fault) == ("succeeded", "")
