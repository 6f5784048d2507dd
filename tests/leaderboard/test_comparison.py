"""Which systems are compared, on what, how it is said; counts by hand; what lies behind a tracked number."""

import gzip
import math
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text
from midmask.evaluation.statistics.pairing import pair_systems, widest
from midmask.evaluation.statistics.significance import Comparison, compare, sentence
from midmask.experiment.plan import plan
from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, inputs_of
from midmask.leaderboard.comparison import as_text, comparable, compare_systems, short_names
from midmask.leaderboard.entries import entries
from midmask.leaderboard.queries import look_up
from midmask.leaderboard.rows import LeaderboardRow, measured, rows
from midmask.leaderboard.selection import select_systems
from midmask.leaderboard.store_view import StoreView
from midmask.store.place import Place
from midmask.tracking.reading import TrackedRow, read_runs
from tests.support.benchmark.tiny import WORDS
from tests.support.dashboards import compared, worked
from tests.support.dashboards.compared import evaluated, per_query_of


def row(own: np.ndarray, base: np.ndarray) -> Comparison:
    rows = {name: {str(at): value for at, value in enumerate(v.tolist())} for name, v in (("b", base), ("a", own))}
    tables = {name: compared.per_query({"RR": values}) for name, values in rows.items()}
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
    return StoreView("", runs, found, entries(found), per_query_of, datetime.now(UTC))


def test_collections_of_one_name_are_chosen_by_their_full_name() -> None:
    runs = [evaluated(system, collection) for system in ("none", "bm25") for collection in ("aaaa11", "bbbb22")]
    both = r"--on 'squad \(aaaa, 60 queries\) dev' or --on 'squad \(bbbb, 60 queries\) dev'"
    with pytest.raises(UserError, match=both):
        select_systems(["none", "bm25"], view_of(runs), "squad/dev")
    place, chosen = select_systems(["none", "bm25"], view_of(runs), "squad (bbbb, 60 queries) dev")
    assert place.collection == "bbbb22" and list(chosen) == ["none", "bm25"]
    with pytest.raises(UserError, match="no queries that all"):
        select_systems(["none", "bm25"], view_of([runs[0], runs[3]]), None)
    sliced = view_of([evaluated(system, split=split) for system in ("none", "bm25") for split in ("test", "test.head")])
    assert select_systems(["none", "bm25"], sliced, None)[0].split == "test"
    assert select_systems(["none", "bm25"], sliced, "squad/test.head")[0].split == "test.head"


def test_a_trial_is_meant_where_there_is_nothing_else() -> None:
    runs = [evaluated("none"), replace(evaluated("none", step="trial"), run_id="f" * 32), evaluated("bm25")]
    _, chosen = select_systems(["bm25", "none"], view_of(runs), None)
    assert not chosen["none"].trial
    _, chosen = select_systems(["bm25", "none"], view_of(runs[1:]), None)
    assert chosen["none · trial"].trial


def test_names_and_queries_are_escaped_in_markdown_alone() -> None:
    systems = {name: rows([evaluated(name)]) for name in ("bm25", "none")}
    values = {"bm25": [0.1, 0.5, 0.2], "none": [0.2, 0.6, 0.9]}

    def per_query(row: LeaderboardRow) -> pa.Table:
        return compared.per_query({"nDCG@10": dict(zip(("q_1_", "q|2", "q3"), values[row.recipe], strict=True))})

    named = {"a|b": systems["bm25"], "*c*": systems["none"]}
    found = compare_systems(named, "squad dev", per_query, measures=[], queries=3)
    plain, markdown = as_text(found), as_text(found, markdown_text)
    assert "a|b" in plain and "*c*" in plain and "q|2" in plain
    assert all(name in markdown for name in ("a\\|b", "\\*c\\*", "q\\|2"))
    assert "|b" not in markdown.replace("\\|", "")
    with pytest.raises(UserError, match=r"run .* \(bm25\) has no values per query"):
        compare_systems(systems, "squad dev", lambda row: None, measures=[], queries=3)


