"""Collects the records of revealed verdicts into the two files from which later verdicts take their intervals."""

import json
from collections.abc import Sequence
from pathlib import Path

from midmask.choice.assess import held_out
from midmask.choice.calibration_records import FILE as RECORDS
from midmask.choice.calibration_records import GainRecord, write_records
from midmask.choice.held_out import HeldOutCollection
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


def calibrate(folders: Sequence[Path], into: Path) -> str:
    """Writes the records of these verdicts to two files in the folder `into`, which is made if it is missing; returns a
    Markdown table of how well each collection is predicted from the others.
    """
    gains, levels = read_revealed(folders)
    into.mkdir(parents=True, exist_ok=True)
    write_records(gains, into / RECORDS.name)
    write_levels(levels, into / LEVELS.name)
    head = ["collection", "queries", "seed", "systems", "Kendall's tau", "regret", "gains within intervals"]
    return markdown(head, [_row(held) for held in held_out(gains)])


def _row(held: HeldOutCollection) -> list[str]:
    tau = "" if held.kendall_tau is None else f"{held.kendall_tau:.2f}"
    covered = f"{held.covered} of {held.systems}"
    return [held.collection, held.source, str(held.seed), str(held.systems + 1), tau, f"{held.regret:.4f}", covered]
