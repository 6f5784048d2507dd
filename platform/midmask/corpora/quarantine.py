"""Counts and files of the rows read: kept, quarantined with a reason, or left out by a rule that the user set."""

import json
import logging
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.chunks import END, NO_GRADE, NOT_UTF8, SPACED_ID, Piece
from midmask.corpora.documents.source import TOLERATED
from midmask.errors import UserError, how_to_set

log = logging.getLogger(__name__)

QUOTED, REASONS = 5, 1_000
"""Rows of a kind that the log quotes, and reasons that are counted each."""
HOPELESS = 10_000
"""Reading stops at once when so many rows are bad and they outnumber the good ones: this is a file of another format.
"""


@dataclass
class _Alike:
    """Rows of one file with the same fault: the first, quoted, the reason, and their number."""

    quote: str
    reason: str
    count: int = 1

    def __str__(self) -> str:
        rows = f"{self.count:,} rows" if self.count > 1 else ""
        about = "; ".join(filter(None, (self.reason, rows)))
        return f"{self.quote} ({about})" if about else self.quote


class Quarantine:
    """Counts the rows of one corpus and writes the bad ones to quarantine.jsonl, one object a line: kind, file, line,
    text, and a reason where the kind does not say it all.
    """

    def __init__(self, quarantine: BinaryIO, threshold: float, source: str) -> None:
        self._quarantine, self._threshold, self._source = quarantine, threshold, source
        self.kept: Counter[str] = Counter()
        self.bad: dict[str, Counter[str]] = {"docs": Counter(), "queries": Counter(), "qrels": Counter()}
        self.left_out: dict[str, Counter[str]] = {"docs": Counter(), "queries": Counter(), "qrels": Counter()}
        self.notes: dict[str, Counter[str]] = {}
        self._alike: dict[str, dict[tuple[str, str, str], _Alike]] = {"docs": {}, "queries": {}, "qrels": {}}

    def reject(self, rows: str, kind: str, file: str, line: int, text: str, reason: str = "") -> None:
        """Quarantines one row; the first few of each kind of rows are quoted in the log."""
        self.bad[rows][kind] += 1
        entry = {"kind": kind, "file": file, "line": line, "text": text, **({"reason": reason} if reason else {})}
        self._quarantine.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        quote = f"{file}:{line} {kind}: {text[:80]!r}"
        if self.bad[rows].total() <= QUOTED:
            log.warning("bad row of the %s: %s%s", rows, quote, f" ({reason})" if reason else "")
        alike, key = self._alike[rows], (kind, file, reason)
        if key in alike:
            alike[key].count += 1
        elif len(alike) < REASONS:
            alike[key] = _Alike(quote, reason)
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
            raise UserError(
                f"{self._source}: {bad:,} of {read:,} rows of the {rows} are bad ({bad / read:.2%}, "
                f"corpus.bad_rows_threshold = {self._threshold:g}): {self.kinds(rows)}; first: "
                f"{'; '.join(self.examples(rows))}. {self._remedy(rows)}"
            )

    def kinds(self, rows: str) -> str:
        """The kinds of faults with the number of rows of each, the most frequent first; "" without bad rows."""
        return ", ".join(f"{number:,} {kind}" for kind, number in self.bad[rows].most_common())

    def examples(self, rows: str) -> list[str]:
        """The first bad rows of up to three files, kinds and reasons, quoted."""
        return list(map(str, list(self._alike[rows].values())[:3]))

    def _remedy(self, rows: str) -> str:
        advice = f"Mend the files, or go on without these rows: {how_to_set({'corpus.bad_rows_threshold': 'SHARE'})}"
        if self.bad[rows][SPACED_ID]:
            return f"TREC run files cannot express white space in an id; replace it in all files. {advice}"
        if self.bad[rows][NO_GRADE]:
            return f"Grades are whole numbers, relevant from 1 on; map them, such as {self._map_grades()}. {advice}"
        if self.bad[rows][NOT_UTF8]:
            file = shlex.quote(next(file for kind, file, _ in self._alike[rows] if kind == NOT_UTF8))
            return f"If {file} is in Latin-1: iconv -f LATIN1 -t UTF-8 {file} > NEW. {advice}"
        return advice

    def _map_grades(self) -> str:
        file = next(file for kind, file, _ in self._alike["qrels"] if kind == NO_GRADE)
        if file.endswith((".arrow", ")")):  # a table, or records of ir_datasets
            return "0.5 and more to 1"
        read, name = ("gzip -dc ", file.removesuffix(".gz")) if file.endswith(".gz") else ("cat ", file)
        program = "'$NF + 0 == $NF {$NF = ($NF >= 0.5)} 1'"
        return (
            f"0.5 and more to 1, in the last column: {read}{shlex.quote(file)} | awk -v OFS='\\t' {program} > "
            f"{shlex.quote(f'{name}.new')}"
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
                reason = table.column("reason")[index].as_py() or ""
                rejected.reject(rows, kind, file, int(line[index] + offsets[number]), text, reason)
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
