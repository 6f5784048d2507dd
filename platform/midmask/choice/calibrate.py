"""What revealed verdicts teach later ones: their records, collected into the files that ship with the package."""

import json
from collections.abc import Sequence
from pathlib import Path

from midmask.choice.agreement import HeldOutCollection, leave_one_out
from midmask.choice.assess import LEVEL, kind_of
from midmask.choice.calibration_records import FILE as RECORDS
from midmask.choice.calibration_records import GainRecord, write_records
from midmask.choice.levels import FILE as LEVELS
from midmask.choice.levels import LevelRecord, write_levels
from midmask.choice.reveal import FILE as REVEALED
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown


def read_revealed(folders: Sequence[Path]) -> tuple[list[GainRecord], list[LevelRecord]]:
    """The records of verdicts' folders, in their order.

    Raises:
        UserError: for a folder without revealed.json.
    """
    gains, levels = [], []
    for folder in folders:
        file = folder / REVEALED
        if not file.is_file():
            raise UserError(f"{folder}: no {REVEALED} in it; make it with midmask choose --reveal --out {folder}")
        found = json.loads(file.read_text("utf-8"))
        gains += [GainRecord(**one) for one in found["records"]]
        levels.append(LevelRecord(**found["level"]))
    return gains, levels


def calibrate(folders: Sequence[Path], into: Path = RECORDS.parent) -> str:
    """Writes the records of these verdicts in place of those that were there, and tells how well each collection would
    have been predicted from the others.
    """
    gains, levels = read_revealed(folders)
    write_records(gains, into / RECORDS.name)
    write_levels(levels, into / LEVELS.name)
    kinds = dict.fromkeys(kind_of(*one.system.split(" · ")) for one in gains)
    rows = [
        _row(kind, held)
        for kind in kinds
        for held in leave_one_out([one for one in gains if kind_of(*one.system.split(" · ")) == kind], LEVEL)
    ]
    head = ["kind", "collection", "queries", "gains", "within intervals", "shrink", "between"]
    return markdown(head, rows)


def _row(kind: str, held: HeldOutCollection) -> list[str]:
    fit = held.fit
    covered = f"{held.covered} of {held.systems}"
    return [kind, held.collection, held.source, str(held.systems), covered, f"{fit.shrink:.2f}", f"{fit.between:.3f}"]
