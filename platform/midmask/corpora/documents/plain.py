"""Plain text (.txt): paragraphs that blank lines separate, without headings."""

from collections.abc import Iterator

from midmask.corpora.documents.blocks import text_blocks
from midmask.corpora.documents.encodings import read_lines
from midmask.corpora.documents.source import BadRow, DocumentFile, ParsedDocument


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document."""
    encoding, lines = read_lines(source)
    yield ParsedDocument("", text_blocks(lines), encoding)
