"""The loss curve of a middle training in bf16, beside the same in fp32 and beside what another seed does to it.

    python -m tests.speed.bf16_curve --corpus beir:../shared/data/squad --storage PLACE

MiniLM on a collection's passages: fp32 with three seeds, bf16 with the first. Each curve is the mean loss of windows of
twenty steps. What lies in the storage is not computed again. An optimisation in bf16 is as good as one in fp32 if the
two curves of one seed lie closer together than curves of different seeds do.
"""

import argparse
import sys
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.training.table import read_table

WINDOW = 20
SEEDS = (0, 1, 2)


def curve(options: argparse.Namespace, precision: str, seed: int) -> NDArray[np.float64]:
    """Mean losses of windows, shape [steps / WINDOW]."""
    changes = {"backbone.name": "minilm", "tokens.tokenizer": "minilm", "corpus.name": options.corpus}
    sizes = {"pretrain.steps": options.steps, "pretrain.batch_size": options.rows, "tokens.max_length": 128}
    train = {
        "pretrain.precision": precision,
        "pretrain.seed": seed,
        "pretrain.learning_rate": 5e-5,
        "pretrain.health_every": 0,
    }
    recipe = override(RECIPES[options.method](), {**changes, **sizes, **train})
    storage = Place(options.storage)
    trained = Runner(storage, LOCAL, Silent()).run(plan(recipe).pretrained)
    losses = read_table(trained.place / "trace.parquet")["loss"].to_numpy()
    means: NDArray[np.float64] = losses[: len(losses) // WINDOW * WINDOW].reshape(-1, WINDOW).mean(axis=1)
    return means


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="FORMAT:PLACE of a collection")
    parser.add_argument("--storage", required=True)
    parser.add_argument("--method", default="mlm", choices=list(RECIPES))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=16)
    options = parser.parse_args(arguments)
    bf16, whole = curve(options, "bf16", SEEDS[0]), [curve(options, "fp32", seed) for seed in SEEDS]
    print(f"`python -m tests.speed.bf16_curve {' '.join(arguments)}`\n")
    print("| steps | bf16 | " + " | ".join(f"fp32, seed {seed}" for seed in SEEDS) + " |")
    print("| --: " * (2 + len(SEEDS)) + "|")
    for number, row in enumerate(zip(bf16, *whole, strict=True)):
        print(f"| to {(number + 1) * WINDOW} | " + " | ".join(f"{value:.4f}" for value in row) + " |")
    apart = np.mean([np.abs(one - other).mean() for one, other in combinations(whole, 2)])
    print(f"\nbf16 and fp32, seed {SEEDS[0]}: {np.abs(bf16 - whole[0]).mean():.4f} apart on average, at most ", end="")
    print(f"{np.abs(bf16 - whole[0]).max():.4f}; two seeds in fp32: {apart:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
