from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from midmask.errors import UserError
from midmask.evaluation.groups import FORUMS, folders, group_average
from midmask.evaluation.statistics.significance import compare
from midmask.evaluation.tables import (
    ComparisonProtocol,
    ResultTable,
    TableCell,
    by_measure,
    tabulate,
)
from tests.support.evaluation.columns import average_columns, by_corpus, by_slice
from tests.support.evaluation.per_query import drawn, table

SHIFTS = {"bm25": 0.0, "dense": 0.4, "sparse": 0.41}


def both_measures(seed: int, shift: float) -> pa.Table:
    """RR@10 and, of the same queries, R@100 that is no better for anyone."""
    return pa.concat_tables([table(drawn(seed, shift=shift)), table(drawn(seed + 50), "R@100")])


@pytest.fixture(scope="module")
def systems() -> dict[str, pa.Table]:
    return {name: both_measures(seed, shift) for seed, (name, shift) in enumerate(SHIFTS.items())}


def mean(seed: int, shift: float, count: int = 40) -> float:
    return float(drawn(seed, shift=shift)[:count].mean())


def column(shown: ResultTable, label: str) -> dict[str, TableCell]:
    return {system: shown.cells[system, label] for system in shown.systems if (system, label) in shown.cells}


def test_each_measure_is_a_column_with_a_family_of_its_own(systems):
    shown = tabulate(by_measure(systems, ["RR@10", "R@100"]))
    assert (shown.systems, shown.columns) == (("bm25", "dense", "sparse"), ("RR@10", "R@100"))
    found = column(shown, "RR@10")
    assert {name: cell.mean for name, cell in found.items()} == pytest.approx(
        {name: mean(seed, shift) for seed, (name, shift) in enumerate(SHIFTS.items())}
    )
    assert {name: cell.better_than for name, cell in found.items()} == {
        "bm25": (),
        "dense": ("bm25",),
        "sparse": ("bm25",),
    }
    best = max(found, key=lambda name: found[name].mean)
    assert [name for name, cell in found.items() if cell.best] == [best]
    assert found["bm25"].ties == "b" and found["dense"].ties == found["sparse"].ties == "a"
    assert {cell.queries for cell in found.values()} == {40} and {cell.seeds for cell in found.values()} == {1}
    assert all(not cell.better_than and cell.ties == "a" for cell in column(shown, "R@100").values())
    for name in shown.columns:
        expected = compare(systems, measure=name, correction="bonferroni")
        assert list(shown.comparisons[name]) == expected and len(expected) == 3


def test_against_a_baseline_there_are_no_tie_groups_and_fewer_tests(systems):
    shown = tabulate(
        by_measure(systems, ["RR@10"]), ComparisonProtocol(baseline="dense", test="wilcoxon", correction="holm")
    )
    found = column(shown, "RR@10")
    assert [(row.system, row.baseline) for row in shown.comparisons["RR@10"]] == [
        ("bm25", "dense"),
        ("sparse", "dense"),
    ]
    assert found["dense"].better_than == ("bm25",) and found["sparse"].better_than == ()
    assert {cell.ties for cell in found.values()} == {""}


def test_slices_are_columns_of_their_queries(systems):
    slices = {"head": [f"q{row}" for row in range(10)], "rest": [f"q{row}" for row in range(10, 40)]}
    shown = tabulate(by_slice(systems, "RR@10", slices))
    assert shown.columns == ("head", "rest")
    assert shown.cells["dense", "head"].mean == pytest.approx(mean(1, 0.4, count=10))
    assert (shown.cells["dense", "head"].queries, shown.cells["dense", "rest"].queries) == (10, 30)
    assert shown.comparisons["head"][0].queries == 10


def test_a_system_that_a_corpus_lacks_is_not_averaged(systems):
    corpora = {"one": systems, "two": {name: systems[name] for name in ("dense", "sparse")}}
    shown = tabulate(by_corpus(corpora, "RR@10"), averages={"average": average_columns})
    assert shown.columns == ("one", "two", "average") and ("bm25", "two") not in shown.cells
    assert ("bm25", "average") not in shown.cells
    assert shown.cells["dense", "average"].mean == pytest.approx(mean(1, 0.4))
    assert len(shown.comparisons["one"]) == 3 and len(shown.comparisons["two"]) == 1
    assert "average" not in shown.comparisons
    best = max((mean(1, 0.4), "dense"), (mean(2, 0.41), "sparse"))[1]
    assert [name for name in ("dense", "sparse") if shown.cells[name, "average"].best] == [best]


def test_the_average_weighs_corpora_not_queries():
    corpora = {"small": {"a": table([1.0, 1.0])}, "large": {"a": table([0.0] * 38)}}
    shown = tabulate(by_corpus(corpora, "RR@10"), averages={"average": average_columns})
    assert shown.cells["a", "average"].mean == 0.5


def test_a_group_of_sets_is_averaged_by_its_own_rule():
    """CQADupStack's twelve forums are one set of BEIR's fourteen."""
    corpora = {folder: {"a": table([float(folder in FORUMS)] * 2)} for folder in folders("beir14")}
    rules = {"BEIR-14": partial(group_average, "beir14"), "plain": average_columns}
    shown = tabulate(by_corpus(corpora, "RR@10"), averages=rules)
    assert shown.cells["a", "BEIR-14"].mean == pytest.approx(1 / 14)
    assert shown.cells["a", "plain"].mean == pytest.approx(12 / 25)


def test_seeds_are_averaged_and_their_spread_is_kept():
    runs = [table(drawn(row)) for row in range(3)]
    cell = tabulate(by_measure({"a": runs}, ["RR@10"])).cells["a", "RR@10"]
    means = [mean(row, 0.0) for row in range(3)]
    assert (cell.mean, cell.spread) == pytest.approx((np.mean(means), np.std(means, ddof=1)))
    assert cell.seeds == 3 and cell.queries == 40 and cell.best


def test_equal_systems_are_all_best_in_whatever_order_their_queries_are_summed():
    values = table(drawn(0, count=1000))
    orders = [values.take(np.random.default_rng(row).permutation(1000)) for row in range(5)]
    shown = tabulate(by_measure(dict(zip("abcde", orders, strict=True)), ["RR@10"]))
    assert len({cell.mean for cell in shown.cells.values()}) > 1, "sums that do not depend on the order show nothing"
    assert all(cell.best and cell.ties == "a" for cell in shown.cells.values())


def test_columns_need_labels_of_their_own(systems):
    with pytest.raises(UserError, match=r"given twice: RR@10$"):
        tabulate(by_measure(systems, ["RR@10", "R@100", "RR@10"]))
    with pytest.raises(UserError, match=r"given twice: R@100$"):
        tabulate(by_measure(systems, ["R@100"]), averages={"R@100": average_columns})


def test_a_corpus_without_the_baseline_is_refused(systems):
    corpora = {"one": systems, "two": {"dense": systems["dense"]}}
    with pytest.raises(UserError, match="unknown baseline 'bm25'"):
        tabulate(by_corpus(corpora, "RR@10"), ComparisonProtocol(baseline="bm25"))
