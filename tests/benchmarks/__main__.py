"""Benchmarks that a claim of the documentation rests on, a line for each thing measured.

    python -m tests.benchmarks [NAME …] [--rounds 3] [--threads 2] [--cpu-time] [--quick]      (make bench ARGS=NAME)

A ratio is the other's time or memory over ours, both taken in turn: 2 means twice as fast, or half the memory.
"""

import argparse
import importlib
import sys

import torch

from tests.benchmarks.harness import Bench

TRAINING, RETRIEVAL = ("steps", "heads"), ("encoding", "lexical")
CASES = dict.fromkeys(TRAINING, "training") | {"contrastive": "finetuning"} | dict.fromkeys(RETRIEVAL, "retrieval")
"""Name -> the module whose function of this name it is."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: processor time of one thread")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    if unknown := set(options.names) - set(CASES):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(CASES)}")
    threads = 1 if options.cpu_time else options.threads
    for name in options.names or CASES:
        torch.set_num_threads(threads)
        case = getattr(importlib.import_module(f"tests.benchmarks.{CASES[name]}"), name)
        case(Bench(name, options.rounds, threads, options.cpu_time, options.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
