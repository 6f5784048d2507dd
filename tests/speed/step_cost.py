"""What a training step costs, as a multiple of Hugging Face's masked LM step.

    python -m tests.speed.step_cost [--objective NAME … | --all] [--backbone base] [--rounds 9] [--cpu-time]

Same backbone shape and starting weights, same number of encoded spans (16 x 128 full rows; where both spans of a row
are encoded, 8 rows of two), V = 30,522, fp32, 2 threads, eager, AdamW included on both sides; steps alternate and
medians are compared. Hugging Face's side gets ready-made masks for nothing; ours draws its own. Pseudo-queries are 32
tokens long and come on top. `cocondenser-cached` is coCondenser with a gradient cache, in micro-batches of a quarter.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.masking import corrupt, select_words
from midmask.objectives import PRETRAINING, Objective
from midmask.objectives.sample import full_rows, pretraining_batch, sample_vocabulary
from midmask.randomness.masks import Purpose
from midmask.training.loop import Divided, accumulate
from midmask.training.optimiser import TrainConfig
from midmask.vocabulary import Vocabulary
from tests.speed.steps import interleaved, objective_named, training_step

SPANS, LENGTH = 16, 128
CACHED = "cocondenser-cached"
GOALS = {"retromae": 1.25, "dupmae": 1.6, "lexmae": 1.5, "cocondenser": 1.4, CACHED: 1.9, "cotmae": 1.6}
YARDSTICK = "hugging face mlm"


def hugging_face_step(backbone: str, words: Vocabulary) -> Callable[[], None]:
    text = full_rows(SPANS, LENGTH, words, seed=1)
    model = build_backbone(BackboneConfig(name=backbone), words, seed=0).model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    selected = select_words(text, words, ratio=0.15, purpose=Purpose.SELECT)
    ids, seen = corrupt(text, selected, words), torch.ones_like(text.ids_BL)
    labels = torch.where(selected, text.ids_BL, -100)

    def step() -> None:
        optimiser.zero_grad()
        model(input_ids=ids, attention_mask=seen, labels=labels).loss.backward()
        optimiser.step()

    return step


def midmask_step(name: str, backbone: str, words: Vocabulary) -> Callable[[], None]:
    objective = objective_named(name.removesuffix("-cached"), backbone, words)
    config = PRETRAINING[name.removesuffix("-cached")].Config()
    rows = SPANS // 2 if config.reads().rows == "spans" else SPANS
    batch = pretraining_batch(config, words, rows=rows, length=LENGTH)
    return cached_step(objective, batch, rows) if name == CACHED else training_step(objective, batch)


def cached_step(objective: Objective, batch: Batch, rows: int) -> Callable[[], None]:
    """The training loop's step in four micro-batches, which for coupled objectives means a gradient cache."""
    model, optimiser = Divided(objective), torch.optim.AdamW(objective.parameters(), lr=1e-4)
    quarter = rows // 4
    config = TrainConfig(steps=1, batch_size=rows, learning_rate=1e-4, micro_batch=quarter, precision="fp32")
    batches = [
        replace(batch, texts={name: rows_of(text, at, quarter) for name, text in batch.texts.items()})
        for at in range(0, rows, quarter)
    ]

    def step() -> None:
        optimiser.zero_grad()
        accumulate(model, objective, config, batches, ())
        optimiser.step()

    return step


def rows_of(text: TokenRows, at: int, count: int) -> TokenRows:
    part = slice(at, at + count)
    return TokenRows(text.ids_BL[part], text.lengths_B[part], text.keys_B[part])


def measure(name: str, backbone: str, rounds: int, clock: Callable[[], float]) -> None:
    """Prints both medians and their ratio."""
    words = sample_vocabulary()
    steps = {YARDSTICK: hugging_face_step(backbone, words), name: midmask_step(name, backbone, words)}
    seconds = interleaved(steps, rounds, clock)
    goal = f"goal {GOALS[name]:.2f}" if name in GOALS else "no goal"
    print(
        f"{name:18} {seconds[name] * 1000:6.0f} ms a step, {YARDSTICK} {seconds[YARDSTICK] * 1000:6.0f} ms; "
        f"ratio {seconds[name] / seconds[YARDSTICK]:.3f} ({backbone}, {SPANS} x {LENGTH}, V 30522; {goal})",
        flush=True,
    )


def main() -> None:
    names = (*PRETRAINING, CACHED)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--objective", nargs="+", default=["retromae"], choices=names, metavar="NAME")
    parser.add_argument("--all", action="store_true", help="every objective that pre-trains")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: processor time of one thread")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu_time else options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    for name in names if options.all else options.objective:
        measure(name, options.backbone, options.rounds, clock)


if __name__ == "__main__":
    main()
