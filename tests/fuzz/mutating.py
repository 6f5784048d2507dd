"""Valid files made invalid: bytes, lines, cells and values are changed, by a seeded generator."""

import gzip
import json
import random
import zlib
from collections.abc import Mapping
from typing import Any

Files = dict[str, bytes]
TEXTS = [
    *("", " ", "\t", "\0", "\ufeff", "\r", "\r\n", "a b", "\x85", "\u2028", "é", "\U0001f600", '"', "'"),
    *("<", ">", "<!--", "-->", "<a", "</TEXT>", "&#0;", "../../etc/passwd", "%00", "$(id)"),
    *("*a", "&a [x]", "!!int x", "!!python/object:os.system x"),
    *("inf", "-inf", "nan", "1e400", "-0", "0x10", "1_000", "²", "0.5", "-1", "1e9", "none", "null", "true"),
    *("[]", "{}", "[[[[", "[" * 3000, "{" * 50, "9" * 30, "9" * 5000, "x" * 70_000),
]
"""Cells that readers stumble over."""

RAW = [
    *(b"\xff", b"\xe9", b"\xed\xa0\x80", b"\0" * 9, b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\n", b"\n\n", b"\t\t"),
    *(b"\x1f\x8b", b"PAR1", b"PK\x03\x04", b"<html>", b"[", b"{\n"),
]
VALUES = [
    *("null", "true", "0.5", "-1", "1e400", "-Infinity", "NaN", "5", "9" * 30, "9" * 5000),
    *('""', '" "', '"two words"', '"5"', '"\\ud800"', '"\\u0000"', '"' + "x" * 70_000 + '"'),
    *("[]", "{}", "[[[1]]]", '{"a": {"b": 1}}', "[null]", '[""]', "[" * 3000),
]
"""What is written in the place of a JSON value."""

MARK = "@@value@@"


def mutate_files(rng: random.Random, seeds: Mapping[str, bytes]) -> Files:
    """One to three changes to one file, seldom to two; a file may also be missing, empty, renamed or in the place of
    another.
    """
    files = dict(seeds)
    for _ in range(rng.choice([1, 1, 1, 2])):
        name = rng.choice(sorted(files))
        fate = rng.random()
        if fate < 0.02 and len(files) > 1:
            del files[name]
        elif fate < 0.04:
            files[name] = b""
        elif fate < 0.06:
            files[name] = files[rng.choice(sorted(files))]
        elif fate < 0.08:
            files[name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"] = files.pop(name)
        else:
            files[name] = mutate_file(rng, name, files[name])
    return files


def mutate_file(rng: random.Random, name: str, data: bytes) -> bytes:
    """Contents of a packed file are mostly changed before they are packed, else nobody would read that far."""
    if not name.endswith(".gz"):
        return mutate_text(rng, data)
    try:
        inside = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):  # changed before
        return mutate_bytes(rng, data)
    return mutate_bytes(rng, data) if rng.random() < 0.25 else gzip.compress(mutate_text(rng, inside), 1)


def mutate_text(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = rng.choice([mutate_bytes, _lines, _cell, _cell, _value, _value])(rng, data)
    return data


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes turned over, taken out or put in, or the end cut off."""
    held = bytearray(data)
    if not held:
        return rng.choice(RAW)
    kind, place = rng.randrange(4), rng.randrange(len(held))
    if kind == 0:
        for _ in range(rng.choice([1, 1, 4, 30])):
            held[rng.randrange(len(held))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del held[place : rng.choice([place + 1, place + 8, place + 100, len(held)])]
    elif kind == 2:
        held[place:place] = rng.choice(RAW)
    else:
        held[place : place + 4] = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\0\0\0\x80"])
    return bytes(held)


def _lines(rng: random.Random, data: bytes) -> bytes:
    """A line doubled, in the place of another, or joined with the next."""
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        lines[other:other] = [lines[one]] * rng.choice([1, 1, 40])
    elif kind == 1:
        lines[other] = lines.pop(one) if one > other else b""
    else:
        return data.replace(b"\n", rng.choice([b"", b"\r\n", b"\r", b" ", b"\n\n"]), rng.choice([1, -1]))
    return b"\n".join(lines)


def _cell(rng: random.Random, data: bytes) -> bytes:
    """A cell between tabs or blanks in some line becomes something else."""
    lines = data.split(b"\n")
    number = rng.randrange(len(lines))
    between = b"\t" if b"\t" in lines[number] else b" "
    cells = lines[number].split(between)
    cells[rng.randrange(len(cells))] = rng.choice([*(text.encode() for text in TEXTS), *RAW])
    if rng.random() < 0.1:
        cells.pop()
    lines[number] = between.join(cells)
    return b"\n".join(lines)


def _value(rng: random.Random, data: bytes) -> bytes:
    """A value, or a key, in the JSON of a line, or of the whole, becomes something else."""
    lines = data.split(b"\n")
    number = rng.randrange(len(lines))
    for text in (lines[number], data):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue
        changed = json.dumps(_with_mark(rng, row)).replace(f'"{MARK}"', rng.choice(VALUES)).encode()
        return changed if text is data else b"\n".join([*lines[:number], changed, *lines[number + 1 :]])
    return _cell(rng, data)


def _with_mark(rng: random.Random, row: Any) -> Any:
    """The same with a mark in the place of one value, at any depth, or without one of its keys."""
    if not row or not isinstance(row, dict | list) or rng.random() < 0.15:
        return MARK
    place = rng.choice([*row] if isinstance(row, dict) else range(len(row)))
    changed = row.copy()
    changed[place] = _with_mark(rng, row[place])
    if rng.random() < 0.1:
        del changed[place]
    return changed
