"""What only a GPU can show, in three parts of less than ten minutes each: the same numbers as on a CPU, the speed of
every middle training and of the vocabulary heads, and a whole training.

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
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.artifact import Artifact, Place, load
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError, reason
from midmask.experiment.graph import Graph
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.flops import flop_counter
from midmask.heads import linear_cross_entropy
from midmask.identity import override
from midmask.layers import compile_layers
from midmask.objectives import PRETRAINING, Objective, build_objective
from midmask.objectives.sample import pretraining_batch, sample_vocabulary
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.blocks import SELECTION, blocks_in, passage_blocks
from midmask.retrieve.selection import read_qrels
from midmask.retrieve.views import Views, read_views
from midmask.training.loop import to_device
from midmask.training.table import TokenTable
from tests.gpu.cases import all_cases
from tests.gpu.search import search
from tests.support.corpora.collections import write_beir

NO_TIME, NO_ROOM = "not measured, for lack of time", "does not fit into memory"
CUTOFF = 10

SYSTEMS = {
    f"{recipe}, {kind}": (recipe, protocol)
    for kind, protocol in (("dense", "in_batch"), ("SPLADE", "in_batch_splade"))
    for recipe in ("none", "retromae")
}
"""System of part train -> its recipe and its protocol."""


@dataclass(frozen=True)
class Sizes:
    """backbone, trained: names of encoders, of speed and of train. vocabulary: entries of both. tokens: of the passages
    of one step, in rows of these lengths. side: of the matrices whose product gives the peak. steps, rows: of middle
    training and of fine-tuning. queries: of dev, at most.
    """

    backbone: str
    vocabulary: tuple[int, int]
    lengths: tuple[int, ...]
    tokens: int
    side: int
    rounds: int
    compiler: str
    trained: str
    steps: tuple[int, int]
    rows: int
    length: int
    queries: int | None


WHOLE = Sizes(
    *("base", (30522, 8192), (128, 512), 16_384, 8192, 10, "inductor"), *("small", (1500, 800), 128, 128, None)
)
REDUCED = Sizes(*("tiny", (500, 400), (16, 32), 128, 256, 2, "aot_eager"), *("tiny", (6, 4), 8, 32, 20))


@dataclass(frozen=True)
class Program:
    """device: where. until: of `time.monotonic`; nothing is begun later."""

    device: torch.device
    sizes: Sizes
    until: float

    def is_late(self) -> bool:
        return time.monotonic() >= self.until

    def seconds(self, work: Callable[[], object], rounds: int, warm: int = 2) -> float:
        """The median, the device waited for before and after each."""
        times = []
        for _ in range(warm + rounds):
            self._wait()
            start = time.perf_counter()
            work()
            self._wait()
            times.append(time.perf_counter() - start)
        return median(times[warm:])

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def parity(self) -> bool:
        """Every case: what the device computes, against float64 on the CPU (float32 for what is drawn or searched)."""
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

    def speed(self, methods: Sequence[str]) -> bool:
        """Tokens a second of every method's steps (masks, forward and backward pass, AdamW; bf16 autocast on a GPU) as
        they are and compiled, and the share of the rate of one large product of the same type that they reach.
        """
        sizes, dtype = self.sizes, torch.bfloat16 if self.device.type == "cuda" else torch.float32
        left, right = (torch.randn(sizes.side, sizes.side, device=self.device, dtype=dtype) for _ in range(2))
        peak = 2 * sizes.side**3 / self.seconds(lambda: left @ right, 3 * sizes.rounds)
        self._heads()
        print(f"Peak {peak / 1e12:.4g} TFLOP/s; `{sizes.backbone}`, {sizes.tokens:,} tokens of passages a step.\n")
        print("| method | tokens of a row | compiled | tokens a second | share of the peak |")
        print("| :-- | --: | :-- | --: | --: |")
        good, flops = True, dict[tuple[str, int], float]()
        for compiled in (False, True):
            for name in methods:
                for length in sizes.lengths:
                    try:
                        told = NO_TIME if self.is_late() else self._method(name, length, compiled, peak, flops)
                    except torch.OutOfMemoryError:
                        told = NO_ROOM
                    except Exception as error:  # the others are still to be measured, whatever the compiler says
                        told, good = reason(error), False
                    print(f"| {name} | {length} | {'yes' if compiled else 'no'} | {told} |", flush=True)
                    gc.collect()
                    torch.cuda.empty_cache()
        return good

    def _heads(self) -> None:
        """One forward and backward pass of the head's loss, fused and plain."""
        width, entries = 768, self.sizes.vocabulary[0]
        hidden, weight, bias = (
            torch.randn(*shape, device=self.device).div(30).requires_grad_()
            for shape in ((self.sizes.tokens // 4, width), (entries, width), (entries,))
        )
        labels = torch.randint(entries, (len(hidden),), device=self.device)
        plain = self.seconds(lambda: F.cross_entropy(F.linear(hidden, weight, bias), labels).backward(), 3)
        fused = self.seconds(lambda: linear_cross_entropy(hidden, weight, bias, labels).backward(), 3)
        print(f"Vocabulary head of {len(hidden):,} rows: {1e3 * fused:.1f} ms, plain {1e3 * plain:.1f} ms.\n")

    def _method(self, name: str, length: int, compiled: bool, peak: float, flops: dict[tuple[str, int], float]) -> str:
        sizes, words = self.sizes, sample_vocabulary(self.sizes.vocabulary[0])
        encoder = build_backbone(BackboneConfig.model_validate({"name": sizes.backbone}), words, seed=0)
        objective = build_objective(PRETRAINING[name].Config(), encoder, words).train().to(self.device)
        if compiled:
            torch.compiler.reset()  # else a forward of one class would be compiled for few of the objectives alone
            compile_layers(objective.backbone, backend=sizes.compiler, dynamic=False)
        batch = pretraining_batch(PRETRAINING[name].Config(), words, rows=sizes.tokens // length, length=length)
        step = self._step(objective, to_device(batch, self.device))
        if not compiled:  # those of the matrix products
            with flop_counter() as counter:
                step()
            flops[name, length] = float(counter.get_total_flops())
        took = self.seconds(step, sizes.rounds)
        rate = sum(int(text.lengths_B.sum()) for text in batch.texts.values()) / took
        return f"{rate:,.0f} | {flops.get((name, length), math.nan) / took / peak:.1%}"

    def _step(self, objective: Objective, batch: Any) -> Callable[[], None]:
        kind = self.device.type
        optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4, fused=kind == "cuda")

        def step() -> None:
            optimiser.zero_grad()
            with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                loss = objective(objective.draw(batch))
            loss.total({part: value.count for part, value in loss.parts.items()}).backward()
            optimiser.step()

        return step

    def train(self, corpus: str, storage: Place) -> bool:
        """Middle training (RetroMAE), fine-tuning with in-batch negatives, dense and SPLADE, and an exact search of
        dev, beside fine-tuning alone: midmask's own steps in one process, without Ray.
        """
        print(f"`{self.sizes.trained}`, {self.sizes.steps} steps of {self.sizes.rows} rows; {corpus}\n")
        print(f"| system | nDCG@{CUTOFF} | last loss | tokens a second in training | seconds |\n| :-- |{' --: |' * 4}")
        told = [self._system(*which, corpus, storage) for which in SYSTEMS.values()]
        for name, row in zip(SYSTEMS, told, strict=True):
            print(f"| {name} | {row} |", flush=True)
        return NO_TIME not in told

    def _system(self, name: str, protocol: str, corpus: str, storage: Place) -> str:
        sizes, began = self.sizes, time.monotonic()
        changes = {
            **{"corpus.name": corpus, "backbone.name": sizes.trained, "tokens.vocabulary_size": sizes.vocabulary[1]},
            **{"tokens.max_length": sizes.length, "stages.0.passage_length": sizes.length},
            **{"pretrain.steps": sizes.steps[0], "stages.0.train.steps": sizes.steps[1]},
            **{"pretrain.batch_size": sizes.rows, "stages.0.train.batch_size": sizes.rows, "pretrain.health_every": 0},
            **{"pretrain.learning_rate": 5e-4, "stages.0.train.learning_rate": 2e-4},
            "evaluation.max_queries": sizes.queries,
        }
        recipe = override(PROTOCOLS[protocol]().on(RECIPES[name](), "demo"), changes)
        planned = plan(recipe)
        sides = planned.evaluation(recipe.evaluation).inputs["ranked"].inputs
        steps = [sides["passages"], sides["queries"]]
        Runner(storage, LOCAL, Silent()).run_until(Graph.left_in(storage, steps), self.until)
        if not all(step.is_finished(storage) for step in steps):
            return NO_TIME
        corpus_made, tokens, passages, queries = (
            load(step.place(storage)) for step in (planned.corpus, planned.tokens, *steps)
        )
        measure = self._ndcg(corpus_made, tokens, passages, queries)
        trained = load(planned.stages[-1].place(storage)).result
        speed = trained["tokens"] / trained["seconds"]
        return f"{measure:.4f} | {trained['loss']:.4f} | {speed:,.0f} | {time.monotonic() - began:.0f}"

    def _ndcg(self, corpus: Artifact, tokens: Artifact, passages: Artifact, queries: Artifact) -> float:
        """Of an exact search; faiss may be missing."""
        with (queries.place / SELECTION).reading() as stream:
            names = pq.read_table(stream, columns=["query_id"])["query_id"].to_pylist()
        asked = _views(queries, len(blocks_in([queries.place / SELECTION])))
        there = _views(passages, len(passage_blocks(tokens.place)))
        found = search(asked, there, CUTOFF, self.device, torch.float32)[1].cpu()
        judged = [row for row in read_qrels(corpus).to_pylist() if row["split"] == queries.result["split"]]
        judged = [row for row in judged if row["grade"] >= 1 and row["query_id"] in set(names)]
        rows = TokenTable(tokens.place / "passages").rows_of(pa.chunked_array([[row["doc_id"] for row in judged]]))
        relevant: dict[str, set[int]] = {name: set() for name in names}
        for row, place in zip(judged, rows.tolist(), strict=True):
            relevant[row["query_id"]].add(place)
        return ndcg(found, [relevant[name] for name in names])


def _views(encoded: Artifact, blocks: int) -> Views:
    return Views.concat([read_views(encoded.place, f"{block:05d}", encoded.result["views"]) for block in range(blocks)])


def ndcg(found_QK: Tensor, relevant: Iterable[set[int]]) -> float:
    """The mean over queries; a relevant row gains 1, all others 0, and a query without any relevant one counts 0."""

    def gain(places: Iterable[int]) -> float:
        return sum(1 / math.log2(1 + place) for place in places)

    def of_query(found: list[int], wanted: set[int]) -> float:
        hits = [place for place, row in enumerate(found, 1) if row in wanted]
        return gain(hits) / gain(range(1, min(len(wanted), CUTOFF) + 1)) if wanted else 0.0

    pairs = zip(found_QK[:, :CUTOFF].tolist(), relevant, strict=True)
    return sum(of_query(found, wanted) for found, wanted in pairs) / len(found_QK)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("parity", "speed", "train")
    parser.add_argument("--part", nargs="+", default=parts, choices=parts)
    parser.add_argument("--cpu", action="store_true", help="on a CPU, with reduced sizes")
    parser.add_argument("--data", type=Path, help="collection of part train; with --cpu made up if not given")
    parser.add_argument("--methods", nargs="+", default=[*PRETRAINING], choices=PRETRAINING, help="of part speed")
    parser.add_argument("--storage", help="where part train works and goes on; default: a folder that is deleted")
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
            storage = Place(given.storage or f"{folder}/store")
            own = {"speed": (given.methods,), "train": (corpus, storage)}.get(part, ())
            good &= getattr(program, part)(*own)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
