"""Part `speed`: tokens a second of every middle training, and the share of the card's matrix products that they reach.

A step is masks, forward and backward pass, and AdamW, on one made-up batch of full rows; under bf16 autocast on a GPU,
in fp32 on a CPU. Each method's steps are timed in turn with steps of plain MLM that are not compiled, after some to
warm up, the device waited for before and after each. FLOPs are those of the matrix products of an uncompiled step
(`midmask.flops`); the peak is that of one large product of the same type in the same process.

First all methods as they are, then compiled: that takes a minute for some, and what the time does not suffice for is
listed. A case that does not fit into memory, or that fails, is a row that says so.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from midmask.errors import reason
from midmask.layers import compile_layers
from midmask.objectives import PRETRAINING, Objective
from midmask.objectives.sample import pretraining_batch, sample_vocabulary
from midmask.training.loop import to_device
from tests.gpu.page import table
from tests.speed.pretraining import finish
from tests.speed.steps import interleaved, objective_named, training_step
from tests.support.estimate.counted import count_flops

PLAIN = "mlm"
FIRST = ("mlm", "retromae", "dupmae")
"""Methods that are measured before the others."""

HEAD = (
    "method",
    "tokens of a row",
    "compiled",
    "tokens a second",
    "ms a step",
    "times a step of plain MLM",
    "share of the peak",
)
NO_ROOM, NO_TIME = "does not fit into memory", "not measured, for lack of time"

Step = Callable[[], None]


@dataclass(frozen=True)
class Sizes:
    """tokens: of the passages of one step. side: of the matrices whose product gives the peak. rounds: of timing.
    backend: of torch.compile.
    """

    backbone: str
    vocabulary: int
    lengths: tuple[int, ...]
    tokens: int
    side: int
    rounds: int
    backend: str = "inductor"


WHOLE = Sizes("base", 30522, (128, 512), 16_384, 8192, 10)
REDUCED = Sizes("tiny", 500, (16, 32), 128, 256, 2, backend="aot_eager")


@dataclass(frozen=True)
class Known:
    """What is needed again: steps of plain MLM by length of rows; FLOPs of a step by method and length."""

    plain: dict[int, Step] = field(default_factory=dict)
    flops: dict[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A measurement, or in its place what prevented it. seconds, plain: of a step of the method, and of plain MLM."""

    method: str
    length: int
    compiled: bool
    seconds: float = 0.0
    plain: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    missing: str = ""

    def cells(self, peak: float) -> tuple[str, ...]:
        what = self.method, str(self.length), "yes" if self.compiled else "no"
        if self.missing:
            return *what, self.missing, *["-"] * (len(HEAD) - len(what) - 1)
        speed, share = self.tokens / self.seconds, self.flops / self.seconds / peak
        return *what, f"{speed:,.0f}", f"{1000 * self.seconds:.1f}", f"{self.seconds / self.plain:.2f}", f"{share:.1%}"


def speed(methods: Sequence[str], sizes: Sizes, device: torch.device, until: float) -> tuple[str, bool]:
    """The part's section, and whether no measurement failed but for lack of memory or time.

    Args:
        until: of `time.monotonic`; no measurement begins later.
    """
    peak = matrix_peak(sizes, device)
    cells = list(measure(methods, sizes, device, until))
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    about = (
        f"`{sizes.backbone}`, V = {sizes.vocabulary:,}, {sizes.tokens:,} tokens of passages a step. Peak of {kind}: "
        f"{peak / 1e12:.4g} TFLOP/s, by a product of {sizes.side} x {sizes.side} matrices in {product_type(device)}."
    )
    good = all(cell.missing in ("", NO_ROOM, NO_TIME) for cell in cells)
    return f"{about}\n\n{table(HEAD, (cell.cells(peak) for cell in cells))}", good


def product_type(device: torch.device) -> str:
    return "bf16" if device.type == "cuda" else "fp32"


