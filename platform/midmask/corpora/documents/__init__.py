"""Documents of people: the table of their kinds, by the endings of their files' names.

A kind's own module is imported when a document of it is read.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from midmask.corpora.documents.blocks import DocumentFile, ParsedDocument, Unreadable


class Kind(NamedTuple):
    """module: in `midmask.corpora.documents`. reader: its function. package: an optional one that it needs, or "".
    version: raised whenever files of this kind give other text.
    """

    module: str
    reader: str = "read_documents"
    package: str = ""
    version: int = 1

    def read(self, source: "DocumentFile") -> Iterator["ParsedDocument | Unreadable"]:
        """The documents of a file.

        Raises:
            UserError: for a column that the user named and the table lacks.
            Unreadable: where the file gives no text, or no more of it.
        """
        read: Callable[[DocumentFile], Iterator[ParsedDocument | Unreadable]] = getattr(
            import_module(f"midmask.corpora.documents.{self.module}"), self.reader
        )
        yield from read(source)


KINDS = {
    ".txt": Kind("blocks", "read_plain"),
    ".rst": Kind("blocks", "read_plain", version=2),
    ".md": Kind("markup", "read_markdown", version=2),
    ".html": Kind("markup", "read_html", "lxml"),
    ".htm": Kind("markup", "read_html", "lxml"),
    ".pdf": Kind("pdf", package="pypdf"),
    ".csv": Kind("rows", "read_separated"),
    ".tsv": Kind("rows", "read_separated"),
    ".jsonl": Kind("rows", "read_jsonl"),
    ".parquet": Kind("rows", "read_parquet"),
}


def ending(name: str) -> str:
    """The ending of a file's name in lower case, with its dot; "" if it has none."""
    stem, dot, end = name.rsplit("/", 1)[-1].rpartition(".")
    return f".{end.lower()}" if dot and stem else ""
