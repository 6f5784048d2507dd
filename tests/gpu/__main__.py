"""Everything that only a GPU can show, in three parts of less than ten minutes each: the same numbers as on a CPU, the
speed of every middle training, and a whole training.

    python -m tests.gpu --part parity
    python -m tests.gpu --part speed --out $OUT/gpu.md
    python -m tests.gpu --part train --data FOLDER
    python -m tests.gpu --cpu                             # all parts, reduced, without a GPU

Needs torch, transformers, pydantic (with pydantic-core, annotated-types and typing-inspection), pyarrow and numpy, and
platform/ and the project's root on PYTHONPATH; no ray, mlflow, faiss, optuna, bm25s, ir-measures or scipy. FOLDER is a
collection in BEIR's layout with splits train and dev, such as shared/data/squad.

A run of all parts on a GPU writes docs/results/gpu.md; one of some parts writes them to --out, where the sections of
other parts stay. On a CPU the tables are printed only. Exit code 1: something that must be equal is not, or a
measurement failed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.objectives import PRETRAINING
from tests.gpu import speed, train
from tests.gpu.page import write_page
from tests.gpu.parity import parity
from tests.support.corpora.collections import write_beir

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "gpu.md"
SECTIONS = {"parity": "The same numbers as on a CPU", "speed": "Speed", "train": "A training"}

Part = Callable[[], tuple[str, bool]]


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=[*SECTIONS], choices=SECTIONS, metavar="NAME")
    parser.add_argument("--cpu", action="store_true", help="on a CPU, with reduced sizes")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"Markdown page to write; default: {PAGE.name}, if all parts run on a GPU",
    )
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="collection of part train; with --cpu made up if not given"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=[*PRETRAINING],
        choices=PRETRAINING,
        metavar="NAME",
        help="of part speed; default: all",
    )
    parser.add_argument(
        "--storage", metavar="PLACE", help="where part train works and goes on; default: a folder that is deleted"
    )
    parser.add_argument(
        "--seconds", type=float, default=480.0, help="after which speed and train begin nothing more; each"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    if options.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before the first call that would look for a GPU
        torch.set_num_threads(1)  # sizes are so small that threads wait for each other
    elif not torch.cuda.is_available():
        raise UserError("no GPU is there; python -m tests.gpu --cpu tries the program without one")
    device = torch.device("cpu" if options.cpu else "cuda")
    if "train" in options.part and not options.cpu and options.data is None:
        raise UserError(
            "part train needs --data FOLDER, a collection in BEIR's layout; or choose other parts by --part"
        )
    print(f"{machine(device)}\n", flush=True)
    parts: dict[str, Part] = {
        "parity": partial(parity, device),
        "speed": partial(_speed, options, device),
        "train": partial(_train, options, device),
    }
    good, sections = True, {}
    for name in options.part:
        began = time.monotonic()
        text, passed = parts[name]()
        good &= passed
        about = f"`python -m tests.gpu {' '.join(arguments)}`; {machine(device)}; {time.monotonic() - began:.0f} s."
        sections[SECTIONS[name]] = f"{about}\n\n{text}"
        print(f"## {SECTIONS[name]}\n\n{sections[SECTIONS[name]]}\n", flush=True)
    whole = not options.cpu and set(options.part) == set(SECTIONS)
    if out := options.out or (PAGE if whole else None):
        write_page(out, sections, [*SECTIONS.values()])
    return 0 if good else 1


def machine(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return f"{name}, torch {torch.__version__}"


def _speed(options: argparse.Namespace, device: torch.device) -> tuple[str, bool]:
    sizes = speed.REDUCED if options.cpu else speed.WHOLE
    return speed.speed(options.methods, sizes, device, time.monotonic() + options.seconds)


def _train(options: argparse.Namespace, device: torch.device) -> tuple[str, bool]:
    sizes, until = train.REDUCED if options.cpu else train.WHOLE, time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            write_beir(Path(folder) / "made-up", passages=60, queries=60)
        data = (options.data or Path(folder) / "made-up").resolve()
        return train.train(f"beir:{data}", Place(options.storage or f"{folder}/store"), sizes, device, until)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
