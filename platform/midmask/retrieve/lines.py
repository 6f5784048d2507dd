"""Files of lines, plain or gzip'd: read with an error that names the line, written alike for equal content."""

import contextlib
import gzip
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Literal, TypeVar, cast

from midmask.corpora.text_files import HEAD, Form, refuse_other_contents, whole_stream
from midmask.errors import UserError, reason
from midmask.store.place import Place

T = TypeVar("T")

LONGEST_LINE = 64 << 20
"""Bytes of a line, its end included, that are read; memory is held for one line."""


def parse_lines(place: Place, parse: Callable[[Any], T], layout: str) -> Iterator[tuple[int, T]]:
    """(number from 1, what `parse` makes of it) of the JSON lines of a file, blank ones left out.

    Raises:
        UserError: naming file and line, for a line that is no JSON or that `parse` does not accept.
    """
    for number, line in text_lines(place, form="objects"):
        try:
            yield number, parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UserError(
                f"{place}, line {number}: {reason(error)}; wanted is {layout}, found {line[:80]!r}"
            ) from None


def text_lines(
    place: Place, *, name: str = "", errors: Literal["strict", "replace"] = "strict", form: Form = "text"
) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of the lines of a file that are not blank, plain or gzip'd.

    Args:
        name: what messages call the file; its place unless given.
        errors: what becomes of bytes that are not UTF-8: an error, or U+FFFD.
        form: what the file must hold, by its first bytes.

    Raises:
        UserError: if there is no such file, it is a folder, is no text or of another form, has a line beyond
            `LONGEST_LINE`, or is a broken gzip stream.
    """
    name = name or str(place)
    if not place.exists():
        raise UserError(f"{name}: there is no such file")
    if place.is_folder():
        raise UserError(f"{name}: a folder; name a file in it")
    with place.reading() as stream, whole_stream(name):
        refuse_other_contents(str(place), stream.read(HEAD), form, by_name=False)
        stream.seek(0)
        source = unpack(stream)
        for number, data in enumerate(iter(lambda: source.readline(LONGEST_LINE), b""), start=1):
            if len(data) == LONGEST_LINE:
                raise UserError(f"{name}, line {number}: longer than {LONGEST_LINE >> 20} MiB")
            try:
                line = data.decode(errors=errors)
            except UnicodeDecodeError as error:
                raise UserError(f"{name}, line {number}: not a text in UTF-8, plain or gzip'd ({error})") from None
            line = line.removeprefix("\ufeff") if number == 1 else line
            if line.strip():
                yield number, line.rstrip("\r\n")


def unpack(stream: BinaryIO) -> io.BufferedReader:
    """A seekable stream's bytes from its start, unzipped if they are gzip's."""
    zipped = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    raw = gzip.GzipFile(fileobj=stream) if zipped else stream
    return io.BufferedReader(cast(io.RawIOBase, raw))


@contextlib.contextmanager
def write_lines(place: Place) -> Iterator[BinaryIO]:
    """A file to write lines to, gzip'd (no name, no time: equal content gives equal bytes) if its name ends in .gz."""
    with place.writing() as stream:
        if not place.uri.endswith(".gz"):
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed:
            yield cast(BinaryIO, packed)