def test_seeds_are_joined_and_a_system_lacks_none_of_its_tables() -> None:
    found = entries(rows(compared.tracked_rows()))
    (place,) = found[0].rows
    systems = comparable(found, place, "nDCG@10", per_query_of)
    assert {name: len(tables) for name, tables in systems.tables.items()} == {
        "dupmae": 3, "retromae": 3, "none": 3, "bm25": 1
    }  # fmt: skip

    def one_seed_lost(row: LeaderboardRow) -> pa.Table | None:
        return None if (row.recipe, row.seed) == ("retromae", "1") else per_query_of(row)

    systems = comparable(found, place, "nDCG@10", one_seed_lost)
    assert set(systems.entries) == set(systems.tables) == {"dupmae", "none", "bm25"}
    assert systems.without == ("retromae",) and not systems.unread
    other = lambda row: compared.per_query({"RR@10": {"q": 0.5}}) if row.recipe == "none" else per_query_of(row)  # noqa: E731
    assert comparable(found, place, "nDCG@10", other).without == ("none",), "it has no values of the measure"


@pytest.mark.parametrize(
    ("recipes", "expected"),
    [("dupmae none bm25", "none"), ("dupmae bm25 retromae", "bm25"), ("dupmae retromae", "retromae")],
    ids=["no middle training", "else BM25", "else the oldest"],
)
def test_the_baseline_is_the_plain_system(recipes: str, expected: str) -> None:
    runs = {run.tags["midmask.recipe"]: run for run in compared.tracked_rows() if run.run_id.endswith("-0")}
    aged = [compared.changed(runs[recipe], older=days) for days, recipe in enumerate(recipes.split())]
    found = entries(rows(aged))
    (place,) = found[0].rows
    assert comparable(found, place, "nDCG@10", per_query_of).baseline() == expected


def test_a_short_name_has_what_tells_systems_of_one_recipe_apart() -> None:
    runs = [run for run in compared.tracked_rows() if run.run_id.endswith("-0")]
    trial = entries(rows([compared.tagged(runs[0], step="trial"), *runs]))
    (place,) = trial[0].rows
    assert list(comparable(trial, place, "nDCG@10", per_query_of).entries)[-1] == "dupmae · trial", "trials come last"
    other = compared.tagged(runs[0], protocol="ance")
    found = entries(rows([*runs, other]))
    assert list(short_names(found)) == ["dupmae · in_batch", "retromae", "none", "bm25", "dupmae · ance"]
    assert list(short_names(found[:4])) == ["dupmae", "retromae", "none", "bm25"]


SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0])
RUNS = st.dictionaries(st.sampled_from([f"q{n:02d}" for n in range(15)]), SCORES, min_size=1, max_size=15)


def table(values: dict[str, float], measure: str = "RR@10") -> pa.Table:
    """Values of a measure, and of another one that must not count."""
    return compared.per_query({measure: values, "other": {query: 1 - value for query, value in values.items()}})


@given(own=RUNS, base=RUNS)
def test_counts_are_those_of_a_loop_over_the_shared_queries(own: dict[str, float], base: dict[str, float]) -> None:
    found = pair_systems(table(own), table(base), "RR@10")
    wins = losses = ties = 0
    for query in own:
        if query in base:
            wins += own[query] > base[query]
            losses += own[query] < base[query]
            ties += own[query] == base[query]
    assert (found.wins, found.losses, found.ties) == (wins, losses, ties)
    assert found.left_out == len({*own} ^ {*base})
    assert found.queries == tuple(sorted({*own} & {*base}))


@given(own=RUNS, base=RUNS, count=st.integers(1, 16), side=st.sampled_from(["either", "wins", "losses"]))
def test_no_query_that_is_left_out_differs_more(own, base, count, side) -> None:
    pairing = pair_systems(table(own), table(base), "RR@10")
    chosen = widest(pairing, count, side)
    size = {"either": abs, "wins": lambda size: size, "losses": lambda size: -size}[side]
    sizes = {query: size(own[query] - base[query]) for query in pairing.queries}
    eligible = {query: size for query, size in sizes.items() if size > 0}
    assert len(chosen) == min(count, len(eligible)) and set(chosen) <= set(eligible)
    assert [eligible[query] for query in chosen] == sorted((eligible[query] for query in chosen), reverse=True)
    smallest = min((eligible[query] for query in chosen), default=math.inf)
    assert all(size <= smallest + 1e-12 for query, size in eligible.items() if query not in chosen)


def test_sums_that_differ_in_the_last_bit_are_a_tie() -> None:
    found = pair_systems(table({"a": 0.1 + 0.2}), table({"a": 0.3}), "RR@10")
    assert (found.wins, found.losses, found.ties) == (0, 0, 1) and widest(found, 5) == []
    found = pair_systems(table({"b": 1.0, "a": 1.0, "c": 0.0}), table({"b": 0.5, "a": 0.5, "c": 0.7}), "RR@10")
    assert widest(found, 3) == ["c", "a", "b"], "equal differences stand in the order of their ids"


