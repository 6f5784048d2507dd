"""Counts and files of the rows read: kept, quarantined with a reason, or left out by a rule that the user set."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.chunks import END, SPACED_ID, Piece
from midmask.corpora.documents.source import TOLERATED
from midmask.errors import UserError, how_to_set

log = logging.getLogger(__name__)

QUOTED = 5
HOPELESS = 10_000
"""Reading stops at once when so many rows are bad and they outnumber the good ones: this is a file of another format.
"""


class Quarantine:
    """Counts the rows of one corpus and writes the bad ones to quarantine.jsonl, one object a line: kind, file, line,
    text.
    """

    def __init__(self, quarantine: BinaryIO, threshold: float, source: str) -> None:
        self._quarantine, self._threshold, self._source = quarantine, threshold, source
        self.kept: Counter[str] = Counter()
        self.bad: dict[str, Counter[str]] = {"docs": Counter(), "queries": Counter(), "qrels": Counter()}
        self.left_out: dict[str, Counter[str]] = {"docs": Counter(), "queries": Counter(), "qrels": Counter()}
        self.notes: dict[str, Counter[str]] = {}
        self._quotes: dict[str, list[str]] = {"docs": [], "queries": [], "qrels": []}

    def reject(self, rows: str, kind: str, file: str, line: int, text: str) -> None:
        """Quarantines one row; the first few of each kind of rows are quoted in the log."""
        self.bad[rows][kind] += 1
        entry = {"kind": kind, "file": file, "line": line, "text": text}
        self._quarantine.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        if len(self._quotes[rows]) < QUOTED:
            self._quotes[rows].append(f"{file}:{line} {kind}: {text[:80]!r}")
            log.warning("bad row of the %s: %s", rows, self._quotes[rows][-1])
        if self.bad[rows].total() >= HOPELESS and self.bad[rows].total() > self.kept[rows]:
            self.check(rows)

    def add_notes(self, notes: dict[str, dict[str, int]]) -> None:
        """Adds a piece's counts that are none of rows, such as its files: group -> name -> number."""
        for group, counts in notes.items():
            self.notes.setdefault(group, Counter()).update(counts)

    def check(self, rows: str) -> None:
        """Call at the end of each kind of rows. Whole files that cannot be read are no bad rows.

        Raises:
            UserError: if the share of bad rows is above the threshold.
        """
        bad = sum(number for kind, number in self.bad[rows].items() if kind not in TOLERATED)
        read = bad + self.kept[rows] + self.left_out[rows].total()
        if bad > self._threshold * read:
            kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.bad[rows].most_common())
            raise UserError(
                f"{self._source}: {bad:,} of {read:,} rows of the {rows} are bad ({bad / read:.2%}, "
                f"corpus.bad_rows_threshold = {self._threshold:g}): {kinds}; first: "
                f"{'; '.join(self._quotes[rows][:3])}. {_remedy(self.bad[rows])}"
            )

    def result(self) -> dict[str, Any]:
        """rows_read = rows_kept + sum of rows_quarantined (by fault) + sum of rows_left_out (by rule)."""
        quarantined = sum(self.bad.values(), Counter())
        left_out = sum(self.left_out.values(), Counter())
        kept = self.kept.total()
        return {
            "rows_read": kept + quarantined.total() + left_out.total(),
            "rows_kept": kept,
            "rows_quarantined": dict(sorted(quarantined.items())),
            "rows_left_out": dict(sorted(left_out.items())),
            "rows_by_kind": {
                rows: {
                    "kept": self.kept[rows],
                    "quarantined": dict(sorted(bad.items())),
                    "left_out": self.left_out[rows].total(),
                }
                for rows, bad in self.bad.items()
            },
        }

    def line(self) -> str:
        """The sum, for the log."""
        bad = sum(self.bad.values(), Counter())
        kinds = f" ({', '.join(f'{number:,} {kind}' for kind, number in sorted(bad.items()))})" if bad else ""
        left_out = sum(self.left_out.values(), Counter())
        rest = "".join(f" + {number:,} left out by {rule}" for rule, number in sorted(left_out.items()))
        total = self.kept.total() + bad.total() + left_out.total()
        kept = f"{self.kept.total():,} kept"
        return f"{self._source}: {total:,} rows read = {kept} + {bad.total():,} quarantined{kinds}{rest}"


def _remedy(bad: Counter[str]) -> str:
    advice = f"Mend the files, or go on without these rows: {how_to_set('corpus.bad_rows_threshold', 'SHARE')}"
    if bad[SPACED_ID]:
        return f"TREC run files cannot express white space in an id; replace it in all files. {advice}"
    return advice


def separate_rejected(
    tables: Iterator[pa.Table], pieces: Sequence[Piece], rows: str, rejected: Quarantine
) -> Iterator[pa.Table]:
    """Yields the good rows of blocks, which come in source order; `line` then counts from the file's start, and rows
    that mark blocks are removed.
    """
    offsets = np.zeros(len(pieces) + 1, np.int64)
    for table in tables:
        piece = table.column("piece").to_numpy()
        line = table.column("line").to_numpy()
        fault = table.column("fault")
        for index in np.flatnonzero(fault.is_valid().to_numpy()).tolist():
            number = int(piece[index])
            here = pieces[number]
            if (kind := fault[index].as_py()) != END:
                text = table.column("raw")[index].as_py()
                file = table.column("file")[index].as_py() if "file" in table.column_names else here.file
                rejected.reject(rows, kind, file, int(line[index] + offsets[number]), text)
            elif (notes := table.column("raw")[index].as_py()) is not None:
                rejected.add_notes(json.loads(notes))
            elif number + 1 < len(pieces) and pieces[number + 1].file == here.file:
                offsets[number + 1] = offsets[number] + line[index]
        table = table.set_column(table.schema.get_field_index("line"), "line", pa.array(line + offsets[piece]))
        good = table.filter(pc.is_null(fault))
        if len(good):
            yield good


def reject_rows(
    table: pa.Table, bad: np.ndarray, kind: str, pieces: Sequence[Piece], rows: str, rejected: Quarantine
) -> pa.Table:
    """Quarantines the rows where `bad` is True, quoted by their own columns; gives the others."""
    for index in np.flatnonzero(bad).tolist():
        row = table.slice(index, 1).to_pylist()[0]
        values = [str(row[name])[:200] for name in ("query_id", "doc_id", "grade", "text") if row.get(name) is not None]
        rejected.reject(rows, kind, row.get("file") or pieces[row["piece"]].file, row["line"], "\t".join(values))
    return table.filter(pa.array(~bad)) if bad.any() else table
