"""Files of spans of documents, as coCondenser and CoT-MAE are given them: a line a document, plain or gzip'd.

{"doc_id": …, "spans": [text, …]}       `_id` does for `doc_id`; ids may be integers or strings, and become strings
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from midmask.corpora.opening import parse_lines, write_lines
from midmask.exchange.negatives_files import id_in
from midmask.store.place import Place

SPANS_LAYOUT = '{"doc_id": …, "spans": [text, …]}'


class DocumentSpans(NamedTuple):
    """A document's spans, in their order in it."""

    doc_id: str
    spans: list[str]


def write_spans(place: Place, documents: Iterable[DocumentSpans]) -> int:
    """Writes a file, gzip'd if its name ends in .gz; returns the number of documents."""
    count = 0
    with write_lines(place) as stream:
        for document in documents:
            row = {"doc_id": document.doc_id, "spans": document.spans}
            stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def read_spans(place: Place) -> Iterator[tuple[int, DocumentSpans]]:
    """(number from 1, document) of the lines of a file that are not blank.

    Raises:
        UserError: naming file and line, where `spans` is not a list of texts.
    """
    return parse_lines(place, _document, SPANS_LAYOUT)


def _document(row: Any) -> DocumentSpans:
    spans = row["spans"]
    if not isinstance(spans, list):
        raise ValueError(f"{spans!r} is not a list")
    for span in spans:
        if not isinstance(span, str):
            raise ValueError(f"{span!r} is not a text")
    document = DocumentSpans(id_in(row["doc_id"] if "doc_id" in row else row["_id"]), spans)
    "".join([document.doc_id, *spans]).encode()  # a lone surrogate, written as an escape, is no text
    return document
