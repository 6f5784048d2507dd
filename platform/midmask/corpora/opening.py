"""Files of text, plain or gzip'd: opened by their contents, and refused as a whole where they hold no text in UTF-8.

A row that cannot be read is counted and quarantined. A binary file (another compression, Parquet, UTF-16, …) has no
good row at all, so its first bytes decide.
"""

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Literal, TypeVar, cast

from midmask.errors import UserError, reason
from midmask.store.place import Place

HEAD = 32 << 10
"""Bytes of a file's beginning that are looked at."""

LONGEST_LINE = 64 << 20
"""Bytes of a line, its end included, that are read; memory is held for one line."""

GZIP = b"\x1f\x8b"

_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\x08")) + b"\x7f"
_CONTROL_SHARE = 0.05
"""Of random bytes, as compressed data looks, a tenth are control characters; of text hardly any."""


class UnusableFile(UserError):
    """A file that a layout requires is there, and its contents are not what the layout requires."""


class BrokenFile(Exception):
    """What is wrong with a file from here on, where no further row can be found."""


def is_binary(head: bytes) -> bool:
    """Whether a file that begins with these bytes is none of text in UTF-8 or any encoding of single bytes."""
    return len(head) - len(head.translate(None, _CONTROLS)) > _CONTROL_SHARE * len(head)


@contextlib.contextmanager
def open_text(place: Place) -> Iterator[BinaryIO]:
    """The bytes of a file, unzipped if they are gzip's.

    Raises:
        UserError: if the file is not there, cannot be read, or its gzip stream is broken.
        UnusableFile: if it is no text.
    """
    with _readable(place), place.reading() as raw:
        stream = _unpack(raw)
        head = stream.read(HEAD)
        if is_binary(head):
            raise UnusableFile(
                f"{place} holds binary data, or text in UTF-16 (it begins with {head[:16]!r}); expected: text "
                "in UTF-8, plain or gzip'd; unpack or convert the file"
            )
        stream.seek(0)
        yield stream


@contextlib.contextmanager
def _readable(place: Place) -> Iterator[None]:
    """Reading in here raises UserError for what prevents it."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{place}: broken gzip stream ({reason(error)}); copy the file again") from None
    except FileNotFoundError:
        raise UserError(
            f"{place}: there is no such file; every machine that reads needs it: use a shared folder or a URI"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: not a text in UTF-8 ({error}); convert the file") from None
    except BrokenFile as error:
        raise UserError(f"{place}: {error}") from None
    except OSError as error:  # a folder, no permission, a disk
        if place.is_folder():
            contents = ", ".join(place.names()[:3]) or "nothing"
            raise UserError(f"{place}: a folder, which contains {contents}; name a file in it") from None
        raise UserError(f"{place} cannot be read ({reason(error)})") from None


def _unpack(stream: BinaryIO) -> BinaryIO:
    """A stream's bytes from its start, unzipped if they are gzip's."""
    raw = io.BufferedReader(cast(io.RawIOBase, stream), 1 << 20)
    if raw.peek(len(GZIP))[: len(GZIP)] != GZIP:
        return raw
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)), 1 << 20)


def measure_file(place: Place) -> int:
    """Bytes on disk.

    Raises:
        UserError: if the file is not there, or is a folder.
    """
    with _readable(place), place.reading() as raw:
        return int(raw.size())  # type: ignore[attr-defined]


T = TypeVar("T")


def parse_lines(place: Place, parse: Callable[[Any], T], layout: str) -> Iterator[tuple[int, T]]:
    """(number from 1, what `parse` makes of it) of the JSON lines of a file, blank ones left out.

    Raises:
        UserError: naming file and line, for a line that is no JSON or that `parse` does not accept.
    """
    for number, line in text_lines(place):
        try:
            yield number, parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UserError(
                f"{place}, line {number}: {reason(error)}; wanted is {layout}, found {line[:80]!r}"
            ) from None


def text_lines(place: Place, *, errors: Literal["strict", "replace"] = "strict") -> Iterator[tuple[int, str]]:
    """(number from 1, text) of the lines of a file that are not blank, plain or gzip'd.

    Args:
        errors: what becomes of bytes that are not UTF-8: an error, or U+FFFD.

    Raises:
        UserError: as `open_text`, and for a line beyond `LONGEST_LINE`.
    """
    with open_text(place) as source:
        for number, data in enumerate(iter(lambda: source.readline(LONGEST_LINE), b""), start=1):
            if len(data) == LONGEST_LINE:
                raise UserError(f"{place}, line {number}: longer than {LONGEST_LINE >> 20} MiB")
            try:
                line = data.decode(errors=errors)
            except UnicodeDecodeError as error:
                raise UserError(f"{place}, line {number}: not a text in UTF-8, plain or gzip'd ({error})") from None
            line = line.removeprefix("\ufeff") if number == 1 else line
            if line.strip():
                yield number, line.rstrip("\r\n")


@contextlib.contextmanager
def write_lines(place: Place) -> Iterator[BinaryIO]:
    """A file to write lines to, gzip'd (no name, no time: equal content gives equal bytes) if its name ends in .gz."""
    with place.writing() as stream:
        if not place.uri.endswith(".gz"):
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed:
            yield cast(BinaryIO, packed)
