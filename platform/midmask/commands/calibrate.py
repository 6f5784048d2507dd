"""Collects what `midmask choose --reveal` recorded on collections with judgements, and shows how well it predicts each.

Writes calibration.jsonl and levels.jsonl to the folder of --out; those that verdicts use ship with the package.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of verdicts, each with revealed.json")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="where the two files are written")


def work(flags: Namespace) -> None:
    from midmask.choice.calibrate import calibrate

    print(calibrate(flags.folders, flags.out))
