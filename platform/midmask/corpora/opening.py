"""Files of text, plain or gzip'd: opened by their contents, and refused as a whole where they hold something else.

A row that cannot be read is counted and quarantined. A file of another kind has no good row at all, so its first bytes
decide: other compressions, binary formats, wide encodings, web pages, JSON in another arrangement, other separators.
"""

import codecs
import contextlib
import gzip
import io
import json
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Literal, TypeVar, cast

from midmask.errors import UserError, quoted, reason
from midmask.store.place import Place

Form = Literal["json lines", "objects", "tabs", "columns", "run", "text"]
"""What a reader expects: passages or queries as JSON objects, objects with other fields, columns divided by tabs, or by
tabs or blanks, a run file's columns, or any text.
"""

EXPECTED: dict[Form, str] = {
    "json lines": "one JSON object a line",
    "objects": "one JSON object a line",
    "tabs": "lines of columns divided by tabs",
    "columns": "lines of columns divided by tabs or blanks",
    "run": "lines of columns divided by tabs or blanks, as in a TREC run file",
    "text": "plain text in UTF-8",
}
HEAD = 1 << 16
"""Bytes of a file's beginning that are looked at."""

LONGEST_LINE = 64 << 20
"""Bytes of a line, its end included, that are read; memory is held for one line."""

