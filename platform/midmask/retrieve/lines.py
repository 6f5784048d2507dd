"""Files of lines, plain or gzip'd: read with an error that names the line, written alike for equal content."""

import contextlib
import gzip
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar, cast

from midmask.artifact import Place
from midmask.errors import UserError

T = TypeVar("T")


def parsed_lines(place: Place, parse: Callable[[Any], T], layout: str) -> Iterator[tuple[int, T]]:
    """(number from 1, what `parse` makes of it) of the JSON lines of a file, blank ones left out.

    Raises:
        UserError: naming file and line, for a line that is no JSON or that `parse` does not accept.
    """
    for number, line in text_lines(place):
        try:
            yield number, parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{place}, line {number}: {type(error).__name__} {error}; wanted is {layout}, found {line[:80]!r}"
            ) from None


def text_lines(place: Place) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of the lines of a file that are not blank, plain or gzip'd.

    Raises:
        UserError: if there is no such file, or it is no text or a broken gzip stream.
    """
    if not place.exists():
        raise UserError(f"{place}: there is no such file")
    with place.reading() as stream:
        try:
            for number, line in enumerate(io.TextIOWrapper(unpacked(stream), encoding="utf-8"), start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
            raise UserError(f"{place}: not a text file in UTF-8, plain or gzip'd ({error})") from None


def unpacked(stream: BinaryIO) -> io.BufferedReader:
    """A seekable stream's bytes from its start, unzipped if they are gzip's."""
    zipped = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    raw = gzip.GzipFile(fileobj=stream) if zipped else stream
    return io.BufferedReader(cast(io.RawIOBase, raw))


@contextlib.contextmanager
def written_lines(place: Place) -> Iterator[BinaryIO]:
    """A file to write lines to, gzip'd (no name, no time: equal content gives equal bytes) if its name ends in .gz."""
    with place.writing() as stream:
        if not place.uri.endswith(".gz"):
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed:
            yield cast(BinaryIO, packed)
