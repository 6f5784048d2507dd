"""Predicted and taken seconds of twelve steps of each training, on this machine.

    python -m tests.speed.twelve_steps

Each training is a recipe's own step on the embedded corpus, predicted as `--dry-run` does it and then run. The first is
predicted by the device table, the others by what those before them reached, as in any storage. Whatever runs beside
makes the machine slower than it was predicted to be: run this alone.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from midmask.artifact import Place, load
from midmask.estimate import estimate
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.step import Step
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES

STEPS, FACTOR = 12, 1.5
METHODS = ("mlm", "condenser", "retromae", "dupmae", "lexmae", "cocondenser", "cotmae", "simcse")


@dataclass(frozen=True)
class Compared:
    name: str
    rows: int
    predicted: float
    taken: float

    def __str__(self) -> str:
        ratio = self.predicted / self.taken
        verdict = "yes" if 1 / FACTOR <= ratio <= FACTOR else "no"
        return f"| {self.name} | {self.rows} | {self.predicted:.1f} | {self.taken:.1f} | {ratio:.2f} | {verdict} |"


def trainings(backbone: str, rows: int) -> Iterator[tuple[str, Step]]:
    """Of each method, and of fine-tuning in two representations."""
    shape = {
        "backbone.name": backbone,
        "tokens.tokenizer": backbone,
        "tokens.max_length": 128,
        "spans.span_length": 128,
    }
    shape |= {"corpus.max_passages": 600, "corpus.packages": ["numpy"]}
    tuning = {"stages.0.train.steps": STEPS, "stages.0.train.batch_size": rows}
    for name in METHODS:
        short = {"pretrain.steps": STEPS, "pretrain.batch_size": rows, "pretrain.health_every": 0}
        recipe = override(RECIPES[name](), {**shape, **short, **tuning})
        yield name, plan(recipe).pretrained
        if name == METHODS[0]:
            yield "fine-tuning, dense", plan(recipe).stages[0]
            lexical = override(recipe, {"representation.dense": None, "representation.lexical": "splade"})
            yield "fine-tuning, SPLADE", plan(lexical).stages[0]


def compare(name: str, step: Step, storage: Place, runner: Runner) -> Compared:
    for source in step.sources().values():
        runner.run(source)
    told = estimate([step], storage)
    predicted = 3600 * sum(told.hours(charge) for charge in told.charges)
    runner.run(step)
    return Compared(name, step.config.train.batch_size, predicted, load(step.place(storage)).result["seconds"])  # type: ignore[attr-defined]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--rows", type=int, default=32)
    options = parser.parse_args(arguments)
    print(f"`python -m tests.speed.twelve_steps {' '.join(arguments)}`\n")
    print(f"| training | rows a step | predicted, s | taken, s | ratio | within {FACTOR} |")
    print("| :------- | ----------: | -----------: | -------: | ----: | :- |")
    with tempfile.TemporaryDirectory() as folder:
        storage = Place(folder)
        runner = Runner(storage, LOCAL, Silent())
        for name, step in trainings(options.backbone, options.rows):
            print(compare(name, step, storage, runner), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
