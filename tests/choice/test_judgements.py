"""Judgements survive kills and other writers, and become a collection that an evaluation reads."""

import fcntl
import json
import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import midmask
from midmask.choice.judgements import Judgement, JudgementStore, query_id
from midmask.errors import UserError
from tests.support.choice.searched import DOCUMENTS, write_collection

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
    """Whether a process waits for another one's lock of a file."""
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
