"""Refuses files that as a whole hold something else than a reader expects, with a command that converts them.

A row that cannot be read is counted and quarantined. A file of another kind has no good row at all, so its first bytes
decide: other compressions, binary formats, wide encodings, web pages, JSON in another arrangement, other separators.
"""

import ast
import json
import re
import shlex
import zlib
from typing import Any, Literal

from midmask.corpora.documents.encodings import wide_encoding
from midmask.errors import UserError, quoted

Form = Literal["json lines", "tabs", "columns", "run", "text"]
"""What a reader expects: JSON objects, columns divided by tabs, or by tabs or blanks, a run file's, or any text."""

EXPECTED: dict[Form, str] = {
    "json lines": "one JSON object a line",
    "tabs": "lines of columns divided by tabs",
    "columns": "lines of columns divided by tabs or blanks",
    "run": "lines of columns divided by tabs or blanks, as in a TREC run file",
    "text": "plain text in UTF-8",
}
HEAD = 1 << 16
"""Bytes of a file's beginning that are looked at."""

LINES = 20
GZIP = b"\x1f\x8b"
PACKED = (
    (GZIP, "a gzip stream", "gzip -dc"),
    (b"\x28\xb5\x2f\xfd", "a zstd stream", "zstd -dc"),
    (b"BZh", "a bzip2 stream", "bzip2 -dc"),
    (b"\xfd7zXZ\0", "an xz stream", "xz -dc"),
    (b"\x04\x22\x4d\x18", "an lz4 stream", "lz4 -dc"),
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
)
BINARY = (
    (b"PAR1", "a Parquet file", "pyarrow.parquet.read_table(sys.argv[1])"),
    (b"ARROW1", "an Arrow file", "pyarrow.ipc.open_file(sys.argv[1]).read_all()"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "pyarrow.ipc.open_stream(sys.argv[1]).read_all()"),
    (b"%PDF-", "a PDF document", ""),
    (b"SQLite format 3\0", "an SQLite database", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"\xd0\xcf\x11\xe0", "an Office document", ""),
    (b"7z\xbc\xaf", "a 7z archive", ""),
    (b"\x80\x04\x95", "a Python pickle", ""),
    (b"\x80\x05\x95", "a Python pickle", ""),
)
POINTER = "version https://git-lfs.github.com/spec/"
TO_JSON, TO_COLUMNS = "print(json.dumps({}))", 'print(*{}.values(), sep="\\t")'


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
    file = _Command(name, pack=named_gzip)
    if by_name and is_gzip and not named_gzip:
        raise file.refusal(
            "a gzip stream, which its name does not say", form, "Rename it", f"mv {file.path} {file.path}.gz"
        )
    head = raw
    if is_gzip:
        file = _Command(name, read="gzip -dc", pack=named_gzip)
        try:
            head = zlib.decompressobj(wbits=31).decompress(raw, HEAD)
        except zlib.error:  # damage, which the reader of the stream names
            return
    _refuse_bytes(file, head, form)
    if by_name and named_gzip and raw and not is_gzip:
        plain = shlex.quote(file.name.removesuffix(".gz"))
        raise file.refusal("no gzip stream, which its name promises", form, "Rename it", f"mv {file.path} {plain}")
    _refuse_text(file, head.decode(errors="replace").lstrip("\ufeff \t\r\n"), form, cut=len(head) >= HEAD)


class _Command:
    """Commands for one file, whose result replaces it."""

    def __init__(self, name: str, *, read: str = "", pack: bool = False) -> None:
        self.address = name
        self.name = name.rsplit("/", 1)[-1] if "://" in name else name
        self.path, self._read, self._pack = shlex.quote(self.name), read, pack

    def refusal(self, what: str, form: Form, verb: str = "", command: str = "") -> UnusableFile:
        advice = f". {verb}: {command}" if command else f". {verb}" if verb else ""
        return UnusableFile(f"{self.address} holds {what}; expected is {EXPECTED[form]}{advice}")

    def piped(self, command: str) -> str:
        """The command, which reads the file's text from its standard input."""
        return self._replacing(f"{self._read} {self.path} | {command}" if self._read else f"{command} < {self.path}")

    def opened(self, command: str) -> str:
        """The command, whose last argument is the file."""
        return self._replacing(f"{command} {self.path}")

    def _replacing(self, command: str) -> str:
        new = shlex.quote(f"{self.name}.new")
        return f"{command}{' | gzip' if self._pack else ''} > {new} && mv {new} {self.path}"


