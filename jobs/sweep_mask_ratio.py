#!/usr/bin/env python3
"""Sweeps RetroMAE's encoder and decoder mask ratios, and holds the winner against BM25, no middle training, and MLM.

Every trial is pre-trained, fine-tuned and evaluated under the same protocol; trials are chosen and pruned by retrieval
measures on dev. The winner alone is reported on test. Interrupted, it goes on when submitted again.
"""

from argparse import Namespace
from pathlib import Path

from _entry import run

from midmask.cluster.flags import add_sweep_flags
from midmask.cluster.job import Options

SPACE = Path(__file__).resolve().parents[1] / "search_spaces" / "mask_ratio.yaml"


def work(options: Options, flags: Namespace) -> None:
    from midmask.cluster.sweep import sweep

    sweep(options, flags, SPACE)


if __name__ == "__main__":
    run(work, __doc__, add_sweep_flags)