def matrix_peak(sizes: Sizes, device: torch.device) -> float:
    """FLOP/s of a large matrix product of random numbers, the fastest of several."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    left, right = (torch.randn(sizes.side, sizes.side, device=device, dtype=dtype) for _ in range(2))
    times = [_timed(partial(torch.matmul, left, right), device) for _ in range(3 + 3 * sizes.rounds)][3:]
    return 2 * sizes.side**3 / min(times)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    finish(device.type)
    start = time.perf_counter()
    work()
    finish(device.type)
    return time.perf_counter() - start


def measure(methods: Sequence[str], sizes: Sizes, device: torch.device, until: float) -> Iterator[Cell]:
    """Every method at every length: as they are, then compiled."""
    ordered = [*(name for name in FIRST if name in methods), *(name for name in methods if name not in FIRST)]
    known = Known()
    for compiled in (False, True):
        for name in ordered:
            yield from guarded(partial(measure_method, name, sizes, device, known, until), name, sizes, compiled)


def guarded(work: Callable[[bool], Iterator[Cell]], name: str, sizes: Sizes, compiled: bool) -> Iterator[Cell]:
    """The cells of a method; those that an error prevents say which."""
    left = list(sizes.lengths)
    try:
        for cell in work(compiled):
            left.remove(cell.length)
            yield cell
    except torch.OutOfMemoryError:
        yield from (Cell(name, length, compiled, missing=NO_ROOM) for length in left)
    except Exception as error:  # the other methods are still to be measured, whatever torch.compile says of this one
        yield from (Cell(name, length, compiled, missing=reason(error)) for length in left)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def measure_method(
    name: str, sizes: Sizes, device: torch.device, known: Known, until: float, compiled: bool
) -> Iterator[Cell]:
    """The cells of one method, the shortest rows first.

    Args:
        known: filled as it is needed: plain MLM at first, FLOPs by what is not compiled.
    """
    if time.monotonic() >= until:
        yield from (Cell(name, length, compiled, missing=NO_TIME) for length in sizes.lengths)
        return
    if not known.plain:
        steady = build(PLAIN, sizes, device)
        known.plain.update({at: step_of(steady, PLAIN, at, sizes, device)[0] for at in sizes.lengths})
    objective = build(name, sizes, device)
    if compiled:
        torch.compiler.reset()  # else a forward of one class would be compiled for few of the objectives alone
        compile_layers(objective.backbone, backend=sizes.backend, dynamic=False)
    for length in sizes.lengths:
        if time.monotonic() >= until:
            yield Cell(name, length, compiled, missing=NO_TIME)
            continue
        step, tokens = step_of(objective, name, length, sizes, device)
        if not compiled:
            known.flops[name, length] = count_flops(step)
        for _ in range(2):
            step()
        timed = {PLAIN: known.plain[length], f"{name} itself": step}
        waited = {key: partial(_waited, work, device) for key, work in timed.items()}
        plain_s, own_s = interleaved(waited, sizes.rounds).values()
        yield Cell(name, length, compiled, own_s, plain_s, tokens, known.flops.get((name, length), 0.0))


def _waited(work: Step, device: torch.device) -> None:
    work()
    finish(device.type)


def build(name: str, sizes: Sizes, device: torch.device) -> Objective:
    return objective_named(name, sizes.backbone, sample_vocabulary(sizes.vocabulary)).to(device)


def step_of(objective: Objective, name: str, length: int, sizes: Sizes, device: torch.device) -> tuple[Step, int]:
    """A training step on rows of this length, and the tokens of all its texts."""
    words, config = sample_vocabulary(sizes.vocabulary), PRETRAINING[name].Config()
    batch = pretraining_batch(config, words, rows=sizes.tokens // length, length=length)
    tokens = sum(int(text.lengths_B.sum()) for text in batch.texts.values())
    on_device: Any = to_device(batch, device)
    return training_step(objective, on_device, bf16=device.type == "cuda"), tokens