def test_seeds_are_joined_by_their_means_on_the_queries_that_all_have() -> None:
    seeds = [table({"a": 0.2, "b": 1.0, "c": 0.5}), table({"a": 0.6, "b": 0.0})]
    found = pair_systems(seeds, table({"a": 0.3, "b": 0.5, "c": 0.1}), "RR@10")
    assert found.queries == ("a", "b") and found.left_out == 1
    assert found.own_N.tolist() == pytest.approx([0.4, 0.5]) and (found.wins, found.ties, found.losses) == (1, 1, 0)


@pytest.fixture(scope="module")
def uri(worked_store: tuple[Path, dict[str, str]]) -> str:
    return f"sqlite:///{worked_store[0]}/mlflow.db"


@pytest.fixture(scope="module")
def runs(worked_store: tuple[Path, dict[str, str]], uri: str) -> dict[str, TrackedRow]:
    found = {run.tags["midmask.fingerprint"]: run for run in read_runs(uri) if measured(run)}
    return {recipe: found[fingerprint] for recipe, fingerprint in worked_store[1].items()}


def place_of(run: TrackedRow) -> Place:
    found = artifact_place(run, "", "")
    assert found is not None
    return found


def without(run: TrackedRow, step: str, tmp_path: Path) -> Place:
    """The run's artifact in a copy of its store, in which all of one step was deleted."""
    store = Path(place_of(run).uri).parents[1]
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    for record in copy.glob("*/*/record.json"):
        record.write_text(record.read_text().replace(str(store), str(copy)))
    shutil.rmtree(copy / step)
    return Place(str(copy / "evaluate" / place_of(run).uri.rsplit("/", 1)[1]))


def test_queries_with_their_texts_judgements_and_ranks(runs: dict[str, TrackedRow]) -> None:
    own, base = place_of(runs["retromae"]), place_of(runs["bm25"])
    found, missing = look_up(["q30", "q24"], {"own": own, "bm25": base}, top=5)
    assert not missing and [query.query_id for query in found] == ["q30", "q24"]
    text = [WORDS[(30 * step + at) % 16] for at, step in enumerate((1, 2, 3, 5, 7, 11, 13, 4))]
    assert found[0].text == " ".join(text[:3])
    (relevant,) = found[0].judged
    assert (relevant.doc_id, relevant.grade, relevant.title, relevant.text) == ("d30", 1, "number 30", " ".join(text))
    for name, where in (("own", own), ("bm25", base)):
        lines = gzip.decompress(next((Path(where.uri) / "runs").iterdir()).read_bytes()).decode().splitlines()
        listed = [line.split()[2] for line in lines if line.startswith("q30 ")]
        assert [passage.doc_id for passage in found[0].retrieved[name]] == listed[:5]
        assert relevant.ranks[name] == (listed.index("d30") + 1 if "d30" in listed else None)


def test_what_was_deleted_is_named_and_the_rest_is_shown(runs: dict[str, TrackedRow], tmp_path: Path) -> None:
    gone = without(runs["retromae"], "prepare", tmp_path / "a")
    (query,), missing = look_up(["q30"], {"own": gone, "untold": None}, top=3)
    assert query.text is None and len(query.retrieved["own"]) == 3 and query.retrieved["own"][0].text is None
    assert missing == ["own", "untold"]
    behind = artifacts_behind(without(runs["retromae"], "encode", tmp_path / "b"))
    assert {artifact.record["step"] for artifact in behind} == {"prepare", "tokenise", "search", "evaluate"}
    assert artifact_place(replace(runs["none"], tags={}), "tiny", "dev") is None


def test_the_artifacts_behind_a_number_are_those_of_its_plan(runs: dict[str, TrackedRow], worked_store) -> None:
    recipe, _ = worked.recipes(f"beir:{worked_store[0]}/tiny")
    planned = [(step.name, step.fingerprint) for step in plan(recipe).evaluation(recipe.evaluation).upstream()]
    behind = artifacts_behind(place_of(runs["retromae"]))
    assert sorted((one.record["step"], one.fingerprint) for one in behind) == sorted(planned)
    seen: set[str] = set()
    for one in behind:
        assert all(source.uri in seen for source in inputs_of(one).values()), "what it was made of stands before it"
        seen.add(one.address.uri)
    assert behind[-1].record["step"] == "evaluate"
