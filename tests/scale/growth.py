"""How each step grows from 10,000 passages to a million: seconds, beside what a dry run predicts, and memory.

    nice python -m tests.scale.growth [--sizes 10000 100000 1000000] [--only STEP] --out FOLDER

A recipe with mined negatives runs at each size, step by step, on a local Ray of two CPUs, in a process of its own. What
was measured of a size lies in FOLDER/SIZE.json, so that a run that was ended goes on with the next size. With --only,
one step and what it needs. Prints two tables: seconds predicted and taken, with the exponents of growth, and the
largest memory of one process.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midmask.artifact import Place, load
from midmask.estimate import estimate
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.step import Step
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from tests.scale.collection import write_collection
from tests.support.memory import Peaks

SIZES = (10_000, 100_000, 1_000_000)
CPUS = 2
MEBIBYTE = 1 << 20

SHORT = {
    "tokens.vocabulary_size": 4096,
    "tokens.max_length": 32,
    "tokens.query_length": 16,
    "pretrain.steps": 20,
    "stages.0.train.steps": 20,
    "stages.0.mine.max_queries": None,
}
"""Trainings are short: how long they are does not depend on the collection."""


def steps_of(corpus: str) -> list[Step]:
    """The steps behind the evaluations of a tiny encoder and of BM25, in an order in which they can be run."""
    recipe = PROTOCOLS["dpr"]().on(override(RECIPES["mlm"](), {"corpus.name": corpus}), "demo")
    recipe = override(recipe, SHORT)
    own = plan(recipe)
    found: dict[str, Step] = {}
    for last in (own.evaluation(recipe.evaluation), own.bm25_evaluation(recipe.evaluation)):
        for step in last.upstream():
            found.setdefault(step.fingerprint, step)
    return list(found.values())


def measure(passages: int, only: str | None) -> dict[str, Any]:
    """Runs all steps at one size, or one and what it needs, in this process.

    Returns:
        steps: name -> predicted and taken seconds, and the peak of the USS of the largest process in bytes.
    """
    from midmask.backend.connection import quiet_ray_data
    from midmask.backend.makers import cluster_makers
    from tests.speed.own_ray import start_ray

    with tempfile.TemporaryDirectory(prefix="mm", dir="/var/tmp") as folder:
        corpus = write_collection(Path(folder) / "collection", passages)
        quiet_ray_data()
        start_ray(CPUS, object_store_memory=512 * MEBIBYTE, _temp_dir=f"{folder}/ray")
        storage = Place(f"{folder}/store")
        found: dict[str, dict[str, float]] = {}
        runner = Runner(storage, cluster_makers(CPUS), Silent())
        steps = steps_of(corpus)
        for step in steps if only is None else next(step for step in steps if step.name == only).upstream():
            told = estimate([step], storage)
            predicted = 3600 * sum(told.hours(charge) for charge in told.charges)
            with Peaks() as peaks:
                runner.run(step)
            taken = load(step.place(storage)).result["seconds"]
            own = found.setdefault(step.name, {"predicted": 0.0, "taken": 0.0, "driver": 0, "worker": 0})
            own["predicted"], own["taken"] = own["predicted"] + predicted, own["taken"] + taken
            own["driver"], own["worker"] = max(own["driver"], peaks.driver), max(own["worker"], peaks.worker)
            print(f"{passages:,} {step.name}: {predicted:.1f} s predicted, {taken:.1f} s taken", flush=True)
        return {"passages": passages, "steps": found}


def tables(measured: Sequence[dict[str, Any]]) -> str:
    """Markdown: seconds and exponents, then memory."""
    sizes = [one["passages"] for one in measured]
    heads = " | ".join(f"{size:,}: predicted, s | taken, s | ratio" for size in sizes)
    lines = [f"| step | {heads} | exponent |", f"| :-- |{' --: |' * (3 * len(sizes) + 1)}"]
    for name in measured[0]["steps"]:
        own = [one["steps"][name] for one in measured]
        cells = [f"{s['predicted']:.1f} | {s['taken']:.1f} | {s['predicted'] / max(s['taken'], 0.01):.2f}" for s in own]
        lines.append(f"| {name} | {' | '.join(cells)} | {_exponent(own, sizes)} |")
    lines += ["", f"| step | {' | '.join(f'{size:,}: driver, MiB | worker, MiB' for size in sizes)} |"]
    lines.append(f"| :-- |{' --: |' * (2 * len(sizes))}")
    for name in measured[0]["steps"]:
        own = [one["steps"][name] for one in measured]
        shown = [f"{one['driver'] / MEBIBYTE:.0f} | {one['worker'] / MEBIBYTE:.0f}" for one in own]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _exponent(own: Sequence[dict[str, float]], sizes: Sequence[int]) -> str:
    """Of growth between the two largest sizes: 1 is linear; none for what takes under a second."""
    if len(own) < 2 or own[-1]["taken"] < 1:
        return "—"
    before, last = max(own[-2]["taken"], 0.01), own[-1]["taken"]
    return f"{math.log(last / before) / math.log(sizes[-1] / sizes[-2]):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measure", type=int, help="used by the script itself: the process that measures one size")
    parser.add_argument("--only", help="the step that is measured")
    given = parser.parse_args()
    if given.measure:
        draft = given.out / f"{given.measure}.json.draft"
        draft.write_text(json.dumps(measure(given.measure, given.only), indent=1))
        shutil.move(draft, given.out / f"{given.measure}.json")
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    for size in given.sizes:
        if not (given.out / f"{size}.json").exists():
            own = [sys.executable, "-m", "tests.scale.growth", "--out", str(given.out), "--measure", str(size)]
            own += ["--only", given.only] if given.only else []
            subprocess.run(own, check=True)
    print(tables([json.loads((given.out / f"{size}.json").read_text()) for size in given.sizes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
