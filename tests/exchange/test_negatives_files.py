"""Published files of negatives and scores: one small file in each layout, and what they cannot be."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.exchange.hard_negatives_file import HardNegatives, line_of
from midmask.exchange.negatives_files import read_negatives_file
from midmask.exchange.score_files import LIST, read_scores_file
from midmask.mining.given_negatives import ReadNegativesConfig, read_negatives
from midmask.retrieve.lines import write_lines
from midmask.teacher.given_scores import ReadScoresConfig, read_scores
from tests.support.retrieve.collection import write_parts


def passages(*ids: object) -> list[dict[str, Any]]:
    return [{"docid": one, "title": "a title", "text": f"text of {one}"} for one in ids]


NEGATIVES: dict[str, Any] = {
    "hard negatives": {"qid": 7, "pos": [1], "neg": {"bm25": [2, 3]}},
    "tevatron": {"query_id": "7", "positive_passages": passages("1"), "negative_passages": passages("2", "3")},
    "tevatron2": {"query_id": "7", "positive_document_ids": ["1"], "negative_document_ids": ["2", "3"]},
    "simlm": {
        "query_id": "7",
        "query": "a query",
        "positives": {"doc_id": ["1"], "score": [2.5]},
        "negatives": {"doc_id": ["2", "3"], "score": [0.5, -1.0]},
    },
}

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
ids = st.text("abcäß017-_:", min_size=1, max_size=6)

SYSTEMS = {"hard negatives": "bm25", "tevatron": "tevatron", "tevatron2": "tevatron2", "simlm": "simlm"}


def saved(path: Path, text: str) -> Place:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return Place(str(path))


@settings(max_examples=40)
@given(st.lists(st.builds(HardNegatives, ids, st.lists(ids), st.dictionaries(texts, st.lists(ids)))), st.booleans())
def test_hard_negatives_come_back(tmp_path_factory, entries, zipped) -> None:
    place = Place(str(tmp_path_factory.mktemp("hard") / f"hard.jsonl{'.gz' if zipped else ''}"))
    with write_lines(place) as stream:
        stream.writelines(line_of(entry) for entry in entries)
    assert list(read_negatives_file(place)) == entries
    if zipped:
        assert place.read()[4:8] == b"\0\0\0\0", "the time of writing makes equal content unequal"


@pytest.mark.parametrize("layout", NEGATIVES)
def test_negatives_of_each_layout(layout: str, tmp_path: Path) -> None:
    place = saved(tmp_path / "x.jsonl.gz", json.dumps(NEGATIVES[layout]) + "\n")
    assert list(read_negatives_file(place)) == [("7", ["1"], {SYSTEMS[layout]: ["2", "3"]})]


@pytest.mark.parametrize("ending", ["tsv", "txt", "tsv.gz"])
def test_negatives_as_lists_of_ids(ending: str, tmp_path: Path) -> None:
    place = saved(tmp_path / f"train_negs.{ending}", "7\t2,3\n\n8\t1\n")
    assert list(read_negatives_file(place)) == [("7", [], {"lists": ["2", "3"]}), ("8", [], {"lists": ["1"]})]


BAD_NEGATIVES = [
    '{"qid": 1, "pos": "17", "neg": {}}',
    '{"qid": 1, "pos": [1], "neg": [2]}',
    '{"qid": 1, "pos": [true], "neg": {}}',
    '{"qid": null, "pos": [], "neg": {}}',
    "[]",
    '{"query": "a", "pos": ["text"], "neg": ["text"]}',
    '{"query_id": 1, "documents": []}',
    '{"query_id": 1, "positive_passages": [{"text": "x"}], "negative_passages": []}',
    '{"query_id": 1, "positives": {"doc_id": "12"}, "negatives": {"doc_id": []}}',
]


@pytest.mark.parametrize("line", BAD_NEGATIVES)
def test_a_line_of_negatives_that_cannot_be_read_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.jsonl, line 2: .*wanted is") as error:
        list(read_negatives_file(saved(tmp_path / "x.jsonl", f"\n{line}\n")))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["7 2,3", "7\t2,,3", "\t2", "7\t"])
def test_a_line_of_lists_that_cannot_be_read_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.tsv, line 2: wanted is a query's id, a tab"):
        list(read_negatives_file(saved(tmp_path / "x.tsv", f"8\t1\n{line}\n")))


EXPECTED = [("7", "1", 2.5), ("7", "2", 0.5), ("7", "3", -1.0)]
LISTS = {"query_id": "7", "corpus_id": ["1", "2", "3"], "score": [2.5, 0.5, -1]}


def write_scores(folder: Path, ending: str) -> Place:
    """The same three scores in each layout."""
    path = folder / f"scores.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist([LISTS], schema=LIST), path)
    elif ending == "pkl":
        path.write_bytes(pickle.dumps({7: {1: 2.5, 2: 0.5, 3: -1.0}}))
    elif ending == "simlm.jsonl.gz":
        return saved(path, json.dumps(NEGATIVES["simlm"]))
    elif ending == "jsonl":
        return saved(path, json.dumps(LISTS))
    else:
        return saved(path, "7\t1\t2.5\n7 2 [0.5]\n7\t3\t-1\n")
    return Place(str(path))


@pytest.mark.parametrize("ending", ["parquet", "pkl", "jsonl", "simlm.jsonl.gz", "tsv", "txt.gz"])
def test_scores_of_each_layout(ending: str, tmp_path: Path) -> None:
    assert list(read_scores_file(write_scores(tmp_path, ending))) == EXPECTED


BAD_SCORES = {
    "x.tsv": ("7 1", "line 2: wanted is a query, a passage and a score, found '7 1'"),
    "y.tsv": ("7 1 high", "line 2: wanted is a query, a passage and a score"),
    "z.tsv": ("7 1 nan", "nan is not a finite score"),
    "x.jsonl": ('{"query_id": 7, "corpus_id": [1, 2], "score": [1]}', "line 2: query 7 has not one score for each"),
    "y.jsonl": ('{"query_id": 7, "corpus_id": "12", "score": [1, 2]}', "its ids or scores are no list; wanted"),
    "z.jsonl": ('{"query_id": 7, "positives": {"doc_id": [1]}, "negatives": {}}', "line 2: "),
}


@pytest.mark.parametrize("name", BAD_SCORES)
def test_a_line_of_scores_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    line, message = BAD_SCORES[name]
    with pytest.raises(UserError) as error:
        list(read_scores_file(saved(tmp_path / name, f"\n{line}\n")))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_steps_read_them(tmp_path: Path) -> None:
    """Negatives by query and rank, scores by query and passage, of a corpus that holds their ids."""
    docs = [(str(number), "", f"text {number}") for number in range(1, 4)]
    corpus = write_parts(Place(str(tmp_path / "c")), docs=docs, queries=[("7", "a")], qrels=[("train", "7", "1", 1)])
    inputs: dict[str, Artifact] = {"corpus": corpus}
    file = saved(tmp_path / "x.jsonl", json.dumps(NEGATIVES["tevatron"]))
    out = Place(str(tmp_path / "n"))
    result = read_negatives(ReadNegativesConfig(file=str(tmp_path / "x.jsonl")), inputs, out)
    assert (result["systems"], result["candidates"], file.exists()) == (["tevatron"], 2, True)
    rows = pq.read_table(tmp_path / "n" / "lists" / "00000.parquet").select(["query_id", "doc_id", "rank"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("7", "2", 1), ("7", "3", 2)]
    write_scores(tmp_path, "tsv")
    config = ReadScoresConfig(file=str(tmp_path / "scores.tsv"))
    assert read_scores(config, inputs, Place(str(tmp_path / "s")))["pairs"] == 3
