"""The table of formats in the documentation: `python -m midmask.corpora.guide FILE…` writes it into Markdown files."""

import sys
from pathlib import Path

from midmask.corpora.formats import FORMATS
from midmask.corpora.reader import reader_of

BEGIN, END = "<!-- formats: begin -->", "<!-- formats: end -->"


def formats_table() -> str:
    """A Markdown table of the formats and their layouts, in the order of the table of formats."""
    rows = [f"| `{name}` | {escape_cell(reader_of(name).layout)} |" for name in FORMATS]
    return "\n".join(["| format | layout |", "| :----- | :----- |", *rows])


def with_formats(text: str) -> str:
    """A Markdown text with the table between its two marks; a text without marks as it is."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{formats_table()}\n{END}{after}" if begin and end else text


def escape_cell(text: str) -> str:
    """Text whose characters Markdown shows as they are, in a cell of a table."""
    return "".join(f"\\{character}" if character in "\\`*<|[" else character for character in text)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_formats(file.read_text("utf-8")), "utf-8")
