"""Order, bold and means of a board against plain comparisons of the numbers that it was given."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as some

from midmask.leaderboard.board import COSTS, GAIN, HOURS, NEWEST, Board, View, board_of
from midmask.leaderboard.cells import number as number_in
from midmask.leaderboard.entries import Entry, baselines, gain_per_hour, kind
from midmask.leaderboard.marks import Marks
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow

DEV = CollectionSplit("squad", "dev", "c0ffee", 60)
MEASURES = ("nDCG@10", "RR@10")
BEGAN = datetime(2026, 11, 21, tzinfo=UTC)


def row(recipe: str, number: int, values: dict[str, float], costs: dict[str, float]) -> LeaderboardRow:
    labels = dict(name=recipe, recipe=recipe, objective="", protocol="p", representation="dense", backbone="tiny")
    ids = dict(fingerprint=f"{recipe}{number}", run_id=f"{recipe}{number}", experiment_id="1", parent_id=None)
    facts = dict(pretrain_on="corpus", place=DEV, seed=str(number), trial=False, split_made_here=False)
    started = BEGAN + timedelta(minutes=number)
    return LeaderboardRow(**labels, **ids, **facts, measures=values, costs=costs, started=started, params={})  # type: ignore[arg-type]


def entry(recipe: str, rows: Sequence[LeaderboardRow], note: str = "") -> Entry:
    return Entry(recipe, "corpus", "dense", "p", "tiny", note, False, rows[0].started, {DEV: tuple(rows)})


def board(found: Sequence[Entry], order: str, *, reverse: bool = False) -> Board:
    view = View({DEV: "squad dev"}, MEASURES, {}, order, reverse, "none", "none", True)
    return board_of(found, view, lambda shown: Marks())


values = some.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
measured = some.fixed_dictionaries(dict.fromkeys(MEASURES, values | some.none()))
costs = some.fixed_dictionaries(dict.fromkeys(COSTS.values(), some.sampled_from([0.0, 1800.0, 3600.0, 7200.0, None])))
systems = some.lists(some.tuples(measured, costs), min_size=1, max_size=7)
"""Measures and costs of each; None: not known."""

orders = [*COSTS, GAIN, *(f"squad dev {measure}" for measure in MEASURES)]


@pytest.mark.parametrize("order", orders)
@given(given_systems=systems, reverse=some.booleans())
@example(given_systems=[({"nDCG@10": base}, {"train_seconds": 3600.0}) for base in (0.25, 0.5, 1.0)], reverse=False)
@settings(max_examples=30)
def test_no_line_stands_above_a_better_one(
    order: str, given_systems: list[tuple[dict[str, float | None], dict[str, float | None]]], reverse: bool
) -> None:
    """Costs: less is better; measures and gains: more. Without a value: below all that have one, either way round."""
    names = ["none", *(f"s{number}" for number in range(1, len(given_systems)))]
    told = [[{key: value for key, value in part.items() if value is not None} for part in own] for own in given_systems]
    rows = {name: row(name, at, *own) for at, (name, own) in enumerate(zip(names, told, strict=True))}
    lines = board([entry(name, [one]) for name, one in rows.items()], order, reverse=reverse).lines
    assert {line.entry.recipe for line in lines} == set(names)

    def number(name: str, column: str) -> float | None:
        """What the column shows, from the row alone."""
        one = rows[name]
        if column in COSTS:
            cost = one.costs.get(COSTS[column])
            return None if cost is None else -cost  # the larger, the better
        if column == GAIN:
            base, own = (rows[other].measures.get(MEASURES[0]) for other in ("none", name))
            seconds = one.costs.get("train_seconds")
            known = name != "none" and seconds and own is not None and base is not None
            return 100 * (own - base) / (seconds / 3600) if known else None  # type: ignore[operator]
        return one.measures.get(column.rpartition(" ")[2])

    rest = [f"squad dev {measure}" for measure in MEASURES if not order.endswith(measure)]
    for above, below in pairwise(line.entry.recipe for line in lines):
        for column in (order, *rest):
            first, second = number(above, column), number(below, column)
            assert first is not None or second is None, f"{below} has a value of {column}, {above} has none"
            if first != second:
                assert second is None or (first < second if reverse else first > second)  # type: ignore[operator]
                break


def test_an_index_recall_has_a_column_where_a_system_has_one_and_more_is_better() -> None:
    exact = entry("exact", [row("exact", 0, {"nDCG@10": 0.5}, {"train_seconds": 1.0})])
    shares = {"good": 0.9996, "poor": 0.75}
    found = [entry(name, [row(name, 0, {}, {"index_recall_at_10": share})]) for name, share in shares.items()]
    assert not [column for column in board([exact], "squad dev nDCG@10").columns if "recall" in column.key]
    shown = board([*found[::-1], exact], "Index recall@10")
    (column,) = [column for column in shown.columns if "recall" in column.key]
    cells = {line.entry.recipe: number_in(shown, column, line.cells[column.key]) for line in shown.lines}
    assert list(cells.items()) == [("good", "0.9996"), ("poor", "0.7500"), ("exact", "—")]


def test_an_order_that_the_board_does_not_have_is_that_of_its_first_measure() -> None:
    """An address that somebody kept names a measure that is not chosen any more."""
    found = {"low": (0.25, 0.75), "high": (0.5, 0.5), "middle": (0.375, 0.25)}
    systems = [entry(name, [row(name, 0, dict(zip(MEASURES, own, strict=True)), {})]) for name, own in found.items()]
    assert [line.entry.recipe for line in board(systems, "squad dev AP").lines] == ["high", "middle", "low"]
    alike = dict.fromkeys(MEASURES, 0.5)
    dear = [
        entry(name, [row(name, 0, alike, dict.fromkeys(COSTS.values(), cost))])
        for name, cost in zip("ab", (2, 1), strict=True)
    ]
    lines = board(dear, "squad dev nDCG@10").lines
    assert [line.entry.recipe for line in lines] == ["a", "b"], "as they came, whatever they cost"
    assert not any(line.cells[column].best for line in lines for column in (*COSTS, GAIN)), "only measures are bold"


@given(some.lists(values, min_size=1, max_size=6), some.lists(some.integers(-4, 4), min_size=6, max_size=6))
def test_bold_are_the_highest_and_those_that_rounding_alone_tells_from_it(
    found: list[float], last_bits: list[int]
) -> None:
    """Sums in another order differ in the last bit; a tenth of a billionth is a difference."""
    noisy = [value + 1e-13 * bits for value, bits in zip(found, last_bits, strict=False)]
    almost = max(noisy) - 1e-10
    systems = [entry(f"s{at}", [row(f"s{at}", 0, {"nDCG@10": value}, {})]) for at, value in enumerate([*noisy, almost])]
    cells = {line.entry.recipe: line.cells["squad dev nDCG@10"] for line in board(systems, NEWEST).lines}
    assert [cells[f"s{at}"].best for at in range(len(found))] == [value == max(found) for value in found]
    assert not cells[f"s{len(found)}"].best


@given(some.lists(some.floats(0, 1e6), min_size=1, max_size=5))
def test_a_cost_is_the_mean_over_the_runs_each_once(seconds: list[float]) -> None:
    rows = [row("s", at, {}, {"train_seconds": one}) for at, one in enumerate(seconds)]
    test = DEV._replace(split="test")
    own = Entry("s", "corpus", "dense", "p", "tiny", "", False, BEGAN, {DEV: tuple(rows), test: tuple(rows[:1])})
    assert own.cost("train_seconds", [DEV, test]) == pytest.approx(fmean(seconds))
    assert own.cost("gpu_hours", [DEV]) is None
    (line,) = board([own], NEWEST).lines
    assert line.cells[HOURS].number == pytest.approx(fmean(seconds) / 3600)


@given(some.lists(some.floats(0, 1), min_size=1, max_size=6), some.floats(0, 1), some.floats(1, 1e5))
def test_a_gain_is_counted_from_the_best_baseline_wherever_it_stands(
    bases: list[float], own: float, seconds: float
) -> None:
    assume(len(set(bases)) == len(bases))
    found = [entry("none", [row("none", at, {"nDCG@10": one}, {})], str(at)) for at, one in enumerate(bases)]
    system = entry("s", [row("s", 9, {"nDCG@10": own}, {"train_seconds": seconds})])
    for ordered in ([*found, system], [system, *reversed(found)]):
        base = baselines(ordered, "none", DEV, "nDCG@10")[kind(system)]
        value = base.value(DEV, "nDCG@10")
        assert value is not None and value.mean == max(bases)
        gain = gain_per_hour(system, base, DEV, "nDCG@10")
        assert gain == pytest.approx(100 * (own - max(bases)) * 3600 / seconds)
