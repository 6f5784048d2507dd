"""A person's judgements: what survives kills, measures over them, interleaving, what is to be judged next."""

import fcntl
import json
import multiprocessing
import os
import signal
from collections import Counter
from dataclasses import replace
from math import comb, log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

import midmask
from midmask.choice.judgements import (
    JudgedPair,
    Judgement,
    JudgementJournal,
    JudgementStore,
    answerable,
    interleaving_preference,
    judged_pair,
    judged_systems,
    next_to_judge,
    plain_words,
    pool,
    query_id,
    team_draft,
)
from midmask.errors import UserError
from tests.support.choice.searched import DOCUMENTS, verdict, write_collection

GRADES = {"p": {"a": 1, "b": 0, "c": 1}, "q": {"x": 0, "y": 1}, "r": {"z": 0}}


def test_unjudged_passages_count_as_not_relevant() -> None:
    """By hand: of u, b, u2, a the relevant a stands fourth; c, relevant too, is not found."""
    lists = {"one": {"p": ["u", "b", "u2", "a"], "q": ["y"]}, "two": {"p": ["a", "c"], "q": ["u", "x", "u2"]}}
    ideal = 1 + 1 / log2(3)
    found = {row.label: row for row in judged_systems(lists, GRADES)}
    assert found["one"].value == pytest.approx((1 / log2(5) / ideal + 1) / 2)
    assert found["two"].value == pytest.approx((1 + 0) / 2)
    assert found["one"].queries == 2 and found["one"].judged == pytest.approx(3 / 5)
    assert found["two"].judged == pytest.approx(3 / 5)
    assert [row.label for row in judged_systems(lists, GRADES)] == ["one", "two"]


def test_a_query_counts_once_a_passage_is_relevant() -> None:
    assert answerable(GRADES) == ["p", "q"]
    assert judged_systems({"one": {"r": ["z"]}}, {"r": {"z": 0}}) == []
    assert judged_pair({"one": {"r": ["z"]}, "two": {"r": []}}, {"r": {"z": 0}}, "one", "two", 0.9) is None


def test_a_pair_has_the_t_interval_of_its_differences() -> None:
    """Against scipy, on lists in which one relevant passage stands at a drawn rank."""
    draw = np.random.default_rng(5)
    grades = {f"q{number}": {f"d{at}": int(at == 0) for at in range(8)} for number in range(20)}
    lists = {
        label: {query: draw.permutation([f"d{at}" for at in range(8)]).tolist() for query in grades}
        for label in ("own", "other")
    }
    gains = [
        1 / log2(2 + lists["own"][query].index("d0")) - 1 / log2(2 + lists["other"][query].index("d0"))
        for query in grades
    ]
    found = judged_pair(lists, grades, "own", "other", 0.9)
    assert found is not None
    expected = stats.ttest_1samp(gains, 0).confidence_interval(0.9)
    assert (found.difference, found.low, found.high) == pytest.approx((np.mean(gains), *expected))
    assert found.wins == sum(gain > 0 for gain in gains) and found.losses == sum(gain < 0 for gain in gains)
    assert found.queries == 20 and found.ties == 20 - found.wins - found.losses


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({}, "agree with the verdict"), ({"low": -0.01}, "do not contradict the verdict")),
        ({"low": 0.2, "high": 0.4}, "a larger gain than the verdict expected"),
        ({"low": -0.4, "high": -0.2}, "a smaller gain than the verdict expected"),
        ({"wins": 2, "ties": 0, "losses": 1}, "too few to compare"),
        ({"first": "splade · lexical"}, "+0.030 nDCG@10 (+0.010 to +0.050)"),
    ],
)
def test_judgements_are_held_against_the_estimate(changes: dict[str, float], words: str) -> None:
    pair = replace(JudgedPair("retromae · dense", "bm25", 20, 5, 5, 0.06, 0.03, 0.09), **changes)
    assert words in " ".join(plain_words(pair, verdict()))


def test_the_pool_is_what_any_system_found_in_an_order_that_shows_nothing() -> None:
    lists = {"one": [f"d{at}" for at in range(30)], "two": [f"d{at}" for at in range(29, -1, -1)]}
    found = pool(lists, "some query", {"d0": 1, "d29": 0})
    assert set(found) == {f"d{at}" for at in (*range(1, 10), *range(20, 29))} and len(found) == 18
    assert found == pool(dict(reversed(lists.items())), "some query", {"d0": 1, "d29": 0})
    assert found != sorted(found) and found != pool(lists, "another query", {"d0": 1, "d29": 0})
    assert pool({"one": []}, "some query", {}) == []


