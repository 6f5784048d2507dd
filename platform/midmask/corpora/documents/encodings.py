"""The encoding of a text, guessed from its bytes, and the text in lines of bounded length.

A byte-order mark decides; else UTF-8, if all bytes are valid in it or most of what is not ASCII is; else
charset-normalizer's guess on a sample. With very few characters beyond ASCII that guess is a lottery, so there it is
Windows-1252, which holds Latin-1. Bytes that the encoding lacks become U+FFFD, and the encoding's name says so.
"""

import codecs
import io
import logging
from collections.abc import Iterator
from typing import BinaryIO

from midmask.corpora.contents import wide_encoding
from midmask.corpora.documents.source import BINARY, EMPTY_FILE, DocumentFile, Unreadable

SAMPLE = 32 << 10
"""Bytes by which an encoding is guessed."""

CHUNK = 1 << 20
LINE_CHARACTERS = 20_000
"""A longer line is given in several fragments."""

FEW = 8
"""Number of bytes beyond ASCII below which no guess is tried."""

REPLACED = ", invalid bytes replaced"
UNMARKED = ("utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le", "utf_7")
"""Encodings that any bytes may seem to be: taken only with a mark, or by their zero bytes (`wide_encoding`)."""

_CONTROLS = bytes(set(range(1, 32)) - set(b"\t\n\r\f\v\x1b\x08")) + b"\x7f"
_CONTROL_SHARE, _NUL_SHARE = 0.02, 0.2


def guess_encoding(stream: BinaryIO) -> tuple[str, str]:
    """(codec, name for counts) of a stream's text; reads all of it, and leaves it at its start.

    Raises:
        Unreadable: for an empty file, or one of bytes that no text has.
    """
    head = stream.read(SAMPLE)
    if not head.strip() and not stream.read(1):
        raise Unreadable(EMPTY_FILE)
    found = wide_encoding(head)
    if not found and not head.startswith(codecs.BOM_UTF8) and _is_binary(head):
        raise Unreadable(BINARY, "it holds control characters")
    stream.seek(0)
    if not found:
        found, name = _guess_bytewise(stream)
    else:
        name = found
    stream.seek(0)
    return found, name


def _is_binary(head: bytes) -> bool:
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls > _CONTROL_SHARE * len(head) or head.count(0) > _NUL_SHARE * len(head)


def _guess_bytewise(stream: BinaryIO) -> tuple[str, str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    encoded = replaced = 0
    sample = b""
    while data := stream.read(CHUNK):
        text = decoder.decode(data)
        if data.isascii():
            continue
        wrong = text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
        replaced += wrong
        encoded += len(text) - len(text.encode("ascii", "ignore")) - wrong
        if wrong > 0 and len(sample) < SAMPLE:
            sample += _around_bytes(data)[: SAMPLE - len(sample)]
    if replaced <= 0:
        return "utf-8-sig", "utf-8"
    if encoded > replaced:
        return "utf-8-sig", f"utf-8{REPLACED}"
    codec = _guess_sample(sample)
    return codec, codec.replace("_", "-")


def _around_bytes(data: bytes) -> bytes:
    """Some of the data, from a line's start before the first byte beyond ASCII."""
    first = len(data) - len(data.lstrip(bytes(range(128))))
    return data[data.rfind(b"\n", max(0, first - 512), first) + 1 or max(0, first - 512) :][:SAMPLE]


def _guess_sample(sample: bytes) -> str:
    beyond = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
    if beyond >= FEW:
        from charset_normalizer import from_bytes

        logging.getLogger("charset_normalizer").setLevel(logging.WARNING)
        best = from_bytes(sample, cp_exclusion=list(UNMARKED)).best()
        if best is not None and best.encoding not in ("ascii", "utf_8"):
            return str(best.encoding)
    return "cp1252"


def read_lines(source: DocumentFile) -> tuple[str, Iterator[str]]:
    """(name of the encoding, lines with `\\n` at their ends, the last one perhaps without). A line of more than 20,000
    characters comes in several fragments; NUL characters are left out.

    Raises:
        Unreadable: as `guess_encoding`.
    """
    with source.reading() as stream:
        codec, name = guess_encoding(stream)
    return name, _lines(source, codec)


def _lines(source: DocumentFile, codec: str) -> Iterator[str]:
    with source.reading() as stream, io.TextIOWrapper(stream, codec, errors="replace") as text:
        while line := text.readline(LINE_CHARACTERS):
            yield line.replace("\0", "")
