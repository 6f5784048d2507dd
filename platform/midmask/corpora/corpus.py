"""The parts of a corpus (pieces of passages, queries and judgements), and how a reader finds them in a folder.

Files that are no data (hidden ones, backups, descriptions of a collection) are passed over.

A file of judgements is recognised by its first lines once, and the layout is logged. Columns are divided by tabs or
else by white space: 4 are `query 0 doc grade` (TREC), 3 `query doc grade` (BEIR, with or without a header), 2
`query doc`, which means grade 1. A header is a first line that begins with `query-id`, `qid` or the like.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from midmask.corpora.chunks import Piece, TextPiece, read_id, whole_grade
from midmask.corpora.opening import UnusableFile, measure_file, open_text
from midmask.errors import UserError
from midmask.store.place import Place

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CorpusPieces:
    """Independent, picklable pieces to read, each kind in source order; without queries and qrels it is text only.

    unions: split -> the slices (`test.head`, …) that have a file each and together are the split, which has none.
    left_out: ending (or "hidden", …) -> number of files of a folder of documents that are none.
    """

    docs: Sequence[Piece]
    queries: Sequence[Piece] = ()
    qrels: Sequence[Piece] = ()
    unions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def limited_to(self, max_characters: int) -> "CorpusPieces":
        """The same parts, read with this length of the longest passage."""
        parts: dict[str, Any] = {
            rows: [replace(piece, max_characters=max_characters) for piece in getattr(self, rows)]
            for rows in ("docs", "queries", "qrels")
        }
        return replace(self, **parts)


def find_file(folder: Place, names: list[str], layout: str, *, optional: bool = False) -> str:
    """The one of `names` that lies in the folder, plain or .gz; "" if none does and it is optional.

    Raises:
        UserError: if the folder or the file is missing, or two of the names are there.
    """
    names = [f"{name}{end}" for name in names for end in ("", ".gz")]
    present = [name for name in names if (folder / name).exists()]
    if len(present) > 1:
        raise UserError(f"{folder} holds both {' and '.join(present)}; keep one of them")
    if not present and not folder.exists():
        raise UserError(f"there is no folder {folder}; wanted is one with {layout}")
    if not present and not optional:
        raise UserError(f"{folder}: {' or '.join(names)} is missing; wanted layout: {layout}")
    return present[0] if present else ""


def split_names(files: Iterable[str], *, prefix: str) -> dict[str, str]:
    """split -> judgement file, by file name: `qrels/test.tsv`, `qrels.train.tsv.gz`, `qrels.dev.small.tsv` (dev),
    `qrels.txt` (test), `qrels.val.tsv` (dev), `qrels/test.long.tsv` (test.long, a slice of test).

    Raises:
        UserError: as `one_file_each`.
    """
    alias = {"": "test", "dev.small": "dev", "validation": "dev", "valid": "dev", "val": "dev"}
    stems = {file: re.sub(r"(\.qrels)?(\.txt)?(\.tsv)?(\.gz)?$", "", file.rsplit("/", 1)[-1]) for file in sorted(files)}
    names = {file: stem.removeprefix(prefix).strip(".") for file, stem in stems.items()}
    return one_file_each((alias.get(name, name), file) for file, name in names.items())


def one_file_each(claims: Iterable[tuple[str, str]], what: str = "judgements") -> dict[str, str]:
    """split -> file, from pairs of them.

    Raises:
        UserError: if two files claim one split.
    """
    files: dict[str, str] = {}
    for split, file in claims:
        if split in files:
            raise UserError(f"{files[split]} and {file} both are {what} of the split {split!r}; keep one of them")
        files[split] = file
    return files


def text_pieces(
    rows: str,
    folder: Place,
    files: Iterable[str],
    parse: Callable[[Any], tuple[Any, ...]],
    **settings: Any,
) -> list[TextPiece]:
    """The pieces of files of one kind of rows. settings: of `TextPiece`."""
    make = partial(TextPiece, rows=rows, folder=folder, parse=parse, **settings)
    return [make(file=file, size=measure_file(folder / file)) for file in files]


LEFTOVERS = re.compile(
    r"[.~#$].*|.*(~|\.(bak|tmp|orig|old|lock|md5|sha1|sha256))|thumbs\.db|__macosx|lost\+found", re.I
)
ABOUT = re.compile(r"(readme|licen[cs]e|notes?|changelog|citation|checksums)(\.(txt|md|rst|html?|pdf|bib|cff))?", re.I)


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name is hidden (as `._*` of macOS's archives), a backup, or a system's."""
    return LEFTOVERS.fullmatch(name) is not None