def test_the_next_is_of_the_first_query_that_is_not_judged_to_its_end() -> None:
    ranked = {"first": {"one": ["a", "b"]}, "second": {"one": ["c"]}}
    grades: dict[str, dict[str, int]] = {}
    seen = []
    while found := next_to_judge(ranked, ranked.__getitem__, grades):
        query, left = found
        seen.append((query, left[0]))
        grades.setdefault(query_id(query), {})[left[0]] = 0
    assert sorted(seen[:2]) == [("first", "a"), ("first", "b")] and seen[2:] == [("second", "c")]
    skipped = frozenset({(query_id("first"), "a"), (query_id("first"), "b")})
    assert next_to_judge(ranked, ranked.__getitem__, {}, skipped) == ("second", ["c"])


NAMES = [f"d{number}" for number in range(14)]
lists = some.builds(lambda names, stop: names[:stop], some.permutations(NAMES), some.integers(0, len(NAMES)))


@given(own=lists, other=lists, query=some.text(min_size=1), k=some.integers(1, 12))
def test_no_passage_stands_twice_and_the_teams_are_equal(own: list[str], other: list[str], query: str, k: int) -> None:
    found = team_draft({"a": own, "b": other}, query, k)
    shown = [pick.doc_id for pick in found]
    assert len(shown) == len(set(shown)) <= k
    sizes = Counter(pick.team for pick in found)
    assert abs(sizes["a"] - sizes["b"]) <= 1
    assert found == team_draft({"b": other, "a": own}, query, k), "neither position nor order of the names counts"


@given(own=lists, other=lists, query=some.text(min_size=1))
def test_each_team_proposes_its_best_that_is_left(own: list[str], other: list[str], query: str) -> None:
    ranked = {"a": own, "b": other}
    found = team_draft(ranked, query, 10)
    for place, pick in enumerate(found):
        taken = {before.doc_id for before in found[:place]}
        assert pick.doc_id == next(one for one in ranked[pick.team] if one not in taken)
    rounds = [{pick.team for pick in found[at : at + 2]} for at in range(0, len(found) - 1, 2)]
    assert all(teams == {"a", "b"} for teams in rounds)
    if len(found) < 10:
        left = [set(one) - {pick.doc_id for pick in found} for one in ranked.values()]
        assert not all(left), "it ends early only where a system has nothing left"


def test_the_coin_is_fair_and_of_the_query() -> None:
    """Of 2,000 queries a system begins half, within four standard deviations (22.4 each)."""
    drafts = [team_draft({"a": NAMES[:5], "b": NAMES[5:10]}, f"query {number}", 4) for number in range(2000)]
    for place in (0, 2):
        assert abs(sum(found[place].team == "a" for found in drafts) - 1000) < 90
    both = sum(found[0].team == found[2].team for found in drafts)
    assert abs(both - 1000) < 90, "each round has a coin of its own"


def credited(*outcomes: tuple[int, int]) -> JudgementJournal:
    rows = []
    for number, (own, other) in enumerate(outcomes):
        for team, count in (("a", own), ("b", other)):
            rows += [Judgement(f"q{number}", f"{team}{at}", 1, "blind", "b", "a", team) for at in range(count)]
        rows.append(Judgement(f"q{number}", "none", 0, "blind", "a", "b", "a"))
    return JudgementJournal(tuple(rows))


def test_the_preference_is_a_sign_test_over_queries() -> None:
    outcomes = [(2, 0)] * 9 + [(0, 1)] * 2 + [(1, 1), (0, 0)]
    found = interleaving_preference(credited(*outcomes), "a", "b")
    assert (found.wins, found.losses, found.ties, found.share) == (9, 2, 2, pytest.approx(9 / 11))
    by_hand = 2 * sum(comb(11, count) for count in (9, 10, 11)) / 2**11
    assert found.p == pytest.approx(by_hand) and not found.significant
    turned = interleaving_preference(credited(*outcomes), "b", "a")
    assert (turned.wins, turned.losses, turned.p) == (2, 9, pytest.approx(by_hand))
    assert turned.low == pytest.approx(1 - found.high)


