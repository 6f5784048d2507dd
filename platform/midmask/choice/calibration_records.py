"""Gains of one system on made and on judged queries of the same collection, as JSON lines.

The package has a file of them, `calibration.jsonl`. It is empty until collections with judgements have been measured;
intervals then have a prior's width (`agreement.PRIOR`).
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from midmask.errors import UserError, quoted

FILE = Path(__file__).with_name("calibration.jsonl")


@dataclass(frozen=True)
class GainRecord:
    """A system's gain over another one on a collection, in units of the measure (nDCG@10 counts from 0 to 1).

    over: label of the other system, whose own gain is another record; "" for the baseline of the collection. source:
    kind of the made queries, such as titles, or `all`. system: its label. made, judged: mean of the paired differences
    over made queries and over people's; made_error, judged_error: the standard errors of these means. seed: of the
    verdict; those of several seeds of one collection are held out together.
    """

    collection: str
    source: str
    system: str
    made: float
    made_error: float
    judged: float
    judged_error: float
    over: str = ""
    seed: int = 0


TEXTS = ("collection", "source", "system", "over")


def load_records(path: Path = FILE) -> list[GainRecord]:
    """The records of a file, in its order; blank lines are skipped.

    Raises:
        UserError: for a file that cannot be read, or a line that is no record.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: calibration records cannot be read: {error}. Give a file of JSON lines.") from error
    return [_record(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def write_records(records: Iterable[GainRecord], path: Path) -> None:
    """Writes one record a line; `load_records` reads the same values back."""
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in records), "utf-8")


def _record(line: str, where: str) -> GainRecord:
    names = [field.name for field in fields(GainRecord)]
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: no JSON ({error}). Each line is an object with {', '.join(names)}.") from error
    if not isinstance(found, dict) or sorted(found) != sorted(names):
        raise UserError(f"{where}: {quoted(found)} is no record. Each line is an object with {', '.join(names)}.")
    for name, value in found.items():
        if name in TEXTS:
            valid, wanted = isinstance(value, str), "a text"
        else:
            valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            valid, wanted = valid and (value >= 0 or not name.endswith("_error")), "a finite number"
            wanted += " of at least 0" if name.endswith("_error") else ""
        if not valid:
            raise UserError(f"{where}: {name} = {quoted(value)}; it has to be {wanted}.")
    return GainRecord(**found)
