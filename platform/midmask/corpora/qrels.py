"""Judgement files: the layout is recognised once for a file and logged, not guessed for each row.

Known layouts, divided by tabs or else by white space: 4 columns `query 0 doc grade` (TREC); 3 columns `query doc grade`
(BEIR, with or without a header); 2 columns `query doc`, which means grade 1. A header names its columns, in any order.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from midmask.artifact import Place
from midmask.corpora.chunks import TextPiece, byte_ranges, open_file
from midmask.errors import UserError

log = logging.getLogger(__name__)

QUERY_NAMES = {"query-id", "query_id", "queryid", "query", "qid", "topic"}
DOC_NAMES = {"corpus-id", "corpus_id", "doc-id", "doc_id", "docid", "docno", "pid", "did", "passage-id", "passage_id"}
GRADE_NAMES = {"score", "grade", "rel", "relevance", "label"}
BY_WIDTH = {2: (0, 1, None), 3: (0, 1, 2), 4: (0, 2, 3)}
SNIFFED_LINES, SNIFFED_BYTES = 20, 1 << 16


@dataclass(frozen=True)
class QrelsColumns:
    """Positions of query, document and grade (None: all are 1) among `width` columns; `header`: lines before row 1."""

    width: int
    query: int
    doc: int
    grade: int | None
    header: int


def columns(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def parse_judgement(layout: QrelsColumns, text: str) -> tuple[str, str, int]:
    """(query_id, doc_id, grade); ValueError if the columns are not the layout's or the grade is no whole number."""
    cells = columns(text)
    if len(cells) != layout.width:
        raise ValueError(f"{len(cells)} columns instead of {layout.width}")
    grade = 1 if layout.grade is None else whole_grade(cells[layout.grade])
    return cells[layout.query], cells[layout.doc], grade


def judgement_values(row: dict[str, Any]) -> tuple[str, str, int]:
    """(query_id, doc_id, grade) of a row with BEIR's columns; ValueError where one is missing."""
    query_id, doc_id, grade = row["query-id"], row["corpus-id"], row["score"]
    if query_id is None or doc_id is None or grade is None:
        raise ValueError("a judgement without query, document or grade")
    return str(query_id), str(doc_id), whole_grade(grade)


def whole_grade(told: str | float) -> int:
    """A grade of 32 bits; ValueError for any other number, or none."""
    value = float(told)
    if not value.is_integer() or abs(value) >= 2**31:  # infinities and NaN are no integers
        raise ValueError(f"grade {told}")
    return int(value)


def sniff(folder: Place, file: str) -> QrelsColumns:
    """The layout of a judgement file, by its header, else by the number of columns that most of its first lines have.

    Raises:
        UserError: if neither tells; the error names the accepted layouts.
    """
    with open_file(folder, file) as stream:
        data = [stream.readline(SNIFFED_BYTES) for _ in range(SNIFFED_LINES)]
    lines = [line.decode(errors="replace").lstrip("\ufeff") for line in data]
    rows = [columns(line) for line in lines if line.strip()]
    names = [name.lower() for name in rows[0]] if rows else []
    if set(names) & QUERY_NAMES and set(names) & DOC_NAMES:
        layout = QrelsColumns(
            len(names), _place(names, QUERY_NAMES), _place(names, DOC_NAMES), _grade_place(names), header=1
        )
    else:
        width = Counter(len(row) for row in rows).most_common(1)[0][0] if rows else 0
        if width not in BY_WIDTH:
            raise UserError(
                f"{folder / file}: its rows have {width} columns; wanted are 4 (query 0 doc grade), 3 (query doc "
                "grade, with or without the header query-id corpus-id score) or 2 (query doc), divided by tabs"
            )
        layout = QrelsColumns(width, *BY_WIDTH[width], header=0)
    log.info("%s: %d columns, %s", file, layout.width, "with a header" if layout.header else "no header")
    return layout


def _place(names: list[str], known: set[str]) -> int:
    return next(index for index, name in enumerate(names) if name in known)


def _grade_place(names: list[str]) -> int | None:
    return next((index for index, name in enumerate(names) if name in GRADE_NAMES), None)


def qrel_pieces(folder: Place, files: dict[str, str], limits: dict[str, Any]) -> tuple[TextPiece, ...]:
    """Pieces of the judgement files (split -> file), splits in order of their names."""
    pieces: list[TextPiece] = []
    for split, file in sorted(files.items()):
        layout = sniff(folder, file)
        parse = partial(parse_judgement, layout)
        for start, end, size in byte_ranges(folder, file):
            pieces.append(
                TextPiece(
                    number=len(pieces),
                    rows="qrels",
                    folder=folder,
                    file=file,
                    start=start,
                    end=end,
                    size=size,
                    parse=parse,
                    skip=layout.header,
                    split=split,
                    **limits,
                )
            )
    return tuple(pieces)
