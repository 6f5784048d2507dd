"""Collects what verdicts with revealed.json recorded, for the package, and shows how well each collection is predicted.

python -m tests.tools.calibrate VERDICT VERDICT … --out platform/midmask/choice
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from midmask.choice.calibration import GAINS_FILE, LEVELS_FILE, GainRecord, LevelRecord, leave_one_out
from midmask.evaluation.rendering import markdown


def write_records(records: Iterable[LevelRecord], path: Path) -> None:
    lines = [TypeAdapter(type(record)).dump_json(record).decode() for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def collect(folders: Sequence[Path], into: Path) -> str:
    """Writes the records of revealed verdicts to two files in a folder; returns the table of `leave_one_out`."""
    revealed = [json.loads((folder / "revealed.json").read_text("utf-8")) for folder in folders]
    gains = TypeAdapter(list[GainRecord]).validate_python([record for one in revealed for record in one["records"]])
    into.mkdir(parents=True, exist_ok=True)
    write_records(gains, into / GAINS_FILE.name)
    levels = TypeAdapter(list[LevelRecord]).validate_python([one["level"] for one in revealed])
    write_records(levels, into / LEVELS_FILE.name)
    head = ["collection", "queries", "seed", "systems", "Kendall's tau", "regret", "gains within intervals"]
    rows = []
    for held in leave_one_out(gains):
        tau = "" if held.kendall_tau is None else f"{held.kendall_tau:.2f}"
        about = [held.collection, held.source, f"{held.seed}", f"{held.systems + 1}", tau, f"{held.regret:.4f}"]
        rows.append([*about, f"{held.covered} of {held.systems}"])
    return markdown(head, rows)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="VERDICT")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER")
    flags = parser.parse_args()
    print(collect(flags.folders, flags.out))
