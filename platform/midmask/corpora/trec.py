"""Folders in the manner of TREC, and TripClick (Rekabsaz et al. 2021), whose files are of TREC's forms.

TREC:
- `docs/`: any number of files, each (plain or .gz) of `<DOC>` elements, or of jsonl lines, or of `id<TAB>text` lines;
- `topics*`: one or more files of `<top>` elements (title, else desc, is the query), or of `qid<TAB>text` lines;
- `qrels*`: `qrels.SPLIT.txt` or `qrels.SPLIT.tsv`; plain `qrels.txt` is the split test. Columns: see `corpus`.

What a file holds is read off its first character: `<` elements, `{` jsonl, anything else columns.

TripClick, as its `benchmark` folder is laid out, each file plain or .gz:
- `documents/docs_grp_*.txt` of <DOC> elements, or tables id, text or id, title, text (`docs/` will do, too);
- `topics/topics.SLICE.SPLIT.txt` of <top> elements or id<TAB>text, SLICE head, torso or tail by how often the query was
  asked, SPLIT train, val (here: dev) or test;
- `qrels/qrels.raw.SLICE.SPLIT.txt`: 1 clicked, 0 shown above a click; `qrels/qrels.dctr.head.SPLIT.txt`: 0 to 3 by the
  share of its showings in which a passage was clicked.

A split of TripClick is judged by raw clicks, all three slices together. `test.head`, `test.torso` and `test.tail` are
its slices, and `test.head-dctr` is head with the graded judgements.

Markup is read in one pass, so that time grows with the length of a text, whatever is left unclosed in it. A regular
expression such as `<!--.*?-->` looks for its end from every place where it could begin; where there is no end, that is
quadratic. So texts are first cut where the last end stands.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, BinaryIO

from midmask.corpora import beir, msmarco
from midmask.corpora.chunks import Lines, Record, TextPiece, split_columns
from midmask.corpora.corpus import CorpusPieces, data_files, qrel_pieces, split_names, text_pieces
from midmask.corpora.msmarco import parse_query, plain_title
from midmask.corpora.reader import FolderReader
from midmask.corpora.text_files import Form, form_by_name, open_file
from midmask.errors import UserError
from midmask.store.place import Place

_TAG = re.compile(r"</?[A-Za-z][^>]*>")
_TAG_OR_COMMENT = re.compile(r"</?[A-Za-z][^>]*>|<!--.*?-->", re.DOTALL)


def plain_text(text: str) -> str:
    """The text with each tag and each comment replaced by a blank, and with its entities resolved."""
    commented, rest = _cut_after(text, "-->")
    tagged, rest = _cut_after(rest, ">")
    return html.unescape(_TAG_OR_COMMENT.sub(" ", commented) + _TAG.sub(" ", tagged) + rest).strip()


def elements(text: str, tags: tuple[str, ...]) -> Iterator[tuple[int, int, int, int]]:
    """(begin, start of the content, stop of the content, end) of the elements with one of these tags, in order.

    Upper and lower case are one. An element ends at the first closing tag of its name, whatever stands in between; one
    without is none.
    """
    marks = list(_marks(tags).finditer(_cut_after(text, ">")[0]))
    closing: dict[str, list[int]] = {}
    for number, mark in enumerate(marks):
        if mark["close"]:
            closing.setdefault(mark["close"].lower(), []).append(number)
    place = 0
    while place < len(marks):
        mark = marks[place]
        ends = closing.get((mark["open"] or "").lower(), [])
        index = bisect_left(ends, place)
        if mark["open"] and index < len(ends):
            place = ends[index]
            yield mark.start(), mark.end(), marks[place].start(), marks[place].end()
        place += 1


@cache
def _marks(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(tags)
    return re.compile(rf"<(?:(?P<open>{names})\b[^<>]*|/(?P<close>{names}))>", re.IGNORECASE)


def _cut_after(text: str, mark: str) -> tuple[str, str]:
    """The text up to and with the last `mark`, and what follows; without a mark, all of it follows."""
    place = text.rfind(mark)
    stop = 0 if place < 0 else place + len(mark)
    return text[:stop], text[stop:]


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


def parse_topic(text: str) -> tuple[str, str]:
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
    asked = (Topics, parse_topic, beir.parse_query, msmarco.parse_query)
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


TRIPCLICK_LAYOUT = (
    "documents/docs_grp_*.txt, topics/topics.SLICE.SPLIT.txt and qrels/qrels.raw.SLICE.SPLIT.txt with SLICE head, "
    "torso or tail and SPLIT train, val or test, qrels/qrels.dctr.head.SPLIT.txt; that is the unpacked folder "
    "benchmark, or the folder above it"
)
TRIPCLICK_TOPICS = re.compile(r"topics\.(head|torso|tail)\.(train|val|test)\.(txt|tsv)(\.gz)?")
TRIPCLICK_QRELS = re.compile(r"qrels\.(raw|dctr)\.(head|torso|tail)\.(train|val|test)\.(txt|tsv)(\.gz)?")
OUR_NAME = {"val": "dev"}


def parse_columns(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of a line `id<TAB>text` or `id<TAB>title<TAB>text`."""
    names = ("id", "text") if text.count("\t") < 2 else ("id", "title", "text")
    doc_id, *title, passage = split_columns(text, *names)
    return doc_id.strip(), plain_title("".join(title)), passage


