"""What the program for a GPU measures: differences of numbers, exact search and its measures, cells of its speed."""

import math
import time
from collections.abc import Iterator
from functools import partial

import ir_measures
import numpy as np
import pytest
import torch

from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views
from tests.gpu.compared import difference
from tests.gpu.search import measures, search
from tests.gpu.speed import NO_ROOM, NO_TIME, REDUCED, Cell, Known, guarded, measure, measure_method, speed

CPU = torch.device("cpu")


def test_a_difference_is_relative_to_the_number_or_to_a_tenth_of_the_largest() -> None:
    right = torch.tensor([1.0, -100.0, 0.0])
    assert difference({"a": right}, {"a": right.clone()}) == 0.0
    assert difference({"a": right}, {"a": torch.tensor([1.0, -101.0, 0.0])}) == pytest.approx(0.01)
    assert difference({"a": right}, {"a": torch.tensor([1.1, -100.0, 0.0])}) == pytest.approx(0.01)
    assert difference({"a": right, "b": right}, {"a": right, "b": right * 2}) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "found", [{"b": torch.ones(2)}, {"a": torch.ones(3)}, {"a": torch.tensor([1.0, math.nan])}, {}]
)
def test_what_cannot_be_compared_differs_infinitely(found: dict[str, torch.Tensor]) -> None:
    assert difference({"a": torch.ones(2)}, found) == math.inf


def test_whole_numbers_differ_by_the_share_that_is_not_equal() -> None:
    assert difference({"a": torch.arange(8)}, {"a": torch.arange(8).roll(1)}) == 1.0
    assert difference({"a": torch.tensor([True, False])}, {"a": torch.tensor([True, True])}) == 0.5


@pytest.mark.parametrize("kind", ["dense", "lexical", "both"])
def test_a_search_over_blocks_equals_a_sort_of_all_scores(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu.search.BLOCK", 7)
    draw = np.random.default_rng(1)
    tables = {name: draw.standard_normal((rows, 12)).astype(np.float32) for name, rows in (("q", 5), ("p", 30))}
    sparse = {name: np.where(table > 0.5, table, 0) for name, table in tables.items()}
    dense = {name: None if kind == "lexical" else table for name, table in tables.items()}
    words = {name: None if kind == "dense" else SparseRows.top(table, None) for name, table in sparse.items()}
    views = {name: Views(dense[name], words[name]) for name in tables}
    scores = sum(
        part["q"].astype(np.float64) @ part["p"].T.astype(np.float64)
        for part, wanted in ((tables, kind != "lexical"), (sparse, kind != "dense"))
        if wanted
    )
    found, rows = search(views["q"], views["p"], 9, CPU, torch.float64)
    np.testing.assert_allclose(found.numpy(), -np.sort(-scores, axis=1)[:, :9], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.take_along_axis(scores, rows.numpy(), 1), found.numpy(), rtol=1e-6, atol=1e-9)
    assert all(len(set(row)) == 9 for row in rows.tolist())


def test_measures_equal_those_of_ir_measures() -> None:
    draw = np.random.default_rng(3)
    found = np.array([draw.permutation(30)[:12] for _ in range(40)])
    relevant = [set(draw.permutation(30)[: draw.integers(1, 15)].tolist()) for _ in range(40)]
    qrels = {str(query): {str(row): 1 for row in wanted} for query, wanted in enumerate(relevant)}
    ranked = {str(query): {str(row): -float(at) for at, row in enumerate(rows)} for query, rows in enumerate(found)}
    expected = ir_measures.calc_aggregate([ir_measures.nDCG @ 10, ir_measures.RR @ 10], qrels, ranked)
    values = measures(torch.from_numpy(found), relevant)
    assert values == pytest.approx({str(measure): value for measure, value in expected.items()})


def test_what_does_not_fit_into_memory_or_fails_is_a_row_and_the_rest_goes_on() -> None:
    def work(error: Exception, compiled: bool) -> Iterator[Cell]:
        yield Cell("mlm", REDUCED.lengths[0], compiled, 1.0, 2.0, 300, 1e9)
        raise error

    full = [*guarded(partial(work, torch.OutOfMemoryError("tried to allocate")), "mlm", REDUCED, False)]
    assert [cell.missing for cell in full] == ["", NO_ROOM] and full[1].length == REDUCED.lengths[1]
    assert full[0].cells(peak=1e10) == ("mlm", "16", "no", "300", "1000.0", "0.50", "10.0%")
    broken = [*guarded(partial(work, ValueError("unsupported\nmore")), "mlm", REDUCED, True)]
    assert broken[1].cells(1.0)[:4] == ("mlm", "32", "yes", "ValueError: unsupported")


def test_what_the_time_does_not_suffice_for_is_listed() -> None:
    text, good = speed(["mlm", "bow"], REDUCED, CPU, until=time.monotonic())
    assert good and text.count(NO_TIME) == 2 * 2 * len(REDUCED.lengths)


def test_methods_are_timed_beside_plain_mlm_with_the_operations_of_one_step() -> None:
    known = Known()
    cells = {name: [*measure_method(name, REDUCED, CPU, known, math.inf, False)] for name in ("mlm", "retromae")}
    assert list(known.plain) == list(REDUCED.lengths)
    for less, more in zip(cells["mlm"], cells["retromae"], strict=True):
        assert less.length == more.length and less.tokens == more.tokens == REDUCED.tokens
        assert more.flops > 1.2 * less.flops > 0 and min(less.plain, less.seconds, more.plain, more.seconds) > 0


def test_the_methods_of_most_interest_are_measured_first() -> None:
    cells = measure(["bow", "dupmae", "mlm"], REDUCED, CPU, until=time.monotonic())
    assert [(cell.method, cell.compiled) for cell in cells][::2] == [
        (name, compiled) for compiled in (False, True) for name in ("mlm", "dupmae", "bow")
    ]
