"""Every recipe's middle training through its job: started, killed with -9 at its first checkpoint, started again.

    python -m midmask.backend.head -- python -m tests.jobs.every_recipe --corpus beir:../shared/data/wiki [RECIPE …]

Prints, as a Markdown table, each recipe's loss parts at the beginning and the end of the run.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from midmask.recipes import RECIPES
from tests.support.jobs.killing import kill_tree

JOB = Path(__file__).resolve().parents[2] / "jobs" / "pretrain.py"
WINDOW = 20
"""Steps that the beginning and the end of a run are averaged over."""


@dataclass(frozen=True)
class Outcome:
    """One recipe's run: the checkpoint it was killed at (none if it ended before), and its steps in order."""

    killed_at: int | None
    steps: list[dict[str, Any]]

    def parts(self) -> dict[str, tuple[float, float]]:
        """Mean of each loss part over the first and the last steps."""
        first = self.steps[0] if self.steps else {}
        names = [name for name, value in first.items() if name.startswith("part/") and value is not None]
        ends = (self.steps[:WINDOW], self.steps[-WINDOW:])
        return {
            name.removeprefix("part/"): tuple(sum(step[name] for step in end) / len(end) for end in ends)  # type: ignore[misc]
            for name in names
        }


def start(recipe: str, corpus: str, storage: Path, steps: int) -> subprocess.Popen[str]:
    changes = [f"pretrain.steps={steps}", "pretrain.checkpoint_every=40", "pretrain.log_every=10"]
    places = ["--storage", str(storage), "--tracking-uri", f"sqlite:///{storage}/mlflow.db"]
    command = [sys.executable, str(JOB), "--recipe", recipe, "--corpus", corpus, *places]
    command += [word for change in changes for word in ("--set", change)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def kill_at_checkpoint(process: subprocess.Popen[str], storage: Path, timeout_s: float = 900) -> int | None:
    """Kills the job and all it started once a checkpoint is whole; its step, or none if the job ended first."""
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        found = sorted(storage.glob("pretrain/*.attempts/*/checkpoints/step-*/position.json"))
        if found:
            kill_tree(process)
            return int(found[0].parent.name.removeprefix("step-"))
        time.sleep(0.05)
    return None


def run(recipe: str, corpus: str, storage: Path, steps: int) -> Outcome:
    """Raises RuntimeError if the second run does not end well."""
    before = set(storage.glob("pretrain/*/trace.parquet"))
    killed_at = kill_at_checkpoint(start(recipe, corpus, storage, steps), storage)
    again = start(recipe, corpus, storage, steps)
    out, err = again.communicate(timeout=1800)
    if again.returncode:
        raise RuntimeError(f"{recipe}: exit code {again.returncode}\n{out[-1000:]}\n{err[-3000:]}")
    new = set(storage.glob("pretrain/*/trace.parquet")) - before
    return Outcome(killed_at, pq.read_table(new.pop()).to_pylist() if new else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--corpus", default="pydocs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--storage", type=Path, default=None)
    options = parser.parse_args()
    storage = options.storage or Path(tempfile.mkdtemp(prefix="every"))
    print("| recipe | killed at | steps, each once | loss parts: first and last 20 steps |\n| :-- | --: | --: | :-- |")
    failed = False
    for recipe in options.recipes:
        outcome = run(recipe, options.corpus, storage, options.steps)
        once = [step["step"] for step in outcome.steps] == list(range(len(outcome.steps)))
        parts = outcome.parts()
        falls = all(last < first for first, last in parts.values())
        told = (
            ", ".join(f"{name} {first:.3f} → {last:.3f}" for name, (first, last) in parts.items()) or "nothing to train"
        )
        print(
            f"| {recipe} | {outcome.killed_at or '—'} | {len(outcome.steps) if once else 'NOT ONCE'} | {told} |",
            flush=True,
        )
        failed |= not (once and falls)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
