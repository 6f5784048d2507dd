"""Where a passage of a document comes from, as its id states it.

    guide/install.md#120-860    characters 120 … 859 of the document's extracted text
    faq.csv#12                  row 12 of a table, the first one after the header being 1
    faq.csv#12:0-640            characters 0 … 639 of that row's text

Ids may hold no white space, and `#` ends the file's name, so these characters (and `%`) are percent-encoded in names,
as are bytes that are no UTF-8.
"""

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_ID = re.compile(r"(?P<file>[^#\s]+)#(?:(?P<row>[1-9]\d*)(?P<colon>:|\Z))?(?:(?P<start>\d+)-(?P<end>\d+))?")
_ENCODED = frozenset("#%")


@dataclass(frozen=True)
class Provenance:
    """A span of a document. file: path below the corpus's folder. start, end: characters of the extracted text, end not
    included; None for a whole row. row: of a table, from 1; None for other documents.
    """

    file: str
    start: int | None = None
    end: int | None = None
    row: int | None = None

    @property
    def doc_id(self) -> str:
        """The passage's id; `provenance_of` gives this object back."""
        span = "" if self.start is None else f"{self.start}-{self.end}"
        row = "" if self.row is None else f"{self.row}{':' if span else ''}"
        return f"{quote_name(self.file)}#{row}{span}"


def provenance_of(doc_id: str) -> Provenance | None:
    """What an id of the corpus format `docs` states; None for an id of another form."""
    match = _ID.fullmatch(doc_id)
    if match is None:
        return None
    row, start, end = (None if match[name] is None else int(match[name]) for name in ("row", "start", "end"))
    if (row is None and start is None) or (match["colon"] == ":") != (row is not None and start is not None):
        return None
    if start is not None and end is not None and start >= end:
        return None
    return Provenance(os.fsdecode(unquote_to_bytes(match["file"])), start, end, row)


def document_of(doc_id: str) -> str:
    """The document's part of an id: all before `#`, percent-encoded as it is there; the whole id where there is none.
    Rows of one table share it.
    """
    return doc_id.partition("#")[0]


def quote_name(name: str) -> str:
    """A file's name with white space, control characters, `#`, `%` and bytes that are no UTF-8 percent-encoded."""
    return "".join(_quote(character) for character in name)


def _quote(character: str) -> str:
    """A character from 0xDC80 to 0xDCFF stands for a byte of a name that is no UTF-8, as Python reads names."""
    code = ord(character)
    if not (code < 32 or 127 <= code < 160 or 0xD800 <= code < 0xE000 or character.isspace() or character in _ENCODED):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
