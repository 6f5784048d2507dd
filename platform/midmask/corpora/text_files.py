"""Files of text, plain or gzip'd: opened by their names, and refused as a whole where they hold something else.

A row that cannot be read is counted and quarantined. A file of another kind has no good row at all, so its first bytes
decide: other compressions, binary formats, wide encodings, web pages, JSON in another arrangement, other separators.
The error names a command that converts the file.
"""

import ast
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
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte-order marks and their codecs, the longer marks first."""

HEAD = 1 << 16
"""Bytes of a file's beginning that are looked at."""

LINES = 20
SIGNS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}
GZIP = b"\x1f\x8b"
PACKED = (
    (rb"\x1f\x8b", "a gzip stream", "gzip -dc"),
    (rb"\x28\xb5\x2f\xfd", "a zstd stream", "zstd -dc"),
    (rb"BZh[1-9]1AY&SY", "a bzip2 stream", "bzip2 -dc"),
    (rb"\xfd7zXZ\0", "an xz stream", "xz -dc"),
    (rb"\x04\x22\x4d\x18", "an lz4 stream", "lz4 -dc"),
    (rb"PK\x03\x04", "a zip archive", "unzip -p"),
    (rb"(?s).{257}ustar", "a tar archive", "tar -xOf -"),
)
BINARY = (
    (rb"PAR1", "a Parquet file", "pyarrow.parquet.read_table(sys.argv[1])"),
    (rb"ARROW1", "an Arrow file", "pyarrow.ipc.open_file(sys.argv[1]).read_all()"),
    (rb"\xff\xff\xff\xff", "an Arrow stream", "pyarrow.ipc.open_stream(sys.argv[1]).read_all()"),
    (rb"%PDF-", "a PDF document", ""),
    (rb"SQLite format 3\0", "an SQLite database", ""),
    (rb"\x93NUMPY", "a NumPy array", ""),
    (rb"\xd0\xcf\x11\xe0", "an Office document", ""),
    (rb"7z\xbc\xaf", "a 7z archive", ""),
    (rb"\x80[\x02-\x05][\x95\]}(]", "a Python pickle", ""),
)
"""Patterns of first bytes, what begins with them, and the command or code that gives the contents."""

POINTER = "version https://git-lfs.github.com/spec/"
ERRORS = {"error", "errors", "message", "detail"}
"""First keys of what a server sends in place of a file."""


def form_by_name(name: str) -> Form:
    """What a file whose format leaves that open must hold: JSON lines if it is named .jsonl, else any text."""
    return "objects" if re.search(r"\.jsonl(\.gz)?$", name) else "text"


class UnusableFile(UserError):
    """A file that a layout requires is there, and its contents are not what the layout requires."""


def refuse_other_contents(name: str, raw: bytes, form: Form, *, by_name: bool = True) -> None:
    """
    Args:
        name: of the file, in messages and commands.
        raw: its first bytes, `HEAD` at most, as they lie on disk.
        by_name: whether only files whose names end in .gz may be gzip streams, and must be.

    Raises:
        UnusableFile: if these bytes cannot be the beginning of a file of this form. An empty file is none of these.
    """
    is_gzip, named_gzip = raw.startswith(GZIP), name.endswith(".gz")
    file = _File(name, form, pack=named_gzip)
    if by_name and is_gzip and not named_gzip:
        raise file.refusal("a gzip stream, which its name does not say", f"Rename it: mv {file.path} {file.path}.gz")
    head = raw
    if is_gzip:
        file.steps.append("gzip -dc")
        try:
            head = zlib.decompressobj(wbits=31).decompress(raw, HEAD)
        except zlib.error:  # damage, which the reader of the stream names
            return
    if head.startswith(codecs.BOM_UTF8):
        file.steps.append("tail -c +4")
    _refuse_bytes(file, head)
    if by_name and named_gzip and raw and not is_gzip:
        plain = shlex.quote(file.name.removesuffix(".gz"))
        raise file.refusal("no gzip stream, which its name promises", f"Rename it: mv {file.path} {plain}")
    _refuse_text(file, head.decode(errors="replace").lstrip("\ufeff \t\r\n"), cut=len(head) >= HEAD)