GZIP = b"\x1f\x8b"
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte-order marks and their codecs, the longer marks first."""

MAGIC = (
    (GZIP, "a gzip stream inside of one", "gzip -dc"),
    (b"\x28\xb5\x2f\xfd", "a zstd stream", "zstd -dc"),
    (b"BZh", "a bzip2 stream", "bzip2 -dc"),
    (b"\xfd7zXZ\0", "an xz stream", "xz -dc"),
    (b"\x04\x22\x4d\x18", "an lz4 stream", "lz4 -dc"),
    (b"PK\x03\x04", "a zip archive", "funzip"),
    (b"PAR1", "a Parquet file", ""),
    (b"ARROW1", "an Arrow file", ""),
    (b"\xff\xff\xff\xff", "an Arrow stream", ""),
    (b"%PDF-", "a PDF document", ""),
    (b"SQLite format 3\0", "an SQLite database", ""),
    (b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS in place of the file: git lfs pull", ""),
)
"""First bytes, what begins with them, and the command that gives the contents."""

SIGNS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}


class UnusableFile(UserError):
    """A file that a layout requires is there, and its contents are not what the layout requires."""


class BrokenFile(Exception):
    """What is wrong with a file from here on, where no further row can be found."""


def form_by_name(name: str) -> Form:
    """What a file whose format leaves that open must hold: JSON lines if it is named .jsonl, else any text."""
    return "objects" if re.search(r"\.jsonl(\.gz)?$", name) else "text"


def wide_encoding(head: bytes) -> str:
    """Codec of UTF-16 or UTF-32, by the byte-order mark or, without one, of UTF-16 by the zero bytes of its ASCII
    characters; "" for any other encoding.
    """
    if found := next((codec for mark, codec in MARKS if head.startswith(mark)), ""):
        return found
    even, odd = head[::2], head[1::2]
    if not odd or len(head) < 8:
        return ""
    zeros = even.count(0) / len(even), odd.count(0) / len(odd)
    if max(zeros) > 0.4 and min(zeros) < 0.02:
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    return ""


def _refuse_other_contents(name: str, head: bytes, form: Form) -> None:
    """
    Args:
        name: of the file, in messages and commands. head: its first bytes, unpacked, `HEAD` at most.

    Raises:
        UnusableFile: if these bytes cannot be the beginning of a file of this form. An empty file is none of these.
    """
    what, command = _binary_contents(head)
    if not what:
        text = head.decode(errors="replace").lstrip("\ufeff \t\r\n")
        what, command = _text_contents(text, form, cut=len(head) >= HEAD)
    if what:
        file = shlex.quote(name.rsplit("/", 1)[-1] if "://" in name else name)
        advice = f". Type: zcat -f {file} | {command} > NEW && mv NEW {file}" if command else ""
        raise UnusableFile(f"{name} holds {what}; expected: {EXPECTED[form]}{advice}")


def _binary_contents(head: bytes) -> tuple[str, str]:
    """(what the file is if it is no text in UTF-8, command that makes it one)."""
    for magic, what, command in MAGIC:
        if head.startswith(magic):
            return what, command
    if codec := wide_encoding(head):
        name = codec.upper() if codec in ("utf-16", "utf-32") else f"{codec[:6]}{codec[7:]}".upper()
        return f"text in {name}", f"iconv -f {name} -t UTF-8"
    if len(head) >= 20 and head.count(0) > len(head) / 5:
        return "binary data", ""
    return "", ""


def _text_contents(text: str, form: Form, *, cut: bool) -> tuple[str, str]:
    """(what the text is if it is not of this form, command that makes it so); a text of any form is a "text"."""
    start = text[:200].lower()
    if start.startswith(("<!doctype html", "<html")):
        return "a web page (HTML), such as the error page of a download", ""
    lines = [line for line in text.split("\n")[: -1 if cut else None] if line.strip()][:20]
    if form == "text" or not lines:
        return "", ""
    if start.startswith(("<?xml", "<error")):
        return "markup (XML), such as the error page of a download", ""
    if form in ("json lines", "objects"):
        return _other_than_json(text, lines, form)
    if re.match(r"[\[{]\s*[\[{\"']", text):
        return f"JSON: {quoted(lines[0])}", ""
    sign = next((sign for sign in ",;|" if all(sign in line for line in lines)), "")
    divided = sign and all(cell.endswith(sign) for line in lines for cell in line.split()[:-1])
    if any("\t" in line for line in lines) or not (divided or form == "tabs"):
        return "", ""
    if not sign:
        return "lines without a tab", ""
    columns = f'csv.writer(sys.stdout, "excel-tab").writerows(csv.reader(sys.stdin, delimiter="{sign}"))'
    return f"columns divided by {SIGNS[sign]}", f"python -c {shlex.quote(f'import csv, sys; {columns}')}"


def _other_than_json(text: str, lines: list[str], form: Form) -> tuple[str, str]:
    if re.match(r"\[\s*[{\[\"]", text) and (len(lines) == 1 or not _is_json(lines[0])):
        rows = "[print(json.dumps(row)) for row in json.load(sys.stdin)]"
        return "one JSON array", f"python -c {shlex.quote(f'import json, sys; {rows}')}"
    if lines[0].strip() == "{":
        return "JSON objects of several lines each", ""
    if form == "objects" or any(line.lstrip().startswith(("{", "[")) for line in lines):
        return "", ""
    sign = next((sign for sign in SIGNS if all(sign in line for line in lines)), "")
    return (f"columns divided by {SIGNS[sign]}" if sign else "lines of text"), ""


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


@contextlib.contextmanager
def open_text(place: Place, form: Form | None = "text", name: str = "") -> Iterator[BinaryIO]:
    """The bytes of a file, unzipped if they are gzip's.

    Args:
        form: what its first bytes must be the beginning of; None: they are not looked at.
        name: what messages call the file; its place unless given.

    Raises:
        UserError: if the file is not there, cannot be read, is not a text, or its gzip stream is broken.
        UnusableFile: if it holds something else.
    """
    with _readable(place, name or str(place)), place.reading() as raw:
        stream = _unpack(raw)
        if form is not None:
            _refuse_other_contents(str(place), stream.read(HEAD), form)
            stream.seek(0)
        yield stream


@contextlib.contextmanager
def _readable(place: Place, name: str) -> Iterator[None]:
    """Reading in here raises UserError for what prevents it."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: broken gzip stream ({reason(error)}); copy the file again") from None
    except FileNotFoundError:
        raise UserError(
            f"{name}: there is no such file; every machine that reads needs it: use a shared folder or a URI"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not a text in UTF-8 ({error}); convert the file") from None
    except BrokenFile as error:
        raise UserError(f"{name}: {error}") from None
    except OSError as error:  # a folder, no permission, a disk
        if place.is_folder():
            contents = ", ".join(place.names()[:3]) or "nothing"
            raise UserError(f"{name}: a folder, which contains {contents}; name a file in it") from None
        raise UserError(f"{name} cannot be read ({reason(error)})") from None


def _unpack(stream: BinaryIO) -> BinaryIO:
    """A stream's bytes from its start, unzipped if they are gzip's."""
    raw = io.BufferedReader(cast(io.RawIOBase, stream), 1 << 20)
    if raw.peek(len(GZIP))[: len(GZIP)] != GZIP:
        return raw
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)), 1 << 20)


def measure_file(place: Place) -> tuple[int, bool]:
    """(bytes on disk, whether they are a gzip stream).

    Raises:
        UserError: if the file is not there, or is a folder.
    """
    with _readable(place, str(place)), place.reading() as raw:
        return int(raw.size()), raw.read(len(GZIP)) == GZIP  # type: ignore[attr-defined]


T = TypeVar("T")


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
        UserError: as `open_text`, and for a line beyond `LONGEST_LINE`.
    """
    name = name or str(place)
    with open_text(place, form, name) as source:
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


@contextlib.contextmanager
def write_lines(place: Place) -> Iterator[BinaryIO]:
    """A file to write lines to, gzip'd (no name, no time: equal content gives equal bytes) if its name ends in .gz."""
    with place.writing() as stream:
        if not place.uri.endswith(".gz"):
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed:
            yield cast(BinaryIO, packed)
