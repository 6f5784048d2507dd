"""bf16 against fp32 on a processor, with a pre-trained backbone: steps of middle training, and encoding.

    python -m tests.speed.bf16 [--backbone minilm] [--rounds 5]

Processor time of one thread, the two types in turn in one process, medians. Training: 16 rows of 128 made-up tokens,
AdamW included, as `training.loop` runs it. Encoding: 64 rows of 8 to 256 tokens, as a search encodes them. The peak is
that of a 2,048 x 2,048 matrix product in the type; a share is that of it which a step's own products reach.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from midmask.encoders.precision import Precision
from midmask.objectives import PRETRAINING
from midmask.objectives.sample import pretraining_batch
from midmask.pretrained import model_folder
from midmask.retrieve.models import open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.vocabulary import Vocabulary
from tests.speed.steps import interleaved, objective_named, training_step
from tests.support.estimate.counted import count_flops

ROWS, LENGTH = 16, 128
SIDE = 2048
GOALS = {"encoding": 1.8}
TRAINING_GOAL = 1.7
TYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}

Works = dict[str, Callable[[], object]]


def products() -> Works:
    """A large product in each type."""
    square = torch.rand(SIDE, SIDE)
    return {name: partial(torch.matmul, *[square.to(kind)] * 2) for name, kind in TYPES.items()}


def training(name: str, backbone: str, words: Vocabulary) -> Works:
    batch = pretraining_batch(PRETRAINING[name].Config(), words, rows=ROWS, length=LENGTH)
    return {kind: training_step(objective_named(name, backbone, words), batch, bf16=kind == "bf16") for kind in TYPES}


def encoding(backbone: str, words: Vocabulary) -> Works:
    rng = np.random.default_rng(0)
    rows = [rng.integers(2000, words.size, length) for length in rng.integers(8, 257, 64)]
    encoder = open_encoder(model_folder(backbone), words, "passage")
    return {
        kind: lambda kind=kind: encode_rows(encoder, rows, Encoding(words.pad_id, precision=kind)) for kind in TYPES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objectives", default="mlm,retromae,dupmae")
    options = parser.parse_args()
    torch.set_num_threads(1)
    words = Vocabulary.of(model_folder(options.backbone))
    peak = {name: 2 * SIDE**3 / seconds for name, seconds in timed(products(), options.rounds).items()}
    print(f"peak: fp32 {peak['fp32'] / 1e9:.0f} GFLOP/s, bf16 {peak['bf16'] / peak['fp32']:.1f} times as much\n")
    print(
        "| what | bf16 against fp32 | goal | share of the peak, fp32 | share, bf16 |\n| :-- | --: | --: | --: | --: |"
    )
    works = {name: training(name, options.backbone, words) for name in options.objectives.split(",")}
    for name, own in {**works, "encoding": encoding(options.backbone, words)}.items():
        seconds, flops = timed(own, options.rounds), count_flops(own["fp32"])
        shares = [flops / seconds[kind] / peak[kind] for kind in TYPES]
        goal = GOALS.get(name, TRAINING_GOAL)
        print(
            f"| {name} | {seconds['fp32'] / seconds['bf16']:.2f} | {goal} | {shares[0]:.0%} | {shares[1]:.0%} |",
            flush=True,
        )


def timed(works: Works, rounds: int) -> dict[str, float]:
    return interleaved(works, rounds, clock=time.process_time)


if __name__ == "__main__":
    main()
