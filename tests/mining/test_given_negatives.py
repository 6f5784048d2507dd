"""Candidates from a file, held against the corpus, and a subset of queries."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.mining import given_negatives
from midmask.mining.aligned import Cursor, align
from midmask.mining.given_negatives import ReadNegativesConfig, read_negatives
from midmask.mining.query_subset import DrawQueriesConfig, draw_queries, draw_subset
from midmask.retrieve.selection import judged_queries
from tests.support.retrieve.collection import write_parts


@pytest.fixture
def corpus(tmp_path) -> Artifact:
    return write_parts(
        Place(str(tmp_path / "corpus")),
        docs=[(f"{row}", "", f"text {row}") for row in range(300)],
        queries=[(f"{row}", "x") for row in range(50)],
        qrels=[("train" if row % 5 else "dev", f"{row}", f"{row}", 1) for row in range(50)],
    )


def file_of(folder: Path, lines: list[dict[str, object]]) -> str:
    (folder / "hard.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "hard.jsonl")


def taken(out: Place) -> list[tuple[str, str, int, str]]:
    tables = [pq.read_table((out / "lists" / name).uri).to_pylist() for name in (out / "lists").names()]
    return [(row["query_id"], row["doc_id"], row["rank"], row["source"]) for rows in tables for row in rows]


def test_every_system_is_a_source_with_its_ranks(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(given_negatives, "QUERIES", 7)
    lines = [
        {"qid": row, "pos": [row], "neg": {"bm25": [row + 50, row + 51], "tas-b": [row + 99]}}
        for row in (31, 4, 22, 8, 15, 16, 23, 42, 3, 41)
    ]
    out = Place(str(tmp_path / "out"))
    result = read_negatives(ReadNegativesConfig(file=file_of(tmp_path, lines)), {"corpus": corpus}, out)
    assert result == {"systems": ["bm25", "tas-b"], "queries": 10, "candidates": 30, "refused": {}}
    expected = [
        (str(line["qid"]), str(doc), rank, system)
        for line in lines
        for system, docs in line["neg"].items()
        for rank, doc in enumerate(docs, start=1)
    ]
    assert sorted(taken(out)) == sorted(expected)
    config = ReadNegativesConfig(file=str(tmp_path / "hard.jsonl"), systems=("tas-b",))
    assert read_negatives(config, {"corpus": corpus}, Place(str(tmp_path / "one")))["systems"] == ["tas-b"]
    with pytest.raises(UserError, match=r"unknown system 'c'.* Known: bm25, tas-b"):
        read_negatives(config.model_copy(update={"systems": ("c",)}), {"corpus": corpus}, Place(str(tmp_path / "x")))
    cursors = [
        Cursor(iter([pq.read_table((out / "lists" / name).uri)]), name, pa.schema([("query_id", pa.string())]))
        for name in (out / "lists").names()
    ]
    assert len(cursors) == 2
    stretches = [[name for table in tables for name in table["query_id"].to_pylist()] for tables in align(cursors)]
    assert sorted(name for names in stretches for name in names) == sorted(row[0] for row in expected)
    for one, other in pairwise(stretches):
        assert not set(one) & set(other), "a query is torn apart"


def test_what_cannot_be_a_negative_is_counted_and_kept_to_be_looked_at(corpus, tmp_path):
    lines = [{"qid": 1, "pos": [1], "neg": {"a": [50, 1, 999, 50, 51]}}, {"qid": 777, "pos": [], "neg": {"a": [3]}}]
    config = ReadNegativesConfig(file=file_of(tmp_path, lines), unknown_ids="count")
    out = Place(str(tmp_path / "out"))
    result = read_negatives(config, {"corpus": corpus}, out)
    refused = {"positive of its line": "1", "repeated": "50", "unknown passage": "999", "unknown query": ""}
    assert result["refused"] == dict.fromkeys(refused, 1) and result["candidates"] == 2
    assert taken(out) == [("1", "50", 1, "a"), ("1", "51", 5, "a")]
    kept = [json.loads(line) for line in (out / "quarantine.jsonl").read().decode().splitlines()]
    assert {line["kind"]: line["doc_id"] for line in kept} == refused


@pytest.mark.parametrize(
    ("line", "said"),
    [({"qid": 1, "pos": [], "neg": {"a": [999]}}, "unknown passage '999' .query '1'.*take such ids out of the file"),
     ({"qid": 777, "pos": [], "neg": {"a": [3]}}, "unknown query '777'"),
     ({"qid": 2, "pos": [], "neg": {"a": [3]}}, "query '2' stands on two lines")],
)  # fmt: skip
def test_a_file_of_another_collection_is_refused(corpus, tmp_path, line, said):
    file = file_of(tmp_path, [{"qid": 2, "pos": [2], "neg": {"a": [3]}}, line])
    with pytest.raises(UserError, match=said):
        read_negatives(ReadNegativesConfig(file=file), {"corpus": corpus}, Place(str(tmp_path / "out")))


def test_a_table_that_is_not_sorted_is_refused():
    schema = pa.schema([("query_id", pa.string())])
    for pieces in (["b", "a"],), (["a", "b"], ["a"]):
        with pytest.raises(UserError, match=r"scores\.parquet: the rows are not sorted by query_id"):
            list(align([Cursor((pa.table({"query_id": piece}) for piece in pieces), "scores.parquet", schema)]))


def test_lists_are_read_a_little_at_a_time():
    """Two lists of 100 row groups, one of them at a coarser grain: no more of them is read than a stretch needs."""
    schema, taken_ = pa.schema([("query_id", pa.string())]), Counter[str]()

    def tables(name: str, size: int) -> Iterator[pa.Table]:
        for first in range(0, 300, size):
            taken_[name] += 1
            yield pa.table({"query_id": [f"q{row:03d}" for row in range(first, first + size)]})

    cursors = [Cursor(tables("fine", 3), "fine", schema), Cursor(tables("coarse", 10), "coarse", schema)]
    for number, (fine, coarse) in enumerate(align(cursors), start=1):
        assert fine["query_id"].to_pylist() == coarse["query_id"].to_pylist()
        assert taken_["fine"] <= number + 1 and taken_["coarse"] <= 2 + number * 3 // 10
    assert taken_ == {"fine": 100, "coarse": 30}


def test_a_subset_of_queries_is_drawn_once_and_saved(corpus, tmp_path):
    names = [f"q{row}" for row in range(1000)]
    ten, hundred = draw_subset(names, 10, 0), draw_subset(names[::-1], 100, 0)
    assert ten == hundred[:10] and len(set(hundred)) == 100
    assert not set(ten) & set(draw_subset(names, 10, 1)) or ten != draw_subset(names, 10, 1)
    low = sum(int(name[1:]) < 500 for name in draw_subset(names, 500, 3))
    assert abs(low - 250) < 5 * 7.9, "half of 500 draws, five deviations of the hypergeometric"
    out = Place(str(tmp_path / "out"))
    assert draw_queries(DrawQueriesConfig(count=12), {"corpus": corpus}, out) == {"queries": 12}
    saved = pq.read_table((out / "queries.parquet").uri)["query_id"].to_pylist()
    assert (out / "queries.txt").read().decode().splitlines() == saved
    assert set(saved) <= set(judged_queries(corpus, "train", judged="relevant")) and len(set(saved)) == 12
    with pytest.raises(UserError, match="queries = 41: there are 40 to draw from"):
        draw_queries(DrawQueriesConfig(count=41), {"corpus": corpus}, Place(str(tmp_path / "x")))
