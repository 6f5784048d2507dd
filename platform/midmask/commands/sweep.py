"""Runs the sweep of a search space: `--space search_spaces/mask_ratio.yaml`, or a file of your own."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_sweep_flags
from midmask.app.job import Options


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--space", type=Path, required=True, metavar="FILE", help="YAML file of the search space")
    add_sweep_flags(parser)


def work(options: Options, flags: Namespace) -> None:
    from midmask.sweep.job import sweep

    sweep(options, flags, flags.space)