def test_only_blind_judgements_of_this_pair_count_and_the_last_one() -> None:
    rows = [
        Judgement("q", "x", 1, "blind", "a", "b", "a"),
        Judgement("q", "x", 0, "blind", "a", "b", "a"),
        Judgement("q", "y", 1, "blind", "a", "b", "b"),
        Judgement("q", "z", 1, "side by side", "a", "b", "a"),
        Judgement("p", "x", 1, "blind", "a", "c", "a"),
        Judgement("o", "x", 1, "blind", "a", "b", "a"),
        Judgement("o", "x", None, "blind", "a", "b", "a"),
    ]
    found = interleaving_preference(JudgementJournal(tuple(rows)), "a", "b")
    assert (found.wins, found.losses, found.ties) == (0, 1, 0)
    nothing = interleaving_preference(JudgementJournal(()), "a", "b")
    assert (nothing.p, nothing.low, nothing.high) == (1.0, 0.0, 1.0)


FIRST, SECOND, THIRD = list(DOCUMENTS)[:3]


@pytest.fixture
def store(tmp_path: Path) -> JudgementStore:
    return JudgementStore(tmp_path, write_collection(tmp_path / "collection"))


def qrels(store: JudgementStore) -> list[str]:
    return (store.folder / "qrels" / "test.tsv").read_text().splitlines()[1:]


def test_the_last_judgement_of_a_query_and_passage_wins(store: JudgementStore) -> None:
    for doc_id, grade in [(FIRST, 1), (SECOND, 0), (FIRST, 0), (THIRD, 1), (SECOND, 1), (THIRD, None)]:
        store.add(Judgement("start  the\tserver ", doc_id, grade))
    store.add(Judgement("restore", FIRST, 1))
    found = store.read()
    name, other = query_id("start the server"), query_id("restore")
    assert found.grades == {name: {FIRST: 0, SECOND: 1}, other: {FIRST: 1}}
    assert found.counts() == (2, 2, 1) and len(found.rows) == 7
    assert qrels(store) == [f"{name}\t{FIRST}\t0", f"{name}\t{SECOND}\t1", f"{other}\t{FIRST}\t1"]
    queries = [json.loads(line) for line in (store.folder / "queries.jsonl").read_text().splitlines()]
    assert queries == [{"_id": name, "text": "start the server"}, {"_id": other, "text": "restore"}]


def test_the_folder_is_a_collection_that_can_be_evaluated(store: JudgementStore, tmp_path: Path) -> None:
    """BM25 puts the one passage with these words first: 1 by hand where it is relevant, 0 where it is not."""
    store.add(Judgement("restore a date", "guide/backup.md#141-260", 1))
    store.add(Judgement("passwords of users", "notes/empty%20title.md", 0))
    corpus = midmask.Corpus.from_beir(store.folder)
    scores = midmask.evaluate("bm25", corpus, storage=tmp_path / "store", progress=False)
    assert scores.per_query("nDCG@10") == {query_id("restore a date"): 1.0, query_id("passwords of users"): 0.0}
    linked = (store.folder / "corpus.jsonl.gz").stat()
    assert linked.st_ino == (tmp_path / "collection" / "corpus.jsonl.gz").stat().st_ino
    assert scores.artifact.result["corpus"] == "judgements"


def test_a_collection_that_was_made_again_is_linked_again(store: JudgementStore, tmp_path: Path) -> None:
    store.add(Judgement("port", FIRST, 1))
    source = write_collection(tmp_path / "collection", extra=3) / "corpus.jsonl.gz"
    store.add(Judgement("port", SECOND, 1))
    assert (store.folder / "corpus.jsonl.gz").read_bytes() == source.read_bytes()
    for doc_id in (FIRST, SECOND):
        store.add(Judgement("port", doc_id, None))
    assert store.read().counts() == (0, 0, 0) and qrels(store) == []
    assert (store.folder / "queries.jsonl").read_text() == "", "a withdrawn query is no query"


