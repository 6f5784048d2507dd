"""TripClick (Rekabsaz et al. 2021), as its `benchmark` folder is laid out, each file plain or .gz.

- `documents/docs_grp_*.txt` of <DOC> elements;
- `topics/topics.SLICE.SPLIT.txt` of <top> elements, SLICE head, torso or tail by how often the query was
  asked, SPLIT train, val (here: dev) or test;
- `qrels/qrels.raw.SLICE.SPLIT.txt`: 1 clicked, 0 shown above a click; `qrels/qrels.dctr.head.SPLIT.txt`: 0 to 3 by the
  share of its showings in which a passage was clicked.

A split is judged by raw clicks, all three slices together. `test.head`, `test.torso` and `test.tail` are its slices,
and `test.head-dctr` is head with the graded judgements.
"""

import html
import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from midmask.corpora.chunks import Record, lines
from midmask.corpora.corpus import CorpusPieces, data_files, one_file_each, qrel_pieces, text_pieces
from midmask.corpora.reader import folder_reader
from midmask.errors import UserError
from midmask.store.place import Place

LAYOUT = (
    "documents/docs_grp_*.txt, topics/topics.SLICE.SPLIT.txt and qrels/qrels.raw.SLICE.SPLIT.txt with SLICE head, "
    "torso or tail and SPLIT train, val or test, qrels/qrels.dctr.head.SPLIT.txt; that is the unpacked folder "
    "benchmark, or the folder above it"
)
TOPICS = re.compile(r"topics\.(head|torso|tail)\.(train|val|test)\.(txt|tsv)(\.gz)?")
QRELS = re.compile(r"qrels\.(raw|dctr)\.(head|torso|tail)\.(train|val|test)\.(txt|tsv)(\.gz)?")
OUR_NAME = {"val": "dev"}

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def cut_elements(tag: str, stream: BinaryIO, limit: int) -> Iterator[Record]:
    """Elements such as <DOC> to </DOC>, each beginning on its own line, as records with the line of the opening tag.
    One that never ends is malformed, as is text between two elements.
    """
    opening, closing = f"<{tag}>".encode(), f"</{tag}>".encode()
    parts: list[bytes] = []
    start = size = 0
    for line, data in lines(stream, limit):
        opens = data is not None and data.lstrip()[: len(opening)].upper() == opening
        if opens and parts:
            yield Record(start, b"\n".join(parts))
        if opens or not parts:
            parts, start, size = [], line, 0
        size += limit if data is None else len(data)
        if size < limit:
            parts.append(data or b"")
        if data is not None and data.rstrip().upper().endswith(closing):
            yield Record(start, b"\n".join(parts) if size < limit else None)
            parts = []
    if parts:
        yield Record(start, b"\n".join(parts) if size < limit else None)


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of a <DOC> element."""
    content = _content(text, "DOC")
    doc_id, title, body = (_field(content, tag) for tag in ("DOCNO", "TITLE", "TEXT"))
    if not doc_id:
        raise ValueError("no DOCNO")
    return doc_id, title, body


def parse_topic(text: str) -> tuple[str, str]:
    """(query_id, text) of a <top> element. Its fields need no closing tags; the label "Number:" is cut."""
    elements = re.findall(r"<(num|title)>([^<]*)", _content(text, "TOP"), flags=re.IGNORECASE)
    fields = {name.lower(): html.unescape(value) for name, value in elements}
    query_id = fields.get("num", "").strip().removeprefix("Number:").strip()
    if not query_id:
        raise ValueError("no num")
    return query_id, " ".join(fields.get("title", "").split())


def _content(text: str, tag: str) -> str:
    match = re.fullmatch(rf"\s*<{tag}>(.*)</{tag}>\s*", text, flags=re.IGNORECASE | re.DOTALL)
    if not match:
        raise ValueError(f"no whole <{tag}>")
    return match[1]


def _field(content: str, tag: str) -> str:
    """The text of the first element of this name, without tags and with entities resolved; "" if there is none."""
    opening = re.search(rf"<{tag}\b[^<>]*>", content, re.IGNORECASE)
    closing = opening and re.compile(rf"</{tag}>", re.IGNORECASE).search(content, opening.end())  # not `.*?`: quadratic
    if not opening or not closing:
        return ""
    return html.unescape(_TAG.sub(" ", content[opening.end() : closing.start()])).strip()


def open_tripclick(folder: Place) -> CorpusPieces:
    """The corpus in a TripClick folder."""
    if not folder.exists():
        raise UserError(f"there is no folder {folder}; wanted is one with {LAYOUT}")
    root = "benchmark/" if (folder / "benchmark").exists() else ""
    documents = [f"{root}documents/{file}" for file in data_files(folder / f"{root}documents")]
    topics = [f"{root}topics/{file}" for file in data_files(folder / f"{root}topics") if TOPICS.fullmatch(file)]
    judgements = [match for file in data_files(folder / f"{root}qrels") if (match := QRELS.fullmatch(file))]
    for file, present in (
        ("documents/docs_grp_*.txt", documents),
        ("topics/topics.SLICE.SPLIT.txt", topics),
        ("qrels/qrels.raw.SLICE.SPLIT.txt", [match for match in judgements if match[1] == "raw"]),
    ):
        if not present:
            raise UserError(f"{folder}: {file} is missing; wanted layout: {LAYOUT}")
    files = _split_files(root, judgements)
    unions: dict[str, tuple[str, ...]] = {}
    for split in sorted(files):
        if "-" not in split:  # judged by raw clicks
            part = split.partition(".")[0]
            unions[part] = (*unions.get(part, ()), split)
    return CorpusPieces(
        text_pieces("docs", folder, documents, parse_passage, cut=partial(cut_elements, "DOC")),
        text_pieces("queries", folder, topics, parse_topic, cut=partial(cut_elements, "TOP")),
        qrel_pieces(folder, files),
        unions=unions,
    )


def _split_files(root: str, judgements: list[re.Match[str]]) -> dict[str, str]:
    """`test.head`, `test.head-dctr`, … -> file."""
    claims = []
    for match in judgements:
        kind, group, part = match[1], match[2], OUR_NAME.get(match[3], match[3])
        claims.append((f"{part}.{group}" if kind == "raw" else f"{part}.{group}-{kind}", f"{root}qrels/{match[0]}"))
    return one_file_each(claims)


READER = folder_reader(LAYOUT, open_tripclick)
