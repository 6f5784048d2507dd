"""A person's judgements: a labelled collection at any time, whoever judges at once and whatever is killed."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import midmask
from midmask.choice.judgements import JudgementStore, query_id
from midmask.errors import UserError
from tests.support.choice.searched import DOCUMENTS, write_collection

FIRST, SECOND, THIRD = list(DOCUMENTS)[:3]


@pytest.fixture
def store(tmp_path: Path) -> JudgementStore:
    return JudgementStore(tmp_path, write_collection(tmp_path / "collection"))


def qrels(store: JudgementStore) -> list[str]:
    return (store.folder / "qrels" / "test.tsv").read_text().splitlines()[1:]


def test_the_last_judgement_of_a_query_and_passage_counts(store: JudgementStore) -> None:
    for doc_id, grade in [(FIRST, 1), (SECOND, 0), (FIRST, 0), (THIRD, 1), (SECOND, 1), (THIRD, None)]:
        store.judge("start  the\tserver ", doc_id, grade)
    found = store.judge("restore", FIRST, 1)
    name, other = query_id("start the server"), query_id("restore")
    assert found == store.read() and found.counts() == (2, 2, 1)
    assert [found.grade("start the  server", doc_id) for doc_id in (FIRST, SECOND, THIRD)] == [0, 1, None]
    assert qrels(store) == [f"{name}\t{FIRST}\t0", f"{name}\t{SECOND}\t1", f"{other}\t{FIRST}\t1"]
    queries = [json.loads(line) for line in (store.folder / "queries.jsonl").read_text().splitlines()]
    assert queries == [{"_id": name, "text": "start the server"}, {"_id": other, "text": "restore"}]


def test_the_folder_is_a_collection_that_can_be_evaluated(store: JudgementStore, tmp_path: Path) -> None:
    """BM25 puts the one passage with these words first: 1 by hand where it is relevant, 0 where it is not."""
    store.judge("restore a date", "guide/backup.md#141-260", 1)
    store.judge("passwords of users", "notes/empty%20title.md", 0)
    corpus = midmask.Corpus.from_beir(store.folder)
    scores = midmask.evaluate("bm25", corpus, storage=tmp_path / "store", progress=False)
    assert scores.per_query("nDCG@10") == {query_id("restore a date"): 1.0, query_id("passwords of users"): 0.0}
    assert scores.artifact.result["corpus"] == "judgements"


def test_the_passages_are_those_of_the_collection_as_it_is_and_where_it_is(store, tmp_path: Path) -> None:
    store.judge("port", FIRST, 1)
    source = write_collection(tmp_path / "collection", extra=3) / "corpus.jsonl.gz"
    assert (store.folder / "corpus.jsonl.gz").read_bytes() == source.read_bytes()
    for doc_id in (FIRST, SECOND):
        store.judge("port", doc_id, None)
    assert store.read().counts() == (0, 0, 0) and qrels(store) == []
    assert (store.folder / "queries.jsonl").read_text() == "", "a withdrawn query is no query"
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert (moved / "judgements" / "corpus.jsonl.gz").read_bytes() == (moved / "collection" / source.name).read_bytes()


def judge_many(folder: Path, writer: int, count: int) -> None:
    store = JudgementStore(folder, folder / "collection")
    for number in range(count):
        store.judge(f"query {number} of {writer}", FIRST, number % 2)


def test_concurrent_writers_lose_nothing(store: JudgementStore) -> None:
    writers, count = 4, 25
    fork = multiprocessing.get_context("fork")
    own = [fork.Process(target=judge_many, args=(store.folder.parent, writer, count)) for writer in range(writers)]
    for one in own:
        one.start()
    for one in own:
        one.join()
    assert all(one.exitcode == 0 for one in own)
    wanted = {f"query {number} of {writer}": number % 2 for writer in range(writers) for number in range(count)}
    found = store.read()
    assert {text: found.grade(text, FIRST) for text in found.queries.values()} == wanted
    assert len(qrels(store)) == writers * count


def test_a_killed_writer_holds_no_lock(store: JudgementStore) -> None:
    """Killed in the midst of its work: what it had kept is there, and the next writer does not wait."""
    store.judge("port", FIRST, 1)
    writer = multiprocessing.get_context("fork").Process(target=judge_many, args=(store.folder.parent, 1, 10_000))
    writer.start()
    while store.read().counts()[0] < 5:
        assert writer.exitcode is None
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join()
    before = store.read()
    found = store.judge("after", SECOND, 1)
    assert (
        len(found.grades) == len(before.grades) + 1 == len(qrels(store))
        and found.grades.items() > before.grades.items()
    )


def test_what_cannot_be_kept_or_read_is_refused(store: JudgementStore, tmp_path: Path) -> None:
    for query, grade in (("  ", 1), ("port", 3)):
        with pytest.raises(UserError, match="a judgement has a query, and a grade of 1, 0 or None"):
            store.judge(query, FIRST, grade)
    assert store.read().counts() == (0, 0, 0)
    (tmp_path / "other").write_text("a file")
    with pytest.raises(UserError, match="the judgement cannot be written"):
        JudgementStore(tmp_path / "other", tmp_path).judge("port", FIRST, 1)
    store.judge("port", FIRST, 1)
    (store.folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\tb\n")
    with pytest.raises(UserError, match="the judgements cannot be read"):
        store.read()