def data_files(folder: Place, ends: tuple[str, ...] = ("",)) -> list[str]:
    """Sorted names in a folder with one of these endings, without those that are no data: leftovers, READMEs and the
    like.
    """
    return [
        name for name in folder.names() if name.endswith(ends) and not is_leftover(name) and not ABOUT.fullmatch(name)
    ]


HEADERS = {"query-id", "query_id", "qid", "query", "topic"}
"""First cells of a header."""

BY_WIDTH = {2: (0, 1, None), 3: (0, 1, 2), 4: (0, 2, 3)}
"""Number of columns -> positions of query, document and grade (None: all are 1)."""

LAYOUTS = (
    "4 (query 0 doc grade), 3 (query doc grade, with or without the header query-id corpus-id score) or 2 "
    "(query doc), divided by tabs"
)
SNIFFED_LINES, SNIFFED_BYTES = 20, 1 << 16


def columns(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def parse_judgement(width: int, text: str) -> tuple[str, str, int]:
    """(query_id, doc_id, grade); ValueError if there is another number of columns, Fault if the grade is not whole."""
    cells, (query, doc, grade) = columns(text), BY_WIDTH[width]
    if len(cells) != width:
        raise ValueError(f"{len(cells)} columns instead of {width}")
    value = 1 if grade is None else whole_grade(cells[grade], f"the grade (column {grade + 1})")
    return cells[query], cells[doc], value


def judgement_values(row: dict[str, Any]) -> tuple[str, str, int]:
    """(query_id, doc_id, grade) of a row with BEIR's columns; Fault where one is missing or of another type."""
    return read_id(row, "query-id"), read_id(row, "corpus-id"), whole_grade(row["score"])


def sniff(folder: Place, file: str) -> tuple[int, int]:
    """(number of columns, lines of the header) of a judgement file: as many columns as most of its first lines have.

    Raises:
        UnusableFile: for a number that no layout has, naming the accepted layouts; or if there is no row.
    """
    with open_text(folder / file) as stream:
        data = [stream.readline(SNIFFED_BYTES) for _ in range(SNIFFED_LINES)]
    texts = [line.decode(errors="replace").lstrip("\ufeff") for line in data]
    rows = [columns(text) for text in texts if text.strip()]
    if not rows:
        raise UnusableFile(f"{folder / file} is empty; wanted are rows of columns: {LAYOUTS}")
    width = Counter(len(row) for row in rows).most_common(1)[0][0]
    if width not in BY_WIDTH:
        raise UnusableFile(f"{folder / file}: its rows have {width} columns; wanted are {LAYOUTS}")
    header = int(rows[0][0].lower() in HEADERS)
    if len(rows) == header:
        raise UnusableFile(f"{folder / file} has a header and no rows; add judgements, or remove the file")
    log.info("%s: %d columns, %s", file, width, "with a header" if header else "no header")
    return width, header


def qrel_pieces(folder: Place, files: dict[str, str]) -> list[TextPiece]:
    """Pieces of the judgement files (split -> file), splits in order of their names."""
    pieces: list[TextPiece] = []
    for split, file in sorted(files.items()):
        width, header = sniff(folder, file)
        pieces += text_pieces("qrels", folder, [file], partial(parse_judgement, width), split=split, skip=header)
    return pieces
