"""The table of corpus formats in the documentation: `python -m tests.tools.formats FILE…` (`make guide`)."""

import sys
from pathlib import Path

from midmask.corpora.config import FORMATS
from midmask.corpora.reader import reader_of

BEGIN, END = "<!-- formats: begin -->", "<!-- formats: end -->"


def with_formats(text: str) -> str:
    """A Markdown text with the table of formats and layouts between its two marks; a text without marks as it is."""
    rows = [f"| `{name}` | {escape_cell(reader_of(name).layout)} |" for name in FORMATS]
    table = "\n".join(["| format | layout |", "| :----- | :----- |", *rows])
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}" if begin and end else text


def escape_cell(text: str) -> str:
    """Text whose characters Markdown shows as they are, in a cell of a table."""
    return "".join(f"\\{character}" if character in "\\`*<|[" else character for character in text)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_formats(file.read_text("utf-8")), "utf-8")
