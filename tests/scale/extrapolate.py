"""What a dry run says of ten million, a hundred million and a billion passages, and what gives way first.

    python -m tests.scale.extrapolate

A recipe of BERT's base size with mined negatives is planned on a collection of which a few thousand passages of
Wikipedia are there: the record says that there are so many. Queries are as many as MS MARCO's. Nothing is computed but
the sample. Prints a Markdown table.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from midmask.artifact import RECORD, Place
from midmask.errors import UserError
from midmask.estimate import Estimate, estimate, refuse_impossible, shape_named
from midmask.estimate.charge import Charge
from midmask.estimate.rendering import format_count, lasting
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.progress import gib
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from tests.scale.collection import write_collection

SAMPLE = 4_000
STEPS, ROWS = 100_000, 256
SIZES = (10**7, 10**8, 10**9)
QUERIES = {"train": 502_939, "dev": 6_980}

LISTS = {"index": "IVF65536,PQ64", "nprobe": 64, "rescore": 0}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "two cores, 24 GiB": ("2xcpu:24", {}),
    "eight H100, 2 TiB": ("8xH100:2048", {}),
    "the same, `IVF65536,PQ64` built by 64 threads": ("8xH100:2048", {**LISTS, "threads": 64}),
}
"""What a row is called -> the shape, and changes of the evaluation and of the mining."""


def sampled(storage: Place, folder: Path) -> tuple[Recipe, dict[str, Any]]:
    """The recipe, its collection's sample prepared, and the record of that."""
    corpus = write_collection(folder / "collection", SAMPLE)
    wanted = {"corpus.name": corpus, "backbone.name": "base", "pretrain.steps": STEPS, "pretrain.batch_size": ROWS}
    recipe = override(PROTOCOLS["ance"]().on(RECIPES["retromae"](), "published"), wanted)
    step = plan(recipe).corpus
    Runner(storage, LOCAL, Silent()).run(step)
    return recipe, (step.place(storage) / RECORD).read_json()


def claim(recipe: Recipe, storage: Place, record: dict[str, Any], passages: int) -> None:
    """Lets the sample's record say that it has so many passages."""
    splits = {name: {**record["result"]["splits"].get(name, {}), "queries": count} for name, count in QUERIES.items()}
    told = {**record["result"], "passages": passages, "queries": sum(QUERIES.values()), "splits": splits}
    (plan(recipe).corpus.place(storage) / RECORD).write_json({**record, "result": told})


def row(recipe: Recipe, storage: Place, passages: int, way: str) -> str:
    """A line of the table."""
    shape, own = WAYS[way]
    mined = [number for number, stage in enumerate(recipe.stages) if stage.mine is not None]
    changes = {f"evaluation.{name}": value for name, value in own.items()}
    changes |= {f"stages.{number}.mine.{name}": value for number in mined for name, value in own.items()}
    changed = override(recipe, changes)
    own_plan = plan(changed)
    targets = [own_plan.evaluation(changed.evaluation), own_plan.bm25_evaluation(changed.evaluation)]
    told = estimate(targets, storage, shape_named(shape))
    largest = max(told.charges, key=told.host)
    cells = (
        f"{passages:,}",
        way,
        _gives_way(told),
        lasting(told.total_hours),
        ", ".join(f"{charge.step.name} {lasting(told.hours(charge))}" for charge in _slowest(told)),
        gib(told.peak_bytes),
        f"{gib(told.host(largest))} ({largest.step.name})",
    )
    return f"| {' | '.join(cells)} |"


def _gives_way(told: Estimate) -> str:
    try:
        refuse_impossible(told)
    except UserError as error:
        return str(error).partition("; ")[0].partition(": ")[2]
    return "nothing is refused"


def _slowest(told: Estimate) -> list[Charge]:
    return sorted(told.charges, key=told.hours, reverse=True)[:2]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mm", dir="/var/tmp") as folder:
        storage = Place(f"{folder}/store")
        recipe, record = sampled(storage, Path(folder))
        steps = sum(stage.train.steps for stage in recipe.stages)
        print(f"{STEPS:,} steps of middle training of {ROWS} rows, {format_count(steps)} of fine-tuning\n")
        heads = ("passages", "on", "gives way first", "in all", "longest steps", "storage", "a host's memory")
        print(f"| {' | '.join(heads)} |\n| --: | :-- | :-- | --: | :-- | --: | :-- |")
        for passages in SIZES:
            claim(recipe, storage, record, passages)
            for way in WAYS:
                print(row(recipe, storage, passages, way), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
