"""Jobs run in this process, with the command line, the environment and the exit code of a process of their own."""

import io
import runpy
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[3] / "jobs"
INTERRUPTED = 130
"""Exit code of a job that was interrupted."""
STORES = ("MIDMASK_STORAGE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")


@dataclass(frozen=True)
class Done:
    """How a job ended, and what it printed."""

    code: int
    out: str
    err: str

    def table(self, number: int = 0) -> dict[str, list[str]]:
        """The rows of the printed table with this number, by their first cell."""
        blocks = [block for block in self.out.split("\n\n") if "\n| " in f"\n{block}" or "\n|-" in block]
        lines = [line for line in blocks[number].splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return {row[0]: row[1:] for row in (cells[0], *cells[2:])}


def run_job(name: str, *arguments: str, home: Path) -> Done:
    """Runs a job with its stores in `home`. What it raises, and does not report as a mistake, is raised here too.

    A job joins the Ray that this process is connected to, if it is. An interrupt, which the job reports as its own end,
    ends the tests; so does SIGTERM once the job has ended, which takes it for an interrupt.
    """
    path = str(JOBS / f"{name}.py")
    out, err = io.StringIO(), io.StringIO()
    terminated = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for variable in STORES:
            patch.delenv(variable, raising=False)
        patch.setenv("MIDMASK_HOME", str(home))
        patch.setattr(sys, "argv", [path, *arguments])
        patch.syspath_prepend(str(JOBS))
        try:
            with pytest.raises(SystemExit) as ended:
                runpy.run_path(path, run_name="__main__")
        finally:
            signal.signal(signal.SIGTERM, terminated)
    if ended.value.code == INTERRUPTED:
        raise KeyboardInterrupt
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())
