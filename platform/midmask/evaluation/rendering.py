"""Result tables as Markdown, HTML, LaTeX (booktabs) and CSV, all from one `ResultTable`; texts of others escaped."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import NamedTuple

from midmask.core.words import MISSING
from midmask.evaluation.statistics.intervals import ALPHA
from midmask.evaluation.statistics.ranks import label
from midmask.evaluation.tables import ResultTable, TableCell

_FORMULA = re.compile(r"\s*[=+\-@]|\t")
_NUMBER = re.compile(r"[+-]?(\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SIGNS = re.compile(r"[\\`*\[\]$~|]|(?<!\w)_|_(?!\w)|^[#+-]")


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
    return escape(_SIGNS.sub(r"\\\g<0>", " ".join(text.splitlines())), quote=False)


CORRECTION_NAMES = {None: "uncorrected", "bonferroni": "Bonferroni", "holm": "Holm"}


@dataclass(frozen=True)
class Style:
    """How numbers are printed, and what stands beside them: an introduction, and numbers from papers."""

    decimals: int = 4
    percent: bool = False  # print 100 times the value, as papers do, with two decimals less
    about: str = ""  # sentences before the caption
    published: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (system, column) -> number in brackets
    doubtful: frozenset[tuple[str, str]] = frozenset()  # published numbers that get a question mark

    def number(self, value: float) -> str:
        return f"{100 * value:.{max(0, self.decimals - 2)}f}" if self.percent else f"{value:.{self.decimals}f}"

    def render_published(self, place: tuple[str, str]) -> str:
        if place not in self.published:
            return ""
        return f" ({self.number(self.published[place])}{'?' if place in self.doubtful else ''})"

    def caption(self, table: ResultTable) -> str:
        brackets = "In brackets: as published." if self.published else ""
        doubt = "With a question mark: doubtful." if self.doubtful else ""
        return " ".join(part for part in (self.about, caption(table), brackets, doubt) if part)


LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


def _latex(text: str) -> str:
    return text.translate(LATEX)


class Markup(NamedTuple):
    """How a format writes the best value of a column, a mark, and any text."""

    bold: str
    raised: str
    text: Callable[[str], str]


_MARKDOWN = Markup("**{}**", "<sup>{}</sup>", markdown_text)
_HTML = Markup("<b>{}</b>", "<sup>{}</sup>", escape)
_LATEX = Markup(r"\textbf{{{}}}", r"\textsuperscript{{{}}}", _latex)


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads well in a terminal and renders as Markdown; columns after the first are right-aligned."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *padded[1:]])} |"

    rule = [f":{'-' * (widths[0] - 1)}", *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(headers), line(rule), *map(line, rows)])


def as_markdown(table: ResultTable, style: Style = Style()) -> str:
    """The table, a blank line, its caption; best values bold, marks as superscripts."""
    headers, rows = _grid(table, style, _MARKDOWN)
    return f"{markdown(headers, rows)}\n\n{style.caption(table)}"


def as_html(table: ResultTable) -> str:
    """A `<table>` without scripts or styles of its own, as notebooks show it, with its caption below."""
    headers, rows = _grid(table, Style(), _HTML)
    head = "".join(f"<th>{cell}</th>" for cell in headers)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{escape(caption(table))}</p>"


def as_latex(table: ResultTable, style: Style = Style()) -> str:
    """A `table` environment for booktabs."""
    import pandas  # here, since only tables of LaTeX need it

    headers, rows = _grid(table, style, _LATEX)
    cells = [[cell.replace(MISSING, "---") for cell in row] for row in rows]
    columns = "l" + "r" * (len(headers) - 1)
    frame = pandas.DataFrame(cells, columns=headers)
    return str(frame.to_latex(index=False, column_format=columns, caption=_latex(style.caption(table))))


def as_csv(table: ResultTable, style: Style = Style()) -> str:
    """One line per cell, numbers in full, names in lists divided by semicolons; published numbers, if there are any, in
    the last column, and a line also for those without a cell.
    """
    import pandas

    names = [attribute.name for attribute in fields(TableCell)]
    rows: list[dict[str, object]] = []
    for place in dict.fromkeys([*table.cells, *style.published]):
        cell = table.cells.get(place)
        values = dict.fromkeys(names, "") if cell is None else {**vars(cell), "better_than": ";".join(cell.better_than)}
        printed = {"published": style.published.get(place, "")} if style.published else {}
        rows.append({"system": place[0], "column": place[1], **values, **printed})
    return str(pandas.DataFrame(rows, dtype=object).map(csv_cell).to_csv(index=False))


def caption(table: ResultTable) -> str:
    """The caption on the marks: test, correction, size of the family, level; and the number of queries."""
    first, tested = table.protocol.baseline, how_tested(table)
    if first is None:
        marks = f"Superscripts: the systems that a row is significantly better than (all pairs; {tested})."
    else:
        marks = f"*: significantly better than {first} ({tested})."
    queries = {
        column: next((cell.queries for (_, label), cell in table.cells.items() if label == column), 0)
        for column in table.comparisons
    }
    counts = set(queries.values())
    each = ", ".join(f"{column} {count}" for column, count in queries.items())
    shown = f"{counts.pop()} queries." if len(counts) == 1 else f"Queries: {each}."
    averages = [column for column in table.columns if column not in table.comparisons]
    untested = f"Averages, not tested: {', '.join(averages)}." if averages else ""
    return " ".join(part for part in ("Bold: the best of a column.", marks, untested, shown) if part)


def how_tested(table: ResultTable) -> str:
    """The test, its correction, the size of the family and the level, as a part of a sentence."""
    how, sizes = table.protocol, [len(tests) for tests in table.comparisons.values()]
    low, high = min(sizes, default=0), max(sizes, default=0)
    count = "1 comparison" if low == high == 1 else f"{low if low == high else f'{low} to {high}'} comparisons"
    over = " over queries and seeds" if how.seeds else ""
    return f"paired t-test{over}, {CORRECTION_NAMES[how.correction]}, {count} in a column, alpha {ALPHA:g}"


def _grid(table: ResultTable, style: Style, markup: Markup) -> tuple[list[str], list[list[str]]]:
    """Header and rows of text. Where all pairs were compared, rows begin with the system's letter, and a value bears
    the letters of the systems that it is better than; else a star says that it is better than the baseline.
    """
    keys = {system: label(number) for number, system in enumerate(table.systems)}
    all_pairs = table.protocol.baseline is None

    def text(place: tuple[str, str]) -> str:
        cell = table.cells.get(place)
        if cell is None:
            return MISSING + style.render_published(place)
        value = style.number(cell.mean)
        mark = "".join(sorted(keys[other] for other in cell.better_than)) if all_pairs else "*" * len(cell.better_than)
        raised = markup.raised.format(markup.text(mark)) if mark else ""
        return (markup.bold.format(value) if cell.best else value) + raised + style.render_published(place)

    rows = []
    for system in table.systems:
        title = f"{keys[system]} {markup.text(system)}" if all_pairs else markup.text(system)
        rows.append([title, *(text((system, column)) for column in table.columns)])
    return ["system", *map(markup.text, table.columns)], rows