class _File:
    """The file that is looked at, and commands that replace it with another form of its contents."""

    def __init__(self, name: str, form: Form, *, pack: bool) -> None:
        self.form, self.is_json = form, form in ("json lines", "objects")
        self.name = name.rsplit("/", 1)[-1] if "://" in name else name
        self.path = shlex.quote(self.name)
        self.steps: list[str] = []
        """Commands that make the bytes on disk the text that is looked at."""
        self._address, self._pack = name, " | gzip" if pack else ""

    def refusal(self, what: str, advice: str = "") -> UnusableFile:
        advice = f". {advice}" if advice else ""
        return UnusableFile(f"{self._address} holds {what}; expected: {EXPECTED[self.form]}{advice}")

    def piped(self, what: str, command: str, verb: str = "Unpack") -> UnusableFile:
        """The refusal with a command that reads the file's text from its standard input."""
        first, *others = [*self.steps, command]
        return self.refusal(what, f"{verb} it: {self._replacing(' | '.join([f'{first} < {self.path}', *others]))}")

    def opened(self, what: str, command: str, verb: str = "Unpack") -> UnusableFile:
        """The refusal with a command whose last argument is the file, unless that must be unpacked first."""
        return self.refusal(what, "" if self.steps else f"{verb} it: {self._replacing(f'{command} {self.path}')}")

    def converted(self, what: str, code: str, modules: str = "json, sys", *, opened: bool = False) -> UnusableFile:
        """The refusal with Python code that prints the form; without, if there is no code."""
        command = f"python -c {shlex.quote(f'import {modules}; {code}')}"
        return (self.opened if opened else self.piped)(what, command, "Convert") if code else self.refusal(what)

    def rows(self, rows: str) -> str:
        """Code that prints rows, which are dicts; "" for runs, whose columns' names nobody can know."""
        printed = "print(json.dumps(row))" if self.is_json else 'print(*row.values(), sep="\\t")'
        return "" if self.form == "run" else f"[{printed} for row in {rows}]"

    def _replacing(self, command: str) -> str:
        new = shlex.quote(f"{self.name}.new")
        return f"{command}{self._pack} > {new} && mv {new} {self.path}"


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


def _refuse_bytes(file: _File, head: bytes) -> None:
    for magic, what, unpack in PACKED:
        if re.match(magic, head):
            raise (file.opened if unpack == "unzip -p" else file.piped)(what, unpack)
    for magic, what, table in BINARY:
        if re.match(magic, head):
            module = table.rpartition(".read_table")[0] or "pyarrow.ipc"
            code = file.rows(f"{table}.to_pylist()") if table else ""
            raise file.converted(what, code, f"json, sys, {module}", opened=True)
    if codec := wide_encoding(head):
        name = codec.upper() if codec in ("utf-16", "utf-32") else f"{codec[:6]}{codec[7:]}".upper()
        raise file.piped(f"text in {name}", f"iconv -f {name} -t UTF-8", "Convert")
    if len(head) >= LINES and head.count(0) > len(head) / 5:
        raise file.refusal("binary data")


def _refuse_text(file: _File, text: str, *, cut: bool) -> None:
    start = text[:200].lower()
    if start.startswith(("<!doctype html", "<html")):
        raise file.refusal("a web page (HTML), such as the error page of a download", "Download it again")
    if start.startswith(("<?xml", "<error")) and file.form != "text":
        raise file.refusal("markup (XML), such as the error page of a download", "Download it again")
    if start.startswith(POINTER):
        raise file.refusal("a pointer of Git LFS in place of the file", "Fetch it: git lfs pull")
    lines = [line for line in text.split("\n")[: LINES + 1] if line.strip()]
    if cut and len(lines) > 1 and text.count("\n") <= LINES:
        lines = lines[:-1]
    if not lines or file.form == "text":
        return
    if re.match(r"\[\s*([{\[\"]|\]|$)" if file.form == "json lines" else r"\[\s*\{\s*\"", text):
        # A list in a line of its own, before other lines, is a bad row.
        if not file.is_json or len(lines) == 1 or _parsed(lines[0]) is None:
            raise file.converted("one JSON array", file.rows("json.load(sys.stdin)"))
    elif re.match(r"\{\s*[\"}']", text):
        _refuse_objects(file, text, lines, cut=cut)
    elif file.form == "json lines":
        _refuse_columns_for_json(file, lines)
    elif file.form != "objects":  # whose readers name the first line that is none
        _refuse_separators(file, lines)