def test_a_torn_last_line_is_counted_and_costs_nothing_else(store: JudgementStore) -> None:
    """A kill may cut a line anywhere; the next judgement begins a line of its own."""
    store.add(Judgement("port", FIRST, 1))
    store.add(Judgement("port", SECOND, 0))
    journal = store.folder / "journal.jsonl"
    whole = journal.read_bytes()
    start = whole.index(b"\n") + 1
    for cut in (*range(start, len(whole) - 2, 9), len(whole) - 2):
        journal.write_bytes(whole[:cut])
        again = JudgementStore(store.folder.parent, store.folder.parent / "collection")
        assert len(again.read().rows) == 1 and again.read().unreadable == (cut > start)
        found = again.add(Judgement("port", THIRD, 1))
        assert found.grades == {query_id("port"): {FIRST: 1, THIRD: 1}}
        assert found.unreadable == (cut > start) and journal.read_bytes().startswith(whole[:cut])
    journal.write_bytes(whole[:-1])
    found = JudgementStore(store.folder.parent, store.folder.parent / "collection").add(Judgement("port", THIRD, 1))
    assert (len(found.rows), found.unreadable) == (3, 0), "a whole row that lacks its line's end is a row"


@pytest.mark.parametrize(
    "line",
    [
        *(b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"query": "a", "doc_id": "b", "grade": 7}'),
        *(b'{"query": 3, "doc_id": "b", "grade": 1}', b'{"query": " ", "doc_id": "b", "grade": 1}'),
        b'{"query": "a", "doc_id": "b", "grade": 1, "strange": 2}',
    ],
)
def test_a_line_that_is_no_judgement_is_counted(line: bytes, store: JudgementStore) -> None:
    store.add(Judgement("port", FIRST, 1))
    with open(store.folder / "journal.jsonl", "ab") as journal:
        journal.write(line + b"\n")
    assert store.add(Judgement("port", SECOND, 1)).counts() == (1, 2, 0)
    assert store.read().unreadable == 1


def write_many(folder: Path, writer: int, count: int) -> None:
    store = JudgementStore(folder, folder / "collection")
    for number in range(count):
        store.add(Judgement(f"query {number} of {writer}", FIRST, number % 2))


def test_concurrent_writers_lose_nothing(store: JudgementStore) -> None:
    writers, count = 4, 25
    spawn = multiprocessing.get_context("fork")
    own = [spawn.Process(target=write_many, args=(store.folder.parent, writer, count)) for writer in range(writers)]
    for one in own:
        one.start()
    for one in own:
        one.join()
    assert all(one.exitcode == 0 for one in own)
    found = store.read()
    assert (found.unreadable, len(found.rows)) == (0, writers * count)
    assert Counter(row.query.rpartition(" ")[2] for row in found.rows) == {str(w): count for w in range(writers)}
    assert len(qrels(store)) == writers * count, "the last writer has seen what all others wrote"


def is_waiting(process: int) -> bool:
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and str(process) in line.split() for line in lines)


def test_a_writer_waits_for_another_ones_files(store: JudgementStore) -> None:
    """Not a line is added while another process is between its line and the collection's files."""
    store.add(Judgement("port", FIRST, 1))
    with open(store.folder / "journal.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = multiprocessing.get_context("fork").Process(target=write_many, args=(store.folder.parent, 1, 1))
        writer.start()
        while not is_waiting(writer.pid or 0):
            assert writer.exitcode is None, "it did not wait"
        assert len(store.read().rows) == 1
        fcntl.flock(lock, fcntl.LOCK_UN)
    writer.join()
    assert len(store.read().rows) == 2 == len(qrels(store))


def test_a_killed_writer_holds_no_lock(store: JudgementStore) -> None:
    """Killed in the midst of its work: what it had kept is there, and the next writer does not wait."""
    context = multiprocessing.get_context("fork")
    store.add(Judgement("port", FIRST, 1))
    writer = context.Process(target=write_many, args=(store.folder.parent, 1, 10_000))
    writer.start()
    while len(store.read().rows) < 5:
        assert writer.exitcode is None
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join()
    before = store.read()
    found = store.add(Judgement("after", SECOND, 1))
    assert len(found.rows) == len(before.rows) + 1 and found.unreadable <= 1
    assert len(qrels(store)) == sum(found.counts()[1:])


def test_what_cannot_be_kept_is_refused(store: JudgementStore, tmp_path: Path) -> None:
    for wrong in (Judgement("  ", FIRST, 1), Judgement("port", FIRST, 3)):
        with pytest.raises(UserError, match="wanted are a query and grade 1, 0 or None"):
            store.add(wrong)
    assert store.read().rows == ()
    (tmp_path / "other").write_text("a file")
    with pytest.raises(UserError, match="the judgement cannot be written"):
        JudgementStore(tmp_path / "other", tmp_path).add(Judgement("port", FIRST, 1))