def open_tripclick(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """The corpus in a TripClick folder.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    if not folder.exists():
        raise UserError(f"there is no folder {folder}; wanted is one with {TRIPCLICK_LAYOUT}")
    root = "benchmark/" if (folder / "benchmark").exists() else ""
    documents = [
        f"{root}{part}/{file}" for part in ("documents", "docs") for file in data_files(folder / f"{root}{part}")
    ]
    topics = [
        f"{root}topics/{file}" for file in data_files(folder / f"{root}topics") if TRIPCLICK_TOPICS.fullmatch(file)
    ]
    judgements = [match for file in data_files(folder / f"{root}qrels") if (match := TRIPCLICK_QRELS.fullmatch(file))]
    missing = [
        wanted
        for wanted, present in (
            ("documents/docs_grp_*.txt", documents),
            ("topics/topics.SLICE.SPLIT.txt", topics),
            ("qrels/qrels.raw.SLICE.SPLIT.txt", [match for match in judgements if match[1] == "raw"]),
        )
        if not present
    ]
    if missing:
        raise UserError(f"{folder}: {', '.join(missing)} missing; wanted layout: {TRIPCLICK_LAYOUT}")
    limits = {"max_characters": max_characters}
    readers = (Docs, parse_passage, beir.parse_passage, parse_columns)
    asked = (Topics, parse_topic, beir.parse_query, parse_query)
    files = _split_files(folder, root, judgements)
    return CorpusPieces(
        name,
        mixed_pieces("docs", folder, documents, readers, limits),
        mixed_pieces("queries", folder, topics, asked, limits),
        qrel_pieces(folder, files, max_characters),
        unions=_unions(files),
    )


def _split_files(folder: Place, root: str, judgements: list[re.Match[str]]) -> dict[str, str]:
    """`test.head`, `test.head-dctr`, … -> file."""
    files: dict[str, str] = {}
    for match in judgements:
        kind, own, part = match[1], match[2], OUR_NAME.get(match[3], match[3])
        split = f"{part}.{own}" if kind == "raw" else f"{part}.{own}-{kind}"
        if split in files:
            raise UserError(f"{folder}: {files[split]} and {match[0]} both are judgements of {split}; keep one of them")
        files[split] = f"{root}qrels/{match[0]}"
    return files


def _unions(files: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """split -> its slices that are judged by raw clicks."""
    unions: dict[str, tuple[str, ...]] = {}
    for split in sorted(files):
        part, _, own = split.partition(".")
        if "-" not in own:
            unions[part] = (*unions.get(part, ()), split)
    return unions


TRIPCLICK = FolderReader(TRIPCLICK_LAYOUT, open_tripclick)
