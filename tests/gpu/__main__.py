"""What only a GPU can show, in three parts of less than ten minutes each: the same numbers as on a CPU, the speed of
every middle training, and a whole training.

    python -m tests.gpu --part parity                     (or: pytest -m gpu)
    python -m tests.gpu --part speed
    python -m tests.gpu --part train --data FOLDER        (a collection in BEIR's layout with splits train and dev)
    python -m tests.gpu --cpu                             (all parts, reduced, without a GPU)

Needs torch, transformers, pydantic (with pydantic-core, annotated-types and typing-inspection), pyarrow and numpy, and
platform/ and the project's root on PYTHONPATH; no ray, mlflow, faiss, optuna, bm25s, ir-measures or scipy. Prints
Markdown. Exit code 1: something that must be equal is not, or a measurement failed.
"""

import argparse
import gc
import itertools
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pyarrow.parquet as pq
import torch
from torch.utils.flop_counter import FlopCounterMode

from midmask.core.config import override
from midmask.errors import UserError, reason
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import Plan, plan
from midmask.experiment.run import Runner
from midmask.objectives import PRETRAINING
from midmask.objectives.sample import pretraining_batch
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.artifact import load
from midmask.store.place import Place
from midmask.training.loop import to_device
from tests.benchmarks.training import objective_named, training_step
from tests.gpu.cases import all_cases
from tests.support.corpora.collections import write_beir
from tests.support.objectives.texts import sample_vocabulary

NO_TIME = "not measured, for lack of time"
SYSTEMS = [*itertools.product(("none", "retromae"), ("in_batch", "in_batch_splade"))]
"""Recipes and protocols of part train."""

WHOLE = SimpleNamespace(
    **{"backbone": "base", "words": 30522, "lengths": (128, 512), "tokens": 16_384, "side": 8192, "rounds": 10},
    **{"trained": "small", "vocabulary": 8192, "steps": (1500, 800), "rows": 128},
)
REDUCED = SimpleNamespace(
    **{"backbone": "tiny", "words": 500, "lengths": (16, 32), "tokens": 128, "side": 256, "rounds": 2},
    **{"trained": "tiny", "vocabulary": 400, "steps": (12, 8), "rows": 8},
)
"""Of speed: an encoder, entries of its vocabulary, tokens of the passages of one step in rows of these lengths, side of
the matrices whose product gives the peak, rounds of timing. Of train: an encoder and entries of its vocabulary, steps
of middle training and of fine-tuning, their rows.
"""