def _python(code: str, modules: str = "json, sys") -> str:
    return f"python -c {shlex.quote(f'import {modules}; {code}')}"


def _rows(form: Form, rows: str, row: str = "row", to_json: str = "") -> str:
    """Python code that prints rows in a form."""
    printed = TO_JSON.format(to_json or row) if form == "json lines" else TO_COLUMNS.format(row)
    return f"[{printed} for {row} in {rows}]"


def _refuse_bytes(file: _Command, head: bytes, form: Form) -> None:
    for magic, what, unpack in PACKED:
        if head.startswith(magic):
            command = file.piped(unpack) if unpack != "unzip -p" else file.opened(unpack)
            raise file.refusal(what, form, "Unpack it", command)
    for magic, what, table in BINARY:
        if head.startswith(magic):
            module = table.rpartition(".read_table")[0] or "pyarrow.ipc"
            command = file.opened(_python(_rows(form, f"{table}.to_pylist()"), f"json, sys, {module}")) if table else ""
            raise file.refusal(what, form, "Convert it" if table else "", command)
    if head[257:262] == b"ustar":
        raise file.refusal("a tar archive", form, "Unpack it", file.piped("tar -xOf -"))
    if codec := wide_encoding(head):
        name = codec.upper() if codec in ("utf-16", "utf-32") else f"{codec[:6]}{codec[7:]}".upper()
        raise file.refusal(f"text in {name}", form, "Convert it", file.piped(f"iconv -f {name} -t UTF-8"))
    if len(head) >= LINES and head.count(0) > len(head) / 5:
        raise file.refusal("binary data", form)


def _refuse_text(file: _Command, text: str, form: Form, *, cut: bool) -> None:
    start = text[:200].lower()
    if start.startswith(("<!doctype html", "<html")):
        raise file.refusal("a web page (HTML), such as the error page of a download", form, "Download it again")
    if start.startswith(POINTER):
        raise file.refusal("a pointer of Git LFS in place of the file", form, "Fetch it", "git lfs pull")
    lines = [line for line in text.split("\n")[: LINES + 1] if line.strip()]
    if cut and len(lines) > 1 and not text.count("\n") > LINES:
        lines = lines[:-1]
    if not lines or form == "text":
        return
    if re.match(r"\[\s*([{\[\"]|\]|$)" if form == "json lines" else r"\[\s*\{\s*\"", text):
        _refuse_array(file, lines, form)
    elif re.match(r"\{\s*[\"}']", text):
        _refuse_objects(file, text, lines, form, cut=cut)
    elif form == "json lines":
        _refuse_columns_for_json(file, lines)
    else:
        _refuse_separators(file, lines, form)


