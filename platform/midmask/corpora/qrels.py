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
from midmask.corpora.chunks import TextPiece, byte_ranges
from midmask.corpora.contents import UnusableFile
from midmask.corpora.gzipped import open_file
from midmask.corpora.values import read_id, whole_grade

log = logging.getLogger(__name__)

QUERY_NAMES = {"query-id", "query_id", "queryid", "query", "qid", "topic"}
DOC_NAMES = {"corpus-id", "corpus_id", "doc-id", "doc_id", "docid", "docno", "pid", "did", "passage-id", "passage_id"}
GRADE_NAMES = {"score", "grade", "rel", "relevance", "label"}
BY_WIDTH = {2: (0, 1, None), 3: (0, 1, 2), 4: (0, 2, 3)}
LAYOUTS = (
    "4 (query 0 doc grade), 3 (query doc grade, with or without the header query-id corpus-id score) or 2 "
    "(query doc), divided by tabs"
)
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
    """(query_id, doc_id, grade); ValueError if there is another number of columns, Fault if the grade is not whole."""
    cells = columns(text)
    if len(cells) != layout.width:
        raise ValueError(f"{len(cells)} columns instead of {layout.width}")
    grade = 1 if layout.grade is None else whole_grade(cells[layout.grade], f"the grade (column {layout.grade + 1})")
    return cells[layout.query], cells[layout.doc], grade


def judgement_values(row: dict[str, Any]) -> tuple[str, str, int]:
    """(query_id, doc_id, grade) of a row with BEIR's columns; Fault where one is missing or of another type."""
    return read_id(row, "query-id"), read_id(row, "corpus-id"), whole_grade(row["score"])


def sniff(folder: Place, file: str) -> QrelsColumns:
    """The layout of a judgement file, by its header, else by the number of columns that most of its first lines have.

    Raises:
        UnusableFile: if neither decides, naming the accepted layouts; or if there is no row.
    """
    with open_file(folder, file, "columns") as stream:
        data = [stream.readline(SNIFFED_BYTES) for _ in range(SNIFFED_LINES)]
    lines = [line.decode(errors="replace").lstrip("\ufeff") for line in data]
    rows = [columns(line) for line in lines if line.strip()]
    if not rows:
        raise UnusableFile(f"{folder / file} is empty; wanted are rows of columns: {LAYOUTS}")
    names = [name.lower() for name in rows[0]]
    if set(names) & QUERY_NAMES and set(names) & DOC_NAMES:
        layout = QrelsColumns(
            len(names), _place(names, QUERY_NAMES), _place(names, DOC_NAMES), _grade_place(names), header=1
        )
    else:
        width = Counter(len(row) for row in rows).most_common(1)[0][0]
        if width not in BY_WIDTH:
            raise UnusableFile(f"{folder / file}: its rows have {width} columns; wanted are {LAYOUTS}")
        layout = QrelsColumns(width, *BY_WIDTH[width], header=0)
    if len(rows) == layout.header:
        raise UnusableFile(f"{folder / file} has a header and no rows; add judgements, or remove the file")
    log.info("%s: %d columns, %s", file, layout.width, "with a header" if layout.header else "no header")
    return layout


def _place(names: list[str], known: set[str]) -> int:
    return next(index for index, name in enumerate(names) if name in known)


def _grade_place(names: list[str]) -> int | None:
    return next((index for index, name in enumerate(names) if name in GRADE_NAMES), None)


def qrel_pieces(folder: Place, files: dict[str, str], max_characters: int) -> tuple[TextPiece, ...]:
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
                    form="columns",
                    max_characters=max_characters,
                )
            )
    return tuple(pieces)
