"""Which systems are compared, on what, and how the comparison is said."""

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from midmask.errors import UserError
from midmask.evaluation.statistics.sentences import sentence
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask.leaderboard.comparable import comparable, short_names
from midmask.leaderboard.comparison import compare_systems
from midmask.leaderboard.comparison_text import as_markdown, as_text
from midmask.leaderboard.entries import entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.leaderboard.selection import select_systems
from midmask.leaderboard.watch import StoreView
from midmask.retrieve.run_file import run_digest
from midmask.tracking import TrackedRow, collection_key, metric_key, queries_key
from tests.support.dashboards import compared


def row(own: np.ndarray, base: np.ndarray) -> Comparison:
    tables = {
        name: compared.per_query({"RR": dict(zip(map(str, range(len(values))), values.tolist(), strict=True))})
        for name, values in {"b": base, "a": own}.items()
    }
    (found,) = compare(tables, measure="RR", baseline="b")
    return found


BASE = (np.arange(32) + 16) / 128
"""Differences to it are exact."""
NOISE = np.resize([0.0625, -0.0625], 32)


@pytest.mark.parametrize(
    ("own", "said", "numbers"),
    [
        (BASE + 0.125 + NOISE, "a is better than b", ["0.3711", "0.2461", "0.1250"]),
        (BASE - 0.125 + NOISE, "b is better than a", ["0.2461", "0.1211", "0.1250"]),
        (BASE + NOISE + 2**-10, "a and b are not distinguishable", ["0.2471", "0.2461", "0.0010"]),
        (BASE, "a and b have the same", ["0.2461"]),
    ],
    ids=["better", "worse", "undecided", "equal"],
)
def test_the_sentence_says_who_is_better_or_that_nobody_is(own: np.ndarray, said: str, numbers: list[str]) -> None:
    found = row(own, BASE)
    told = sentence(found, "x dev")
    assert told.startswith(said) and re.findall(r"\d\.\d{4}", told)[: len(numbers)] == numbers
    if said == "b is better than a":
        assert f"{-found.high:+.4f} to {-found.low:+.4f}, p < 0.0001, 32 queries" in told
    assert (f"{found.detectable:.4f}" in told) == ("distinguishable" in said)
    single = sentence(row(np.array([0.9]), np.array([0.1])), "x dev")
    assert "not distinguishable" in single and "probability" not in single, "it promises nothing"


def view_of(runs: list[TrackedRow]) -> StoreView:
    found = rows(runs)
    return StoreView(runs, found, entries(found), datetime.now(UTC))


def run(
    system: str, collection: str = "c0ffee123456", split: str = "dev", queries: int = 60, **tags: str
) -> TrackedRow:
    made = next(one for one in compared.tracked_rows() if one.tags["midmask.recipe"] == system)
    own = {collection_key("squad"): collection, queries_key("squad", split): str(queries)}
    return replace(
        made,
        run_id=uuid.uuid5(uuid.NAMESPACE_OID, f"{system} {collection} {split} {queries}").hex,
        metrics={metric_key("squad", split, "nDCG@10"): 0.5},
        tags={**made.tags, **own, **{f"midmask.{name}": value for name, value in tags.items()}},
    )


def test_collections_of_one_name_are_chosen_by_their_full_name() -> None:
    """None of the two is taken for the other, whatever they are called."""
    runs = [run(system, collection) for system in ("none", "bm25") for collection in ("aaaa11", "bbbb22")]
    with pytest.raises(
        UserError, match=r"--on 'squad \(aaaa, 60 queries\) dev' or --on 'squad \(bbbb, 60 queries\) dev'"
    ):
        select_systems(["none", "bm25"], view_of(runs), "squad/dev")
    place, chosen = select_systems(["none", "bm25"], view_of(runs), "squad (bbbb, 60 queries) dev")
    assert place.collection == "bbbb22" and list(chosen) == ["none", "bm25"]
    with pytest.raises(UserError, match="no queries that all"):
        select_systems(["none", "bm25"], view_of([runs[0], runs[3]]), None)
    sliced = view_of([run(system, split=split) for system in ("none", "bm25") for split in ("test", "test.head")])
    assert select_systems(["none", "bm25"], sliced, None)[0].split == "test"
    assert select_systems(["none", "bm25"], sliced, "squad/test.head")[0].split == "test.head"


def test_a_trial_is_meant_where_there_is_nothing_else() -> None:
    runs = [run("none"), replace(run("none", step="trial"), run_id="f" * 32), run("bm25")]
    _, chosen = select_systems(["bm25", "none"], view_of(runs), None)
    assert not chosen["none"].trial
    _, chosen = select_systems(["bm25", "none"], view_of(runs[1:]), None)
    assert chosen["none"].trial


def test_a_run_file_is_found_by_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.trec"
    file.write_text("q Q0 d 1 1.0 x\n")
    measured = compared.changed(run("none"), run__digest=run_digest(file))
    view = view_of([compared.changed(run("dupmae"), run__digest="0" * 16), measured, run("bm25")])
    _, chosen = select_systems(["bm25", str(file)], view, None)
    assert list(chosen) == ["bm25", "none"]


def test_names_and_queries_are_escaped_in_markdown_alone() -> None:
    systems = {name: rows([run(name)]) for name in ("bm25", "none")}
    values = {"bm25": [0.1, 0.5, 0.2], "none": [0.2, 0.6, 0.9]}

    def per_query(row: LeaderboardRow) -> pa.Table:
        return compared.per_query({"nDCG@10": dict(zip(("q_1_", "q|2", "q3"), values[row.recipe], strict=True))})

    named = {"a|b": systems["bm25"], "*c*": systems["none"]}
    found = compare_systems(named, "squad dev", per_query, [run("bm25"), run("none")], measures=[], queries=3)
    plain, markdown = as_text(found), as_markdown(found)
    assert "a|b" in plain and "*c*" in plain and "q|2" in plain
    assert all(name in markdown for name in ("a\\|b", "\\*c\\*", "q\\|2"))
    assert "|b" not in markdown.replace("\\|", "")
    with pytest.raises(UserError, match=r"run .* \(bm25\) has no values per query"):
        compare_systems(systems, "squad dev", lambda row: None, [], measures=[], queries=3)


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


def test_a_short_name_has_what_tells_systems_of_one_recipe_apart() -> None:
    runs = [run for run in compared.tracked_rows() if run.run_id.endswith("-0")]
    trial = entries(rows([compared.tagged(runs[0], step="trial"), *runs]))
    (place,) = trial[0].rows
    assert list(comparable(trial, place, "nDCG@10", values).entries)[-1] == "dupmae · trial", "trials come last"
    other = compared.tagged(runs[0], protocol="ance")
    found = entries(rows([*runs, other]))
    assert list(short_names(found)) == ["dupmae · in_batch", "retromae", "none", "bm25", "dupmae · ance"]
    assert list(short_names(found[:4])) == ["dupmae", "retromae", "none", "bm25"]
