"""The fused vocabulary heads against the straightforward ones: time and memory, forward and backward.

    python -m tests.speed.fused_heads [--width 256 768] [--rounds 5] [--threads 2] [--cpu-time]

V = 30,522, 32 x 128 tokens, fp32, all of them supervised (full-row loss), or pooled but for the first and the last
(column maximum). Straightforward is F.linear, then F.cross_entropy, or masked_fill and max(1) as published code has it,
with autograd. `unmasked` is the straightforward maximum over all positions, whose logits exist once only.

Time: both in turn in one process, medians. Memory: each in a process of its own. Inputs and gradients are there and
touched, and a small run has loaded the libraries, before the kernel's mark of the highest resident memory is reset
(/proc/self/clear_refs, Linux); measured is how far one forward and backward pass then raises it.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.heads import linear_column_max, linear_cross_entropy
from tests.speed.steps import interleaved

V, ROWS, LENGTH = 30522, 32, 128
TIME_GOALS = {"full-row loss": {256: 0.9, 768: 1.0}, "column maximum": {256: 0.75, 768: 0.85}}
MEMORY_GOAL = 0.2
MEBIBYTE = 1 << 20

Pass = Callable[[], None]


def passes(width: int, *, rows: int = ROWS, entries: int = V) -> dict[str, Pass]:
    """One forward and backward pass of each head, adding to the same gradients."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, width, generator=generator) / width**0.5 for n in (rows * LENGTH, entries))
    inputs = [tensor.requires_grad_() for tensor in (hidden, weight, torch.zeros(entries))]
    for tensor in inputs:
        tensor.grad = torch.zeros_like(tensor)
    labels = torch.randint(0, entries, (rows * LENGTH,), generator=generator)
    upstream = torch.randn(rows, entries, generator=generator)
    pooled = torch.ones(rows, LENGTH, dtype=torch.bool)
    pooled[:, 0] = pooled[:, -1] = False

    def logits() -> Tensor:
        return F.linear(*inputs)

    def unmasked() -> Tensor:
        return logits().view(rows, LENGTH, entries).max(1).values

    def masked() -> Tensor:
        return logits().view(rows, LENGTH, entries).masked_fill(~pooled[:, :, None], -torch.inf).max(1).values

    def fused_maximum() -> Tensor:
        return linear_column_max(inputs[0].view(rows, LENGTH, width), *inputs[1:], pooled)

    return {
        "full-row loss, plain": lambda: F.cross_entropy(logits(), labels, reduction="sum").backward(),
        "full-row loss, fused": lambda: linear_cross_entropy(*inputs, labels).backward(),
        "column maximum, plain": lambda: masked().backward(upstream),
        "column maximum, unmasked": lambda: unmasked().backward(upstream),
        "column maximum, fused": lambda: fused_maximum().backward(upstream),
    }


def resident(mark: str) -> int:
    """Bytes that the kernel notes for this process: VmRSS is now, VmHWM the highest since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{mark}:")) * 1024


def extra_memory_in_this_process(name: str, width: int) -> int:
    """The measured process's work."""
    passes(width, rows=1, entries=512)[name]()
    work = passes(width)[name]
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def extra_memory(name: str, width: int, threads: int) -> int:
    command = [sys.executable, "-m", "tests.speed.fused_heads", "--memory-of", name]
    command += ["--width", str(width), "--threads", str(threads)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report(head: str, width: int, seconds: dict[str, float], memory: dict[str, int]) -> None:
    mebibytes = {name: size / MEBIBYTE for name, size in memory.items()}
    times, sizes = (
        f"{values[f'{head}, fused'] * unit:6.0f} of {values[f'{head}, plain'] * unit:6.0f} {name}, ratio "
        f"{values[f'{head}, fused'] / values[f'{head}, plain']:.2f}"
        for values, unit, name in ((seconds, 1000, "ms"), (mebibytes, 1, "MiB"))
    )
    goal = TIME_GOALS[head].get(width, "none")
    print(f"{head:14} d {width}: {times} (goal {goal}); {sizes} (goal {MEMORY_GOAL})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", nargs="+", type=int, default=[256, 768])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: processor time of one thread")
    parser.add_argument("--memory-of", metavar="NAME", help="used by the script itself: the process that is measured")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu_time else options.threads)
    if options.memory_of:
        print(extra_memory_in_this_process(options.memory_of, options.width[0]))
        return
    clock = time.process_time if options.cpu_time else time.perf_counter
    for width in options.width:
        works = passes(width)
        memory = {name: extra_memory(name, width, options.threads) for name in works}
        seconds = interleaved(works, options.rounds, clock)
        for head in TIME_GOALS:
            report(head, width, seconds, memory)
        whole = seconds["column maximum, unmasked"], memory["column maximum, unmasked"] / MEBIBYTE
        print(f"{'unmasked':14} d {width}: {whole[0] * 1000:6.0f} ms; {whole[1]:5.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
