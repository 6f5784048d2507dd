"""Teaches later verdicts how far gains on made queries can be believed, from revealed ones.

Collects what `midmask choose --reveal` found on collections with judgements, in place of the records that were there.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of verdicts, each with revealed.json")


def work(flags: Namespace) -> None:
    from midmask.choice.calibrate import calibrate

    print(calibrate(flags.folders))
