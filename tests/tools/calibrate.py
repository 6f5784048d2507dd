"""Collects what verdicts with revealed.json recorded, shows how well each collection is predicted from all others, and
writes `calibration.json` of the package.

python -m tests.tools.calibrate VERDICT VERDICT …     # none: from the records that are there

Of a new collection the offset is the mean over those that were measured, each the mean of its records, give or take
t · s · sqrt(1 + 1/n); where it is known to be 0, as for gains of training, whose baseline has gain 0 on both sides,
give or take t · s. s² pools what was assumed with what n collections show, by degrees of freedom: few collections
count beside the assumption, many outweigh it.
"""

import json
import math
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from midmask.choice.calibration import (
    COVERAGE,
    FILE,
    KINDS,
    LEVEL,
    CalibrationFile,
    GainRecord,
    Kind,
    LevelRecord,
    Offset,
    Prediction,
    kendall_tau,
    regret,
    sum_interval,
)
from midmask.choice.verdict import Calibration
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import Variance

MEASURED_IN = "docs/results/choose.md"
"""What collections with judgements have shown, and by which commands."""

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "results" / "records" / "choose"
GAINS_FILE, LEVELS_FILE = "gains.jsonl", "levels.jsonl"

ASSUMED_FREEDOM = 4
"""Degrees of freedom of an assumed spread."""


def offset_of(kind: Kind, records: Sequence[LevelRecord]) -> Offset:
    """The offset of a new collection from records of this kind; without any, what is assumed."""
    names = dict.fromkeys(row.collection for row in records)
    offsets = [
        float(np.mean([row.judged - kind.weight * row.made for row in records if row.collection == name]))
        for name in names
    ]
    assumed, count = Variance(kind.spread**2, ASSUMED_FREEDOM), len(offsets)
    if not offsets:
        return Offset(kind.offset, assumed)
    if not kind.is_learned:
        seen = Variance(float(np.mean(np.square(np.array(offsets) - kind.offset))), count)
        return Offset(kind.offset, assumed.pooled(seen))
    pooled = assumed.pooled(Variance(float(np.var(offsets, ddof=1)), count - 1)) if count > 1 else assumed
    return Offset(float(np.mean(offsets)), Variance(pooled.value * (1 + 1 / count), pooled.freedom))


def offsets_of(gains: Sequence[GainRecord], levels: Sequence[LevelRecord] = ()) -> dict[Kind, Offset]:
    """The offset of each kind."""
    own = {kind: [record for record in gains if record.kind == kind] for kind in KINDS}
    return {kind: offset_of(kind, levels if kind == LEVEL else own[kind]) for kind in KINDS}


@dataclass(frozen=True)
class HeldOutCollection:
    """How well the records of all other collections predict this one, for one source and seed of made queries."""

    collection: str
    source: str
    seed: int
    systems: int  # number of gains, without the baseline
    kendall_tau: float | None  # between expected and judged gains, with the baseline; None where all are equal
    regret: float  # in units of the measure
    covered: int  # number of judged gains within their intervals


def leave_one_out(records: Sequence[GainRecord]) -> list[HeldOutCollection]:
    """Compares each collection's judged gains with those expected from the records of all other collections.

    Sources and seeds of one collection are held out together and reported apart, in the order of the records.
    """
    results = []
    for collection in dict.fromkeys(record.collection for record in records):
        offsets = offsets_of([record for record in records if record.collection != collection])
        held = [record for record in records if record.collection == collection]
        for verdict in dict.fromkeys((row.source, row.seed) for row in held):
            results.append(_compare(offsets, [row for row in held if (row.source, row.seed) == verdict]))
    return results


def _compare(offsets: Mapping[Kind, Offset], records: Sequence[GainRecord]) -> HeldOutCollection:
    by_system = {record.system: record for record in records}
    expected, judged, covered = [0.0], [0.0], 0
    for record in records:
        parts = [record, *([by_system[record.over]] if record.over else [])]
        predicted = [
            Prediction(part.kind, offsets[part.kind], part.made, Variance(part.made_error**2, math.inf))
            for part in parts
        ]
        estimate = sum_interval(predicted)
        expected.append(estimate.value)
        judged.append(sum(part.judged for part in parts))
        covered += estimate.low <= judged[-1] <= estimate.high
    first, tau, lost = records[0], kendall_tau(expected, judged), regret(expected, judged)
    return HeldOutCollection(first.collection, first.source, first.seed, len(records), tau, lost, covered)


def summary(results: Sequence[HeldOutCollection]) -> Calibration:
    """The fraction of all held-out gains within their intervals, and the mean Kendall's tau."""
    taus = [one.kendall_tau for one in results if one.kendall_tau is not None]
    share = sum(one.covered for one in results) / sum(one.systems for one in results)
    names = tuple(dict.fromkeys(one.collection for one in results))
    return Calibration(names, math.fsum(taus) / len(taus), share, COVERAGE, MEASURED_IN)


def write_records(records: Iterable[LevelRecord], path: Path) -> None:
    lines = [TypeAdapter(type(record)).dump_json(record).decode() for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def read_records(folder: Path) -> tuple[list[GainRecord], list[LevelRecord]]:
    def rows(name: str) -> list[Any]:
        return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]

    gains = TypeAdapter(list[GainRecord]).validate_python(rows(GAINS_FILE))
    return gains, TypeAdapter(list[LevelRecord]).validate_python(rows(LEVELS_FILE))


def collect(verdicts: Sequence[Path], into: Path) -> None:
    """Writes the records of revealed verdicts to two files in a folder."""
    revealed = [json.loads((folder / "revealed.json").read_text("utf-8")) for folder in verdicts]
    gains = TypeAdapter(list[GainRecord]).validate_python([record for one in revealed for record in one["records"]])
    into.mkdir(parents=True, exist_ok=True)
    write_records(gains, into / GAINS_FILE)
    write_records(
        TypeAdapter(list[LevelRecord]).validate_python([one["level"] for one in revealed]), into / LEVELS_FILE
    )


def calibrate(records: Path) -> CalibrationFile:
    """The contents of `calibration.json` from the records in a folder."""
    gains, levels = read_records(records)
    offsets = {kind.name: offset for kind, offset in offsets_of(gains, levels).items()}
    return CalibrationFile(offsets, summary(leave_one_out(gains)))


def table(records: Path) -> str:
    """How well each collection is predicted from all others."""
    head = ["collection", "queries", "seed", "systems", "Kendall's tau", "regret", "gains within intervals"]
    rows = []
    for held in leave_one_out(read_records(records)[0]):
        tau = "" if held.kendall_tau is None else f"{held.kendall_tau:.2f}"
        about = [held.collection, held.source, f"{held.seed}", f"{held.systems + 1}", tau, f"{held.regret:.4f}"]
        rows.append([*about, f"{held.covered} of {held.systems}"])
    return markdown(head, rows)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("verdicts", nargs="*", type=Path, metavar="VERDICT")
    flags = parser.parse_args()
    if flags.verdicts:
        collect(flags.verdicts, RECORDS)
    FILE.write_bytes(TypeAdapter(CalibrationFile).dump_json(calibrate(RECORDS), indent=2) + b"\n")
    print(table(RECORDS))
