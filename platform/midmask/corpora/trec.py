"""A folder in the manner of TREC:

- `docs/`: any number of files, each (plain or .gz) of `<DOC>` elements, or of jsonl lines, or of `id<TAB>text` lines;
- `topics*`: one or more files of `<top>` elements (title, else desc, is the query), or of `qid<TAB>text` lines;
- `qrels*`: `qrels.SPLIT.txt` or `qrels.SPLIT.tsv`; plain `qrels.txt` is the split test. Columns: see `qrels`.

What a file holds is read off its first character: `<` elements, `{` jsonl, anything else columns.
"""

import html
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from midmask.artifact import Place
from midmask.corpora import beir, msmarco
from midmask.corpora.chunks import Lines, Record, TextPiece
from midmask.corpora.contents import Form, form_by_name
from midmask.corpora.corpus import CorpusPieces, split_names, text_pieces
from midmask.corpora.gzipped import open_file
from midmask.corpora.markup import elements, plain_text
from midmask.corpora.qrels import qrel_pieces
from midmask.corpora.reader import FolderReader
from midmask.corpora.strays import data_files
from midmask.errors import UserError

LAYOUT = "docs/* (<DOC> elements, jsonl or id<TAB>text), topics* (<top> elements or qid<TAB>text), qrels[.SPLIT].txt"
FORMS: dict[bytes, Form] = {b"<": "text", b"{": "json lines"}
"""What a file must hold, by its first character; columns divided by tabs for any other."""

TITLES = ("TITLE", "HEADLINE", "HL", "TTL")
TEXTS = ("TEXT", "ABSTRACT", "BODY")


class Elements:
    """Reads elements such as <DOC> to </DOC>, each beginning on its own line; one that never ends is malformed."""

    def __init__(self, tag: bytes) -> None:
        self._open, self._close = b"<" + tag + b">", b"</" + tag + b">"
        self.count = 0

    def __call__(self, stream: BinaryIO, end: int | None, limit: int) -> Iterator[Record]:
        """Records whose line is that of the opening tag; text between two elements is a record too, and malformed."""
        lines = Lines()
        parts: list[bytes] = []
        start = size = 0
        for line, data in lines(stream, end, limit):
            opens = data is not None and data.lstrip()[: len(self._open)].upper() == self._open
            if opens and parts:
                yield Record(start, b"\n".join(parts))
            if opens or not parts:
                parts, start, size = [], line, 0
            size += limit if data is None else len(data)
            if size < limit:
                parts.append(data or b"")
            if data is not None and data.rstrip().upper().endswith(self._close):
                yield Record(start, b"\n".join(parts) if size < limit else None)
                parts = []
            self.count = lines.count
        if parts:
            yield Record(start, b"\n".join(parts) if size < limit else None)
        self.count = lines.count


class Docs(Elements):
    def __init__(self) -> None:
        super().__init__(b"DOC")


class Topics(Elements):
    def __init__(self) -> None:
        super().__init__(b"TOP")


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of a <DOC> element; without a text field, all that is not id or title is the text."""
    inner = _unwrap(text, "DOC")
    ids = _fields(inner, ("DOCNO",))
    if len(ids) != 1:
        raise ValueError("not one DOCNO")
    title = " ".join(_fields(inner, TITLES))
    body = "\n".join(_fields(inner, TEXTS)) or plain_text(_without(inner, ("DOCNO", "DOCHDR", *TITLES)))
    return ids[0], title, body


def parse_query(text: str) -> tuple[str, str]:
    """(query_id, text) of a <top> element. Its fields need no closing tags; labels such as "Number:" are cut."""
    inner = _unwrap(text, "TOP")
    fields = {}
    for name, value in re.findall(r"<(num|title|desc|narr)>([^<]*)", inner, flags=re.IGNORECASE):
        fields[name.lower()] = re.sub(r"^\s*(Number|Topic|Description|Narrative)\s*:", "", html.unescape(value)).strip()
    if not fields.get("num"):
        raise ValueError("no num")
    return fields["num"], " ".join((fields.get("title") or fields.get("desc", "")).split())


def _unwrap(text: str, tag: str) -> str:
    match = re.fullmatch(rf"\s*<{tag}>(.*)</{tag}>\s*", text, flags=re.IGNORECASE | re.DOTALL)
    if not match:
        raise ValueError(f"no whole <{tag}>")
    return match[1]


def _fields(inner: str, tags: tuple[str, ...]) -> list[str]:
    return [plain_text(inner[start:stop]) for _, start, stop, _ in elements(inner, tags)]


def _without(inner: str, tags: tuple[str, ...]) -> str:
    kept, place = [], 0
    for begin, _, _, end in elements(inner, tags):
        kept.append(inner[place:begin])
        place = end
    return " ".join([*kept, inner[place:]])


def open_trec(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """The corpus in a TREC folder.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    if not folder.exists():
        raise UserError(f"there is no folder {folder}; wanted is one with {LAYOUT}")
    files = [f"docs/{file}" for file in data_files(folder / "docs")]
    names = data_files(folder)
    topics = [file for file in names if file.startswith("topics")]
    qrels = split_names([file for file in names if file.startswith("qrels")], prefix="qrels")
    for what, present in (
        ("docs/ with at least one file", files),
        ("topics*", topics or not qrels),
        ("qrels*", qrels or not topics),
    ):
        if not present:
            raise UserError(f"{folder}: {what} is missing; wanted layout: {LAYOUT}")
    limits = {"max_characters": max_characters}
    docs = mixed_pieces("docs", folder, files, (Docs, parse_passage, beir.parse_passage, msmarco.parse_passage), limits)
    asked = (Topics, parse_query, beir.parse_query, msmarco.parse_query)
    queries = mixed_pieces("queries", folder, topics, asked, limits)
    return CorpusPieces(name, docs, queries, qrel_pieces(folder, qrels, max_characters))


def mixed_pieces(
    rows: str, folder: Place, files: list[str], readers: tuple[Any, ...], limits: dict[str, Any]
) -> tuple[TextPiece, ...]:
    """Pieces of files of mixed forms, numbered through; `readers`: of elements, then what parses an element, a JSON
    line and a line of columns.
    """
    elements, of_element, of_json, of_columns = readers
    pieces: list[TextPiece] = []
    for file in files:
        first = _first_character(folder, file)
        parse: Callable[[str], tuple[Any, ...]] = {b"<": of_element, b"{": of_json}.get(first, of_columns)
        form: Form = "json lines" if form_by_name(file) == "objects" else FORMS.get(first, "tabs")
        cut = elements if first == b"<" else Lines
        about = {**limits, "form": form}
        pieces.extend(text_pieces(rows, folder, [file], parse, about, cut=cut, first_number=len(pieces)))
    return tuple(pieces)


def _first_character(folder: Place, file: str) -> bytes:
    with open_file(folder, file, None) as stream:
        return stream.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


READER = FolderReader(LAYOUT, open_trec)
