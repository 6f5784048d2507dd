"""Tokens a second and model FLOPs utilisation (MFU) of pre-training, for every method.

    python -m tests.speed.pretraining --backbone base --device cuda --compile

Needs torch, transformers, pydantic and numpy; no Ray, no MLflow, no pyarrow. On a GPU: bf16 autocast, 128 x 150 tokens.
On a CPU: fp32, and a reduced size unless flags say otherwise. A step is masks, forward and backward pass, and AdamW, on
one made-up batch of full rows; the time is that of `--rounds` steps after three to warm up. `--compile` compiles the
encoder's layers, as `train.compile` does. Tokens are those of all texts a step
reads: passages, second spans, and pseudo-queries of 32 tokens.

Model FLOPs are those of the matrix products of one eager step, counted by `midmask.flops`.
MFU = model FLOPs / seconds / peak. The peak is that of an H200 for dense bf16 unless `--peak` says otherwise; a CPU has
none here.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.layers import compile_layers
from midmask.objectives import PRETRAINING
from midmask.objectives.sample import pretraining_batch, sample_vocabulary
from midmask.vocabulary import Vocabulary
from tests.speed.steps import objective_named, training_step
from tests.support.estimate.counted import count_flops

H200_BF16_TFLOPS = 989.0
WARM_UP = 3
SIZES = {"cuda": (128, 150), "cpu": (8, 64)}
GOALS = {"retromae": 0.45}


@dataclass(frozen=True)
class Speed:
    """seconds and flops: of one step; tokens: read in one step."""

    seconds: float
    flops: float
    tokens: int


def measure(name: str, words: Vocabulary, options: argparse.Namespace) -> Speed:
    objective = objective_named(name, options.backbone, words).to(options.device)
    batch = pretraining_batch(PRETRAINING[name].Config(), words, rows=options.rows, length=options.length)
    batch = replace(batch, texts={key: moved(text, options.device) for key, text in batch.texts.items()})
    step = training_step(objective, batch, bf16=options.device == "cuda")
    flops = count_flops(step)
    if options.compile:
        compile_layers(objective.backbone)
    for _ in range(WARM_UP):
        step()
    finish(options.device)
    start = time.perf_counter()
    for _ in range(options.rounds):
        step()
    finish(options.device)
    tokens = sum(int(text.lengths_B.sum()) for text in batch.texts.values())
    return Speed((time.perf_counter() - start) / options.rounds, flops, tokens)


def moved(text: TokenRows, device: str) -> TokenRows:
    weights: Tensor | None = None if text.weights_BL is None else text.weights_BL.to(device)
    return TokenRows(text.ids_BL.to(device), text.lengths_B.to(device), text.keys_B.to(device), weights)


def finish(device: str) -> None:
    """Waits for the device, whose work is only queued."""
    if device == "cuda":
        torch.cuda.synchronize()


def line(name: str, speed: Speed, peak: float | None) -> str:
    share = speed.flops / speed.seconds / 1e12
    utilisation = "" if peak is None else f"{share / peak:.1%}"
    goal = f"{GOALS[name]:.0%}" if name in GOALS and peak is not None else ""
    return (
        f"| `{name}` | {speed.seconds * 1000:.0f} | {speed.tokens / speed.seconds:,.0f} | {speed.flops / 1e12:.4g} "
        f"| {share:.3g} | {utilisation} | {goal} |"
    )


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", help="default: base on a GPU, mini on a CPU")
    parser.add_argument("--device", choices=sorted(SIZES), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--objective", nargs="+", default=[*PRETRAINING], choices=PRETRAINING, metavar="NAME")
    parser.add_argument("--rows", type=int, help="default: 128 on a GPU, 8 on a CPU")
    parser.add_argument("--length", type=int, help="tokens of a row; default: 150 on a GPU, 64 on a CPU")
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peak", type=float, default=H200_BF16_TFLOPS, help="of the GPU, dense bf16, in TFLOP/s")
    options = parser.parse_args(arguments)
    rows, length = SIZES[options.device]
    options.rows, options.length = options.rows or rows, options.length or length
    options.backbone = options.backbone or ("base" if options.device == "cuda" else "mini")
    return options


def main(arguments: list[str]) -> None:
    options = parsed(arguments)
    on_gpu = options.device == "cuda"
    machine = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"`python -m tests.speed.pretraining {' '.join(arguments)}`\n")
    print(
        f"{machine}, torch {torch.__version__}, {'bf16' if on_gpu else 'fp32'}; `{options.backbone}`, "
        f"{options.rows} x {options.length} tokens, V {options.vocabulary}\n"
    )
    print("| method | ms a step | tokens a second | model TFLOP a step | TFLOP/s | MFU | goal |")
    print("| :----- | --------: | --------------: | -----------------: | ------: | --: | ---: |")
    words = sample_vocabulary(options.vocabulary)
    for name in options.objective:
        print(line(name, measure(name, words, options), options.peak if on_gpu else None), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
