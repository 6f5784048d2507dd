"""Which systems are offered for a comparison, how they are called, and which come first."""

import pyarrow as pa
import pytest

from midmask.leaderboard.comparable import comparable, short_names
from midmask.leaderboard.entries import entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.tracking import TrackedRow
from tests.support.dashboards import compared


def values(row: LeaderboardRow) -> pa.Table | None:
    own = {name: compared.values(row.recipe, int(row.seed), name) for name in compared.MEASURES}
    return compared.per_query(own)


def aged(runs: list[TrackedRow]) -> list[TrackedRow]:
    """The runs, each a day older than the one before."""
    return [compared.changed(run, older=days) for days, run in enumerate(runs)]


def test_seeds_are_joined_and_a_system_lacks_none_of_its_tables() -> None:
    found = entries(rows(compared.tracked_rows()))
    (place,) = found[0].rows
    systems = comparable(found, place, "nDCG@10", values)
    assert {name: len(tables) for name, tables in systems.tables.items()} == {
        "dupmae": 3, "retromae": 3, "none": 3, "bm25": 1
    }  # fmt: skip

    def one_seed_lost(row: LeaderboardRow) -> pa.Table | None:
        return None if (row.recipe, row.seed) == ("retromae", "1") else values(row)

    systems = comparable(found, place, "nDCG@10", one_seed_lost)
    assert set(systems.entries) == set(systems.tables) == {"dupmae", "none", "bm25"}
    assert systems.without == ("retromae",) and not systems.unread
    other = lambda row: compared.per_query({"RR@10": {"q": 0.5}}) if row.recipe == "none" else values(row)  # noqa: E731
    assert comparable(found, place, "nDCG@10", other).without == ("none",), "it has no values of the measure"


@pytest.mark.parametrize(
    ("recipes", "expected"),
    [
        (("dupmae", "none", "bm25"), "none"),
        (("dupmae", "bm25", "retromae"), "bm25"),
        (("dupmae", "retromae"), "retromae"),
    ],
    ids=["no middle training", "else BM25", "else the oldest"],
)
def test_the_baseline_is_the_plain_system(recipes: tuple[str, ...], expected: str) -> None:
    runs = {run.tags["midmask.recipe"]: run for run in compared.tracked_rows() if run.run_id.endswith("-0")}
    found = entries(rows(aged([runs[recipe] for recipe in recipes])))
    (place,) = found[0].rows
    systems = comparable(found, place, "nDCG@10", values)
    assert systems.baseline() == expected


def test_of_several_plain_systems_the_baseline_is_the_one_that_most_can_be_held_against() -> None:
    """And those that can, share its protocol, stand before the others, whatever their means."""
    runs = {run.tags["midmask.recipe"]: run for run in compared.tracked_rows() if run.run_id.endswith("-0")}
    newest = compared.tagged(runs["none"], protocol="other")
    best = compared.tagged(runs["dupmae"], protocol="other")
    found = entries(
        rows([newest, best, runs["none"], *(compared.tagged(runs[one], seed="0") for one in ("retromae", "dupmae"))])
    )
    (place,) = found[0].rows
    systems = comparable(found, place, "nDCG@10", values)
    assert systems.baseline() == "none · in_batch"
    assert systems.others(place, "nDCG@10", "none · other")[0] == "dupmae · other"
    assert systems.others(place, "nDCG@10", "none · in_batch")[:2] == ["dupmae · in_batch", "retromae"]


def test_a_short_name_has_what_tells_systems_of_one_recipe_apart() -> None:
    runs = [run for run in compared.tracked_rows() if run.run_id.endswith("-0")]
    trial = entries(rows([compared.tagged(runs[0], step="trial"), *runs]))
    (place,) = trial[0].rows
    assert list(comparable(trial, place, "nDCG@10", values).entries)[-1] == "dupmae · trial", "trials come last"
    other = compared.tagged(runs[0], protocol="ance")
    found = entries(rows([*runs, other]))
    assert list(short_names(found)) == ["dupmae · in_batch", "retromae", "none", "bm25", "dupmae · ance"]
    assert list(short_names(found[:4])) == ["dupmae", "retromae", "none", "bm25"]
