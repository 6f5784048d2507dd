"""Files of other tools: written and read back, and what they cannot be."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.hard_negatives_file import HardNegatives, line_of, read_hard_negatives
from midmask.exchange.training_files import (
    Passage,
    TrainingRow,
    read_flag_embedding,
    read_tevatron,
    read_triples,
    read_tuples,
    write_flag_embedding,
    write_tevatron,
    write_triples,
    write_tuples,
)
from midmask.retrieve.lines import written_lines

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
ids = st.text("abcäß017-_:", min_size=1, max_size=6)
scores = st.floats(-100, 100, width=32)
passages = st.builds(Passage, texts, texts, ids)
SETTINGS = settings(deadline=None, max_examples=40)


def rows_of(passage: st.SearchStrategy[Passage]) -> st.SearchStrategy[list[TrainingRow]]:
    side = st.lists(passage, max_size=4).map(tuple)
    return st.lists(st.builds(TrainingRow, texts, side, side, ids), max_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@SETTINGS
@given(rows_of(st.builds(Passage, texts, st.just(""), st.just(""), scores)), st.booleans())
def test_flag_embedding_comes_back(folder: Path, rows: list[TrainingRow], zipped: bool) -> None:
    rows = [TrainingRow(row.query, row.positives, row.negatives) for row in rows]
    place = Place(str(folder / f"flag.jsonl{'.gz' if zipped else ''}"))
    write_flag_embedding(place, rows)
    assert list(read_flag_embedding(place)) == rows
    bare = [TrainingRow(row.query, row.positives, (Passage("x"),)) for row in rows]
    write_flag_embedding(place, bare)
    assert all(passage.score is None for row in read_flag_embedding(place) for passage in row.positives)


@SETTINGS
@given(rows_of(passages))
def test_both_versions_of_tevatron_come_back(folder: Path, rows: list[TrainingRow]) -> None:
    place = Place(str(folder / "tevatron.jsonl"))
    write_tevatron(place, rows)
    assert list(read_tevatron(place)) == rows
    write_tevatron(place, rows, texts=False)
    named = [
        [tuple(Passage(doc_id=one.doc_id) for one in side) for side in (row.positives, row.negatives)] for row in rows
    ]
    bare = [TrainingRow(row.query, *sides, query_id=row.query_id) for row, sides in zip(rows, named, strict=True)]
    assert list(read_tevatron(place)) == bare


@SETTINGS
@given(rows_of(passages))
def test_triples_hold_every_pair(folder: Path, rows: list[TrainingRow]) -> None:
    place = Place(str(folder / "qidpidtriples.tsv.gz"))
    write_triples(place, rows)
    expected = [
        (row.query_id, one.doc_id, other.doc_id) for row in rows for one in row.positives for other in row.negatives
    ]
    assert list(read_triples(place)) == expected


@SETTINGS
@given(rows_of(st.builds(Passage, texts)), st.integers(0, 4))
def test_tuples_come_back_and_what_is_too_short_is_counted(folder: Path, rows: list[TrainingRow], count: int) -> None:
    place = Place(str(folder / "tuples.parquet"))
    short = write_tuples(place, rows, count)
    full = [row for row in rows if len(row.negatives) >= count]
    assert short == len(rows) - len(full)
    expected = [TrainingRow(row.query, (one,), row.negatives[:count]) for row in full for one in row.positives]
    assert list(read_tuples(place)) == expected


def test_tuples_load_as_sentence_transformers_writes_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"anchor": ["q"], "positive": ["p"], "negative": ["n"]}), tmp_path / "x.parquet")
    assert list(read_tuples(Place(str(tmp_path / "x.parquet")))) == [TrainingRow("q", (Passage("p"),), (Passage("n"),))]
    pq.write_table(pa.table({"query": ["q"], "positive": ["p"]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"columns are \['query', 'positive'\]; wanted are columns of texts anchor"):
        list(read_tuples(Place(str(tmp_path / "x.parquet"))))


@SETTINGS
@given(st.lists(st.builds(HardNegatives, ids, st.lists(ids), st.dictionaries(texts, st.lists(ids)))), st.booleans())
def test_hard_negatives_come_back(folder: Path, entries: list[HardNegatives], zipped: bool) -> None:
    place = Place(str(folder / f"hard.jsonl{'.gz' if zipped else ''}"))
    with written_lines(place) as stream:
        stream.writelines(line_of(entry) for entry in entries)
    assert list(read_hard_negatives(place)) == entries
    if zipped:
        assert place.read()[4:8] == b"\0\0\0\0", "the time of writing makes equal content unequal"


def test_ids_of_the_released_file_are_numbers(tmp_path: Path) -> None:
    line = {"qid": 571, "pos": [17], "neg": {"bm25": [1, 2], "msmarco-distilbert-base-tas-b": ["3"]}}
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress((json.dumps(line) + "\n\n").encode()))
    assert list(read_hard_negatives(Place(str(tmp_path / "x.jsonl.gz")))) == [
        ("571", ["17"], {"bm25": ["1", "2"], "msmarco-distilbert-base-tas-b": ["3"]})
    ]


BAD = {
    read_hard_negatives: [
        '{"qid": 1, "pos": "17", "neg": {}}',
        '{"qid": 1, "pos": [1]}',
        '{"qid": 1, "pos": [1], "neg": [2]}',
        '{"qid": 1, "pos": [true], "neg": {}}',
        '{"qid": null, "pos": [], "neg": {}}',
        "[]",
        "{",
    ],
    read_flag_embedding: [
        '{"query": "q", "pos": "one text", "neg": []}',
        '{"query": "q", "pos": [], "neg": [1]}',
        '{"query": "q", "pos": ["a"], "neg": [], "pos_scores": [1]}',
        '{"query": "q", "pos": ["a"], "neg": [], "pos_scores": [], "neg_scores": []}',
        '{"query": "q", "pos": ["a"], "neg": [], "pos_scores": [NaN], "neg_scores": []}',
        '"q"',
    ],
    read_tevatron: [
        '{"query_id": 1, "query": "q", "positive_passages": {}, "negative_passages": []}',
        '{"query_id": 1, "query": "q", "positive_passages": [{"docid": 1}], "negative_passages": []}',
        '{"query_id": 1, "query_text": "q", "positive_document_ids": "12", "negative_document_ids": []}',
        '{"query": "q", "positive_passages": [], "negative_passages": []}',
    ],
    read_triples: ["1\t2", "1\t2\t3\t4", "1\t\t3", "1 2 3"],
}


@pytest.mark.parametrize(("reader", "line"), [(reader, line) for reader, lines in BAD.items() for line in lines])
def test_a_line_of_another_layout_is_named(tmp_path: Path, reader, line: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=r"x.jsonl, line 2: .*wanted is"):
        list(reader(Place(str(tmp_path / "x.jsonl"))))
