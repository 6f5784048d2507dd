"""Every fine-tuning protocol by `jobs/run_recipe.py`: killed with -9 while it runs, and started again until it is done.

    python -m midmask.backend.head -- python -m tests.jobs.every_protocol --recipe mlm [PROTOCOL …] [-- FLAGS]
    python -m tests.jobs.every_protocol --here --recipe mlm [PROTOCOL …] [-- PATH=VALUE …]

A run is killed in each step that --kill-in names, in their order, once the step has begun and up to two seconds (by a
seeded generator) have passed; a step that has ended by then bears a question mark. Prints, as a Markdown table, where
it was killed, what the finished run measured on dev, and how long it took. With --here the same steps run one after the
other in this process, without Ray and without kills; with --unbroken it says whether a run in another storage that is
not killed measures the same to the last digit. Flags behind `--` go to the job.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from midmask.artifact import Place
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from tests.support.jobs.killing import kill_tree

JOB = Path(__file__).resolve().parents[2] / "jobs" / "run_recipe.py"


@dataclass(frozen=True)
class Outcome:
    """The steps that a run was killed in, its measures on dev, and the seconds it ran."""

    killed_in: list[str]
    measures: dict[str, float]
    seconds: float


def start(arguments: list[str], storage: Path) -> subprocess.Popen[str]:
    places = ["--storage", str(storage), "--tracking-uri", f"sqlite:///{storage}/mlflow.db"]
    command = [sys.executable, str(JOB), *arguments, *places]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(arguments: list[str], storage: Path, steps: list[str], draw: random.Random) -> Outcome:
    """Runs the job, killed once in each of the steps, then to its end.

    Raises:
        RuntimeError: if the last run does not end well.
    """
    begun = time.monotonic()
    killed_in = [kill_in(step, start(arguments, storage), storage, draw.uniform(0, 2)) for step in steps]
    last = start(arguments, storage)
    out, _ = last.communicate(timeout=3600)
    if last.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {last.returncode}\n{out[-3000:]}")
    return Outcome(killed_in, measured(storage, out), time.monotonic() - begun)


def kill_in(step: str, process: subprocess.Popen[str], storage: Path, wait: float) -> str:
    """Kills the job `wait` seconds after it has begun the step, or lets it end if it never does."""
    while process.poll() is None and not begun_in(storage / step):
        time.sleep(0.01)
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        found = step if begun_in(storage / step) else f"{step}?"
        kill_tree(process)
        return found
    process.communicate()
    return f"{step}: not begun"


def begun_in(folder: Path) -> bool:
    """Whether an artifact of this step is being written."""
    return any(folder.glob("*.attempts/*"))


def run_here(recipe: str, protocol: str, storage: Path, changes: list[str]) -> Outcome:
    begun = time.monotonic()
    asked = PROTOCOLS[protocol]().on(RECIPES[recipe](), "demo")
    wanted = override(asked, dict(change.split("=", 1) for change in changes))
    wanted.check()
    done = Runner(Place(str(storage)), LOCAL, Silent()).run(plan(wanted).evaluation(wanted.evaluation))
    measures = {name: round(value, 4) for name, value in done.result["measures"].items()}
    return Outcome([], measures, time.monotonic() - begun)


def measured(storage: Path, out: str) -> dict[str, float]:
    """The measures on dev that the job printed."""
    header, _, row = [line for line in out.splitlines() if line.startswith("|")][:3]
    names, values = ([cell.strip() for cell in line.strip("|").split("|")] for line in (header, row))
    return dict(zip(names[1:], map(float, values[1:]), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocols", nargs="*", default=list(PROTOCOLS))
    parser.add_argument("--recipe", default="mlm")
    parser.add_argument("--kill-in", action="append", default=[], metavar="STEP", help="may be given again")
    parser.add_argument("--unbroken", action="store_true")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--storage", type=Path, default=None)
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    flags = sys.argv[len(own) + 2 :]
    options = parser.parse_args(own)
    storage = options.storage or Path(tempfile.mkdtemp(prefix="every"))
    storage.mkdir(parents=True, exist_ok=True)
    print("| protocol | killed in | dev | seconds |\n| :-- | :-- | :-- | --: |", flush=True)
    equal = True
    for number, name in enumerate(options.protocols):
        arguments = ["--recipe", options.recipe, "--protocol", name, *flags]
        draw = random.Random(number)
        if options.here:
            outcome = run_here(options.recipe, name, storage, flags)
        else:
            outcome = run(arguments, storage, options.kill_in, draw)
        told = json.dumps(outcome.measures)
        if options.unbroken:
            same = run(arguments, Path(tempfile.mkdtemp(prefix="unbroken")), [], draw).measures == outcome.measures
            told += " (unbroken: the same)" if same else " (UNBROKEN: ANOTHER)"
            equal &= same
        print(f"| {name} | {', '.join(outcome.killed_in) or '—'} | {told} | {outcome.seconds:.0f} |", flush=True)
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