@dataclass(frozen=True)
class Program:
    """device: where. until: of `time.monotonic`; nothing is begun later."""

    device: torch.device
    sizes: SimpleNamespace
    until: float

    def seconds(self, work: Callable[[], object], rounds: int, warm: int = 2) -> float:
        """The median, the device waited for before and after each."""
        wait = torch.cuda.synchronize if self.device.type == "cuda" else lambda: None
        times = []
        for _ in range(warm + rounds):
            wait()
            start = time.perf_counter()
            work()
            wait()
            times.append(time.perf_counter() - start)
        return median(times[warm:])

    def parity(self) -> bool:
        """Every case: what the device computes, against float64 on the CPU (float32 for what is drawn or encoded)."""
        good = True
        print("| what | largest relative difference in fp32, bf16 | tolerances | passed |\n| :-- | --: | --: | :-- |")
        for case in all_cases():
            try:
                found = case.differences(self.device).values()
                passed, failure = all(apart <= most for apart, most in found), ""
            except Exception as error:  # every row is wanted, whatever one of them meets on a device
                found, passed, failure = [], False, reason(error)
            apart, most = (", ".join(f"{pair[place]:.0e}" for pair in found) for place in (0, 1))
            print(f"| {case.name} | {apart} | {most} | {'yes' if passed else f'**no** {failure}'} |", flush=True)
            good &= passed
        return good

    def speed(self) -> bool:
        """Tokens a second of every method's steps (masks, forward and backward pass, AdamW; bf16 autocast on a GPU),
        and the share of the rate of one large product of the same type that they reach.
        """
        sizes, dtype = self.sizes, torch.bfloat16 if self.device.type == "cuda" else torch.float32
        left, right = (torch.randn(sizes.side, sizes.side, device=self.device, dtype=dtype) for _ in range(2))
        peak = 2 * sizes.side**3 / self.seconds(lambda: left @ right, 3 * sizes.rounds)
        print(f"Peak {peak / 1e12:.4g} TFLOP/s; `{sizes.backbone}`, {sizes.tokens:,} tokens of passages a step.\n")
        print("| method | tokens of a row | tokens a second | share of the peak |\n| :-- | --: | --: | --: |")
        good = True
        for name, length in itertools.product(PRETRAINING, sizes.lengths):
            try:
                told = NO_TIME if time.monotonic() >= self.until else self._method(name, length, peak)
            except Exception as error:  # the others are still to be measured
                told, good = reason(error), False
            print(f"| {name} | {length} | {told} |", flush=True)
            gc.collect()
            torch.cuda.empty_cache()
        return good

    def _method(self, name: str, length: int, peak: float) -> str:
        sizes, words = self.sizes, sample_vocabulary(self.sizes.words)
        objective = objective_named(name, sizes.backbone, words).to(self.device)
        batch = pretraining_batch(PRETRAINING[name].Config(), words, rows=sizes.tokens // length, length=length)
        step = training_step(objective, to_device(batch, self.device), bf16=self.device.type == "cuda")
        with FlopCounterMode(display=False) as counter:  # of the matrix products
            step()
        took = self.seconds(step, sizes.rounds)
        rate = sum(int(text.lengths_B.sum()) for text in batch.texts.values()) / took
        return f"{rate:,.0f} | {counter.get_total_flops() / took / peak:.1%}"

    def train(self, corpus: str, storage: Place) -> bool:
        """Middle training (RetroMAE) and fine-tuning with in-batch negatives, dense and SPLADE, and encoding, beside
        fine-tuning alone: midmask's own steps in one process, without Ray. On a GPU the losses must fall.
        """
        print(f"`{self.sizes.trained}`, {self.sizes.steps} steps of {self.sizes.rows} rows; {corpus}\n")
        print(f"| system | losses at first | at last | tokens a second in training | seconds |\n| :-- |{' --: |' * 4}")
        good = True
        for name, protocol in SYSTEMS:
            began, system = time.monotonic(), f"{name}, {protocol}"
            planned, views = self._planned(name, protocol, corpus)
            Runner(storage, LOCAL).compute_until(Graph.left_in(storage, views), self.until)
            if not all(step.is_finished(storage) for step in views):
                print(f"| {system} | {NO_TIME} |", flush=True)
                good = False
                continue
            made = load(planned.stages[-1].place(storage))
            with (made.place / "trace.parquet").reading() as stream:
                losses = pq.read_table(stream, columns=["loss"])["loss"].to_pylist()
            part = max(1, len(losses) // 8)
            first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
            rate, took = made.result["tokens"] / made.result["seconds"], time.monotonic() - began
            print(f"| {system} | {first:.4f} | {last:.4f} | {rate:,.0f} | {took:.0f} |", flush=True)
            good &= last < (first if self.sizes is WHOLE else math.inf)  # few steps need not learn
        return good

    def _planned(self, name: str, protocol: str, corpus: str) -> tuple[Plan, list[Step]]:
        """A recipe at these sizes, and the encodings of its passages and queries."""
        sizes = self.sizes
        changes = {
            **{"corpus.name": corpus, "backbone.name": sizes.trained, "tokens.vocabulary_size": sizes.vocabulary},
            **{"pretrain.steps": sizes.steps[0], "stages.0.train.steps": sizes.steps[1]},
            **{"pretrain.batch_size": sizes.rows, "stages.0.train.batch_size": sizes.rows, "pretrain.health_every": 0},
            **{"pretrain.learning_rate": 5e-4, "stages.0.train.learning_rate": 2e-4},
        }
        recipe = override(PROTOCOLS[protocol]().on(RECIPES[name](), "demo"), changes)
        planned = plan(recipe)
        sides = planned.evaluation(recipe.evaluation).inputs["ranked"].inputs
        return planned, [sides["passages"], sides["queries"]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("parity", "speed", "train")
    parser.add_argument("--part", nargs="+", default=parts, choices=parts)
    parser.add_argument("--cpu", action="store_true", help="on a CPU, with reduced sizes")
    parser.add_argument("--data", type=Path, help="collection of part train; with --cpu made up if not given")
    parser.add_argument("--seconds", type=float, default=480.0, help="after which a part begins nothing more")
    given = parser.parse_args(arguments)
    if given.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before the first call that would look for a GPU
        torch.set_num_threads(1)  # sizes are so small that threads wait for each other
    elif not torch.cuda.is_available():
        raise UserError("no GPU is there; python -m tests.gpu --cpu tries the program without one")
    elif "train" in given.part and given.data is None:
        raise UserError("part train needs --data FOLDER, a collection in BEIR's layout; or choose others by --part")
    device = torch.device("cpu" if given.cpu else "cuda")
    name = "CPU" if given.cpu else torch.cuda.get_device_name(device)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if given.data is None:
            write_beir(Path(folder) / "made-up", passages=60, queries=60)
        corpus = f"beir:{(given.data or Path(folder) / 'made-up').resolve()}"
        for part in given.part:
            print(f"\n## {part}\n\n{name}, torch {torch.__version__}, `python -m tests.gpu {' '.join(arguments)}`\n")
            program = Program(device, REDUCED if given.cpu else WHOLE, time.monotonic() + given.seconds)
            storage = Place(f"{folder}/store")
            good &= getattr(program, part)(*((corpus, storage) if part == "train" else ()))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
