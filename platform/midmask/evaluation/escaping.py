"""Texts that others chose (names of recipes, notes, run ids) in files that other programs interpret."""

import re

_FORMULA = re.compile(r"\s*[=+\-@]|\t")
_NUMBER = re.compile(r"[+-]?(\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SIGNS = re.compile(r"[\\`*\[\]$~|]|(?<!\w)_|_(?!\w)|^[#+-]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_HTML = re.compile("[&<>]")


def csv_cell(value: object) -> object:
    """The value as a cell of a CSV file. A text that a spreadsheet would run as a formula gets an apostrophe in front,
    which shows it as text; so does what follows a semicolon, since spreadsheets of many countries divide cells there.
    Line ends become spaces. Numbers, and texts that are one, stay.
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    parts = re.sub(r"[\r\n]+", " ", value).split(";")
    return ";".join(f"'{part}" if _FORMULA.match(part) else part for part in parts)


def markdown_text(text: str) -> str:
    """The text as Markdown that shows it: no markup, no HTML, no end of a table's cell, in one line."""
    line = _SIGNS.sub(r"\\\g<0>", " ".join(text.splitlines()))
    return _HTML.sub(lambda found: _ENTITIES[found.group()], line)