def _parsed(text: str) -> Any:
    """The JSON value of a text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refuse_array(file: _Command, lines: list[str], form: Form) -> None:
    """A list in a line of its own, before other lines, is a bad row."""
    if form != "json lines" or len(lines) == 1 or _parsed(lines[0]) is None:
        code = _python(_rows(form, "json.load(sys.stdin)"))
        raise file.refusal("one JSON array", form, "Convert it", file.piped(code))


def _refuse_objects(file: _Command, text: str, lines: list[str], form: Form, *, cut: bool) -> None:
    rows = [_parsed(line) for line in lines]
    if form != "json lines" and all(isinstance(row, dict) and not _is_nested(row) for row in rows):
        code = _python(_rows(form, "map(json.loads, filter(str.strip, sys.stdin))"))
        raise file.refusal("one JSON object a line", form, "Convert it", file.piped(code))
    if all(_is_python_object(line) for line in lines):
        rows_code = "map(ast.literal_eval, filter(str.strip, sys.stdin))"
        code = _python(_rows(form, rows_code), "ast, json, sys")
        raise file.refusal("lines as Python prints its dicts", form, "Convert it", file.piped(code))
    whole = None if cut else _parsed(text)
    several = lines[0].strip() == "{" or (len(lines) > 1 and whole is not None)
    if several and (re.search(r"\n\}\s*\{", text) or _is_row(text, whole)):
        split = r're.split(r"(?<=\n\})\s*(?=\{)", sys.stdin.read())'
        code = _python(_rows(form, f"map(json.loads, {split})"), "json, re, sys")
        raise file.refusal("JSON objects of several lines each", form, "Convert it", file.piped(code))
    if (several or len(lines) == 1) and (cut or whole is not None) and not _is_row(text, whole):
        _refuse_one_object(file, text, form)


def _is_row(text: str, whole: Any) -> bool:
    """Whether an object, of which `whole` may be unknown, is a passage or query and not a collection of them."""
    if whole is not None:
        return bool(whole.keys() & {"_id", "id", "text", "contents"})
    key, sign = _first_entry(text)
    return sign not in ("[", "{") or key == "metadata"


def _first_entry(text: str) -> tuple[str, str]:
    """The first key of an object, and the sign that its value begins with, if that is one of `[{"`."""
    match = re.match(r"\{\s*(\"(?:[^\"\\]|\\.)*\")\s*:\s*([\[{\"]?)", text)
    key = _parsed(match[1]) if match else ""
    return (key or "", match[2]) if match else ("", "")


def _is_python_object(line: str) -> bool:
    if not re.match(r"\s*\{\s*'", line):
        return False
    try:
        return isinstance(ast.literal_eval(line.strip()), dict)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _is_nested(row: dict[str, Any]) -> bool:
    return any(isinstance(value, dict | list) for value in row.values())


def _refuse_one_object(file: _Command, text: str, form: Form) -> None:
    """For an object that is the whole file: passages or queries by id, judgements by query, or rows below a name."""
    key, sign = _first_entry(text)
    value = f"json.load(sys.stdin)[{json.dumps(key)}]"
    items = "key, row in json.load(sys.stdin).items()"
    made = {
        ("json lines", "["): _rows(form, value),
        ("json lines", "{"): f'[print(json.dumps({{"_id": key, **row}})) for {items}]',
        ("json lines", '"'): f'[print(json.dumps({{"_id": key, "text": row}})) for {items}]',
        ("columns", "{"): f'[print(key, doc, grade, sep="\\t") for {items} for doc, grade in row.items()]',
        ("run", "{"): f'[print(key, "Q0", doc, 0, score, "run") for {items} for doc, score in row.items()]',
        ("columns", "["): _rows(form, value),
        ("tabs", '"'): f'[print(key, row, sep="\\t") for {items}]',
    }.get((form, sign))
    command = file.piped(_python(made)) if made else ""
    raise file.refusal(
        f"one JSON object, whose first key is {quoted(key)}", form, "Convert it" if made else "", command
    )


def _refuse_columns_for_json(file: _Command, lines: list[str]) -> None:
    if any(line.lstrip().startswith("{") for line in lines):
        return
    sign = _separator(lines, "\t,;|")
    if lines[0].startswith("<"):
        raise file.refusal("markup (XML)", "json lines")
    if not sign:
        row = '{"_id": str(number), "text": line.strip()}'
        code = f"[print(json.dumps({row})) for number, line in enumerate(sys.stdin) if line.strip()]"
        raise file.refusal("lines of text", "json lines", "Convert it", file.piped(_python(code)))
    header = {cell.strip(' "').lower() for cell in lines[0].split(sign)}
    names = (
        "" if "text" in header else ', ["_id", "text"]' if lines[0].count(sign) == 1 else ', ["_id", "title", "text"]'
    )
    table = f"csv.DictReader(sys.stdin{names}, delimiter={json.dumps(sign)})"
    code = _python(_rows("json lines", table), "csv, json, sys")
    raise file.refusal(f"columns divided by {_words(sign)}", "json lines", "Convert it", file.piped(code))


def _refuse_separators(file: _Command, lines: list[str], form: Form) -> None:
    if any("\t" in line for line in lines):
        return
    sign = _separator(lines, ",;|")
    if form != "tabs":
        cells = [line.split() for line in lines]
        if not sign or any(not cell.endswith(sign) for row in cells for cell in row[:-1]):
            return
    if not sign:
        raise file.refusal("lines without a tab", form)
    cell = '" ".join(cell.split()) for cell in row'
    code = f'[print(*({cell}), sep="\\t") for row in csv.reader(sys.stdin, delimiter={json.dumps(sign)})]'
    raise file.refusal(f"columns divided by {_words(sign)}", form, "Convert it", file.piped(_python(code, "csv, sys")))


def _separator(lines: list[str], signs: str) -> str:
    """The first of the signs that every line has; "" if there is none."""
    return next((sign for sign in signs if all(sign in line for line in lines)), "")


def _words(sign: str) -> str:
    return {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}[sign]
