import csv
import io
import re

import pytest

from midmask.errors import UserError
from midmask.evaluation.rendering import Style, as_csv, as_latex, as_markdown, caption, comparisons_csv
from midmask.evaluation.tables import (
    ComparisonProtocol,
    ResultTable,
    TableCell,
    by_measure,
    tabulate,
)
from tests.support.evaluation.columns import average_columns, by_corpus
from tests.support.evaluation.per_query import drawn, table

CELLS = {
    ("bm25", "dev"): TableCell(0.18401, queries=50, seeds=1, ties="b"),
    ("A_b|c", "dev"): TableCell(0.35906, queries=50, seeds=2, spread=0.001, better_than=("bm25",), ties="a"),
    ("C", "dev"): TableCell(0.36, queries=50, seeds=1, best=True, better_than=("A_b|c", "bm25"), ties="a"),
    ("bm25", "test"): TableCell(0.5, queries=43, seeds=1, best=True),
}
SYSTEMS = ("bm25", "A_b|c", "C")


def shown(**protocol) -> ResultTable:
    return ResultTable(SYSTEMS, ("dev", "test"), CELLS, {"dev": (), "test": ()}, ComparisonProtocol(**protocol))


@pytest.fixture(scope="module")
def compared() -> ResultTable:
    systems = {name: table(drawn(seed, shift=shift)) for seed, (name, shift) in enumerate([("x", 0), ("y", 0.5)])}
    return tabulate(
        by_corpus({"one": systems, "two": {**systems, "z": table(drawn(5))}}, "RR@10"),
        averages={"mean": average_columns},
    )


def test_markdown_has_the_best_bold_and_names_who_is_beaten():
    assert as_markdown(shown()).splitlines()[:6] == [
        "| system   |                     dev |       test |",
        "| :------- | ----------------------: | ---------: |",
        "| a bm25   |                  0.1840 | **0.5000** |",
        "| b A_b\\|c |      0.3591<sup>a</sup> |          — |",
        "| c C      | **0.3600**<sup>ab</sup> |          — |",
        "",
    ]


def test_latex_is_a_booktabs_table_with_names_escaped():
    lines = as_latex(shown(), Style(percent=True)).splitlines()
    assert lines[:4] == [r"\begin{table}", lines[1], r"\begin{tabular}{lrr}", r"\toprule"]
    assert lines[1].startswith(r"\caption{Bold") and lines[1].endswith("}")
    assert lines[4:9] == [
        r"system & dev & test \\",
        r"\midrule",
        r"a bm25 & 18.40 & \textbf{50.00} \\",
        r"b A\_b|c & 35.91\textsuperscript{a} & --- \\",
        r"c C & \textbf{36.00}\textsuperscript{ab} & --- \\",
    ]
    assert lines[9:] == [r"\bottomrule", r"\end{tabular}", r"\end{table}"]


@pytest.mark.parametrize("special", list("&%$#_{}"))
def test_special_characters_of_latex_are_escaped(special):
    cells = {(f"a{special}b", "dev"): TableCell(0.5, queries=1, seeds=1)}
    one = ResultTable((f"a{special}b",), ("dev",), cells, {"dev": ()}, ComparisonProtocol())
    assert f"a a\\{special}b & 0.5000" in as_latex(one)


def test_backslash_tilde_and_circumflex_have_names_in_latex():
    one = ResultTable(("\\~^",), ("dev",), {}, {"dev": ()}, ComparisonProtocol())
    assert r"a \textbackslash{}\textasciitilde{}\textasciicircum{} & ---" in as_latex(one)


def test_superscripts_may_be_tie_groups_instead():
    rows = as_markdown(shown(), Style(marks="ties", decimals=2)).splitlines()
    assert [row.split("|")[2].strip() for row in (rows[2], rows[4])] == ["0.18<sup>b</sup>", "**0.36**<sup>a</sup>"]
    assert rows[2].startswith("| bm25 "), "letters would be taken for those of systems"
    with pytest.raises(UserError, match="compare without a baseline"):
        as_markdown(shown(baseline="bm25"), Style(marks="ties"))


def test_without_marks_there_are_numbers_only():
    text = as_markdown(shown(), Style(marks="none", decimals=1))
    assert "sup" not in text and "Superscripts" not in text and "| **0.4** |" in text
    with pytest.raises(UserError, match="unknown marks 'tie'; did you mean 'ties'"):
        as_latex(shown(), Style(marks="tie"))  # type: ignore[arg-type]


def test_the_caption_says_how_it_was_tested_and_on_how_many_queries(compared):
    assert caption(compared) == (
        "Bold: the best of a column. Superscripts: the systems that a row is significantly better than (all pairs; "
        "paired t-test, Bonferroni, 1 to 3 comparisons in a column, alpha 0.05). Averages, not tested: mean. 40 "
        "queries."
    )
    against = ComparisonProtocol(baseline="x", test="permutation", correction="fdr_bh", correction_alpha=0.01)
    systems = {"x": table(drawn(0)), "y": table(drawn(1))}
    found = caption(tabulate(by_measure(systems, ["RR@10"]), against))
    assert "(against x; paired permutation test, Benjamini-Hochberg, 1 comparison in a column, alpha 0.01)" in found
    assert caption(shown()).endswith("Queries: dev 50, test 43.")
    assert "Systems that share a superscript do not differ significantly (" in caption(shown(), Style(marks="ties"))


def test_all_three_print_the_same_numbers(compared):
    marked = {
        (row["system"], row["column"]): float(row["mean"]) for row in csv.DictReader(io.StringIO(as_csv(compared)))
    }
    assert marked == {at: cell.mean for at, cell in compared.cells.items()}, "numbers in full"
    expected = [f"{compared.cells[at].mean:.4f}" for at in sorted(marked)]
    for text in (as_markdown(compared), as_latex(compared)):
        body = text.split("Bold:")[0] if text.startswith("|") else text.split("midrule")[1]
        assert sorted(re.findall(r"-?\d\.\d{4}", body)) == sorted(expected)


def test_csv_keeps_who_is_beaten_and_every_test(compared):
    cells = {(row["system"], row["column"]): row for row in csv.DictReader(io.StringIO(as_csv(compared)))}
    assert cells["y", "two"]["better_than"] == "x;z" and cells["y", "two"]["best"] == "True"
    assert cells["x", "two"]["ties"] == "b" and cells["x", "one"]["queries"] == "40"
    tests = list(csv.DictReader(io.StringIO(comparisons_csv(compared))))
    assert [(row["column"], row["system"], row["baseline"]) for row in tests] == [
        ("one", "y", "x"),
        ("two", "y", "x"),
        ("two", "z", "x"),
        ("two", "z", "y"),
    ]
    for row, found in zip(tests, [*compared.comparisons["one"], *compared.comparisons["two"]], strict=True):
        for name in ("p", "p_corrected", "low", "high", "effect", "detectable"):
            assert float(row[name]) == getattr(found, name)