def _parsed(text: str, parse: Callable[[str], Any] = json.loads) -> Any:
    """The value of a text; None if it is none."""
    try:
        return parse(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _refuse_objects(file: _File, text: str, lines: list[str], *, cut: bool) -> None:
    is_error = len(lines) == 1 and _first_entry(text)[0] in ERRORS
    if not file.is_json and not is_error and all(_is_flat(_parsed(line)) for line in lines):
        raise file.converted("one JSON object a line", file.rows("map(json.loads, filter(str.strip, sys.stdin))"))
    if all(re.match(r"\s*\{\s*'", line) and isinstance(_parsed(line, ast.literal_eval), dict) for line in lines):
        code = file.rows("map(ast.literal_eval, filter(str.strip, sys.stdin))")
        raise file.converted("lines as Python prints its dicts", code, "ast, json, sys")
    whole = None if cut else _parsed(text)
    is_row = file.form == "objects" or _is_row(text, whole)
    several = lines[0].strip() == "{" or (len(lines) > 1 and whole is not None)
    if several and (re.search(r"\n\}\s*\{", text) or is_row):
        split = r're.split(r"(?<=\n\})\s*(?=\{)", sys.stdin.read())'
        code = file.rows(f"map(json.loads, {split})")
        raise file.converted("JSON objects of several lines each", code, "json, re, sys")
    if (several or len(lines) == 1) and (cut or whole is not None) and not is_row:
        _refuse_one_object(file, text)


def _is_flat(row: Any) -> bool:
    return isinstance(row, dict) and not any(isinstance(value, dict | list) for value in row.values())


def _is_row(text: str, whole: Any) -> bool:
    """Whether an object, of which `whole` may be unknown, is a passage or query and not a collection of them."""
    if whole is not None:
        return bool(whole.keys() & {"_id", "id", "text", "contents"})
    key, sign = _first_entry(text)
    return sign not in ("[", "{") or key == "metadata"


def _first_entry(text: str) -> tuple[str, str]:
    """The first key of an object, and the sign that its value begins with, if that is one of `[{"`."""
    match = re.match(r"\{\s*(\"(?:[^\"\\]|\\.)*\")\s*:\s*([\[{\"]?)", text)
    return (_parsed(match[1]) or "", match[2]) if match else ("", "")


def _refuse_one_object(file: _File, text: str) -> None:
    """For an object that is the whole file: passages or queries by id, judgements by query, or rows below a name."""
    key, sign = _first_entry(text)
    items = "key, row in json.load(sys.stdin).items()"
    code = {
        ("json lines", "{"): f'[print(json.dumps({{"_id": key, **row}})) for {items}]',
        ("json lines", '"'): f'[print(json.dumps({{"_id": key, "text": row}})) for {items}]',
        ("columns", "{"): f'[print(key, doc, grade, sep="\\t") for {items} for doc, grade in row.items()]',
        ("run", "{"): f'[print(key, "Q0", doc, 0, score, "run") for {items} for doc, score in row.items()]',
        ("tabs", '"'): f'[print(key, row, sep="\\t") for {items}]',
    }.get((file.form, sign), file.rows(f"json.load(sys.stdin)[{json.dumps(key)}]") if sign == "[" else "")
    raise file.converted(f"one JSON object, whose first key is {quoted(key)}", "" if key in ERRORS else code)


def _refuse_columns_for_json(file: _File, lines: list[str]) -> None:
    if any(line.lstrip().startswith("{") for line in lines):
        return
    if lines[0].startswith("<"):
        raise file.refusal("markup")
    sign = _separator(lines, "\t,;|")
    if not sign:
        row = '{"_id": str(number), "text": line.strip()}'
        code = f"[print(json.dumps({row})) for number, line in enumerate(sys.stdin) if line.strip()]"
        raise file.converted("lines of text", code)
    header = {cell.strip(' "').lower() for cell in lines[0].split(sign)}
    fields = ["_id", "text"] if lines[0].count(sign) == 1 else ["_id", "title", "text"]
    names = "" if "text" in header else f", {json.dumps(fields)}"
    code = file.rows(f"csv.DictReader(sys.stdin{names}, delimiter={json.dumps(sign)})")
    raise file.converted(f"columns divided by {SIGNS[sign]}", code, "csv, json, sys")


def _refuse_separators(file: _File, lines: list[str]) -> None:
    if any("\t" in line for line in lines):
        return
    sign = _separator(lines, ",;|")
    if file.form != "tabs" and not (sign and all(cell.endswith(sign) for line in lines for cell in line.split()[:-1])):
        return
    if not sign:
        raise file.refusal("lines without a tab")
    cells = '" ".join(cell.split()) for cell in row'
    code = f'[print(*({cells}), sep="\\t") for row in csv.reader(sys.stdin, delimiter={json.dumps(sign)})]'
    raise file.converted(f"columns divided by {SIGNS[sign]}", code, "csv, sys")


def _separator(lines: list[str], signs: str) -> str:
    """The first of the signs that every line has; "" if there is none."""
    return next((sign for sign in signs if all(sign in line for line in lines)), "")


class BrokenFile(Exception):
    """What is wrong with a file from here on, where no further row can be found."""


@contextlib.contextmanager
def whole_stream(name: object) -> Iterator[None]:
    """Reading in here raises UserError where a gzip stream is cut off or damaged; `name`: of the file, for people."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: broken gzip stream ({reason(error)}); copy the file again") from None


@contextlib.contextmanager
def open_file(folder: Place, file: str, form: Form | None = "text") -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if its name ends in .gz.

    Args:
        form: what its first bytes must be the beginning of; None: they are not looked at.

    Raises:
        UserError: if the file is not there, cannot be read, is not a text, or its gzip stream is broken.
        UnusableFile: if it holds something else.
    """
    with _name_errors(folder, file), whole_stream(folder / file), (folder / file).reading() as raw:
        stream = io.BufferedReader(raw, 1 << 20)  # type: ignore[type-var]
        if form is not None:
            refuse_other_contents(str(folder / file), stream.peek(HEAD)[:HEAD], form)
        yield gzip.GzipFile(fileobj=stream) if file.endswith(".gz") else stream  # type: ignore[misc]


@contextlib.contextmanager
def _name_errors(folder: Place, file: str) -> Iterator[None]:
    place = folder / file
    try:
        yield
    except FileNotFoundError:
        raise UserError(
            f"{place} is not there; every machine that reads needs it: use a shared folder or a URI"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: not a text in UTF-8 ({error}); convert the file") from None
    except BrokenFile as error:
        raise UserError(f"{place}: {error}") from None
    except OSError as error:  # after zlib's, which `whole_stream` has made a UserError: a folder, no permission, a disk
        if place.is_folder():
            contents = ", ".join(place.names()[:3]) or "nothing"
            raise UserError(f"{place} is a folder, which contains {contents}; expected: a file of this name") from None
        raise UserError(f"{place} cannot be read ({reason(error)})") from None


def file_size(folder: Place, file: str) -> int:
    """Bytes on disk.

    Raises:
        UserError: if the file is not there, or is a folder.
    """
    with _name_errors(folder, file), (folder / file).reading() as stream:
        return int(stream.size())  # type: ignore[attr-defined]


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
