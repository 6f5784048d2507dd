"""The fuzzer, short; and the fuzzer itself: what it is meant to see, it sees."""

import faulthandler
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from midmask.errors import UserError
from tests.fuzz.running import Outcome, run

ROOT = Path(__file__).resolve().parents[2]
CASES, SEED = 300, 9


def test_bad_inputs_are_read_quarantined_or_refused() -> None:
    """In a process of its own, which forks: pytest has threads."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(CASES), "--seed", str(SEED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr[-5000:]}\n{done.stdout}"
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    counts = {name: [int(cell.replace(",", "")) for cell in cells] for name, *cells in lines}
    number, *outcomes, _ = counts.pop("all")
    assert number == CASES and min(outcomes) > CASES / 10 and len(counts) == 23
    assert all(any(own[1:4]) and not own[4] for own in counts.values()), counts


def _ends(how: str, rng: random.Random, folder: Path) -> Outcome:
    if how == "refuse":
        raise UserError("no")
    if how == "fail":
        raise KeyError("x")
    if how == "die":
        faulthandler.disable()  # pytest's, which would print the stack of a death that is meant
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "fill":
        return "succeeded" if bytearray(b"x") * (600 << 20) else "refused"
    while how == "hang":
        pass
    return "succeeded"


def test_the_fuzzer_sees_faults_deaths_memory_and_what_has_no_end() -> None:
    names = ("good", "refuse", "fail", "die", "fill", "hang", "last")
    targets = {name: lambda rng, folder, name=name: _ends(name, rng, folder) for name in names}
    found = {one.target: one for one in run(targets, [(name, 0) for name in names], seed=1, ended_after=0.5)}
    assert list(found) == list(names)
    assert [found[name].outcome for name in ("good", "refuse", "last")] == ["succeeded", "refused", "succeeded"]
    assert not any(found[name].fault for name in ("good", "refuse", "last"))
    told = {"fail": "KeyError", "die": "SIGSEGV", "fill": "MemoryError", "hang": "SIGPROF"}
    assert all(word in found[name].fault for name, word in told.items())
