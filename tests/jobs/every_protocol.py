"""Every fine-tuning protocol by `jobs/run_recipe.py`: killed with -9 while it runs, and started again until it is done.

    python -m midmask.cluster.head -- python -m tests.jobs.every_protocol --recipe mlm [PROTOCOL …] [-- FLAGS]
    python -m tests.jobs.every_protocol --here --recipe mlm [PROTOCOL …] [-- PATH=VALUE …]

A run is killed after as many seconds as the n-th number of a seeded generator says, --kills times, wherever it then is.
Prints, as a Markdown table, at which step each kill came, what the finished run measured on dev, and how long it took.
With --here the same steps run one after the other in this process, without Ray and without kills; with --unbroken it
says whether a run in another storage that is not killed measures the same to the last digit. Flags behind `--` go to
the job.
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
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.plan import plan
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.run import Runner, Silent
from midmask.steps import LOCAL
from tests.jobs.killing import kill_tree

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


def run(arguments: list[str], storage: Path, waits: list[float]) -> Outcome:
    """Runs the job, killed once after each of the waits, then to its end.

    Raises:
        RuntimeError: if the last run does not end well.
    """
    begun, killed_in = time.monotonic(), list[str]()
    for wait in waits:
        process = start(arguments, storage)
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            killed_in.append(running(storage))
        kill_tree(process) if process.poll() is None else process.communicate()
    last = start(arguments, storage)
    out, _ = last.communicate(timeout=3600)
    if last.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {last.returncode}\n{out[-3000:]}")
    return Outcome(killed_in, measured(storage, out), time.monotonic() - begun)


def run_here(recipe: str, protocol: str, storage: Path, changes: list[str]) -> Outcome:
    begun = time.monotonic()
    asked = PROTOCOLS[protocol]().on(RECIPES[recipe](), "demo")
    wanted = override(asked, dict(change.split("=", 1) for change in changes))
    wanted.check()
    done = Runner(Place(str(storage)), LOCAL, Silent()).run(plan(wanted).evaluation(wanted.evaluation))
    measures = {name: round(value, 4) for name, value in done.result["measures"].items()}
    return Outcome([], measures, time.monotonic() - begun)


def running(storage: Path) -> str:
    """The step whose files changed last: the one that was killed."""
    files = [path for path in storage.glob("*/*/**/*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime).relative_to(storage).parts[0] if files else "start"


def measured(storage: Path, out: str) -> dict[str, float]:
    """The measures on dev that the job printed."""
    header, _, row = [line for line in out.splitlines() if line.startswith("|")][:3]
    names, values = ([cell.strip() for cell in line.strip("|").split("|")] for line in (header, row))
    return dict(zip(names[1:], map(float, values[1:]), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocols", nargs="*", default=list(PROTOCOLS))
    parser.add_argument("--recipe", default="mlm")
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--longest", type=float, default=60.0, help="seconds after which a run is killed at the latest")
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
            outcome = run(arguments, storage, [draw.uniform(10, options.longest) for _ in range(options.kills)])
        told = json.dumps(outcome.measures)
        if options.unbroken:
            same = run(arguments, Path(tempfile.mkdtemp(prefix="unbroken")), []).measures == outcome.measures
            told += " (unbroken: the same)" if same else " (UNBROKEN: ANOTHER)"
            equal &= same
        print(f"| {name} | {', '.join(outcome.killed_in) or '—'} | {told} | {outcome.seconds:.0f} |", flush=True)
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
