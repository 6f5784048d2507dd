"""Values for nothing in every field and format, and reasons that name field and value of what is refused."""

import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from midmask import Corpus
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import json_lines, prepared, quarantine, rows, write, write_beir

pd = pytest.importorskip("pandas")
NAN = math.nan


def beir(folder: Path, *, corpus: Any = None, query: Any = None, qrels: str = "") -> str:
    """Twenty good passages and queries, and what is given."""
    write_beir(folder, passages=20)
    for file, row in (("corpus", corpus), ("queries", query)):
        with open(folder / f"{file}.jsonl", "ab") as stream:
            stream.write(b"" if row is None else json_lines([row]))
    with open(folder / "qrels/train.tsv", "a") as stream:
        stream.write(qrels)
    return f"beir:{folder}"


@pytest.mark.parametrize(
    "row",
    [
        {"title": NAN, "text": "a text"},
        {"text": "a text"},
        {"title": "a text", "text": NAN},
        {"text": NAN, "contents": "a text"},
        {"text": "a text", "metadata": NAN},
        {"_id": NAN, "id": "n", "text": "a text"},
    ],
)
def test_nothing_in_a_field_is_a_missing_value(tmp_path: Path, row: dict[str, Any]) -> None:
    result = prepared(beir(tmp_path / "in", corpus={"_id": "n", **row}), tmp_path / "out")
    assert result["rows_quarantined"] == {} and result["titled"] == 20
    assert rows(tmp_path / "out/docs")[-1] == {"doc_id": "n", "title": "", "text": "a text"}


PASSAGES: list[tuple[Any, str, str]] = [
    ({"_id": "n", "title": NAN, "text": NAN}, "empty passage", "text is nan"),
    ({"_id": "n", "body": "x"}, "malformed line", "no field text; its fields are ['_id', 'body']"),
    ({"_id": "n", "title": math.inf, "text": "x"}, "malformed line", "title is inf"),
    ({"_id": NAN, "text": "x"}, "malformed line", "_id is nan"),
    ({"_id": "", "text": "x"}, "malformed line", "id '' is empty"),
    ({"_id": 1.5, "text": "x"}, "malformed line", "_id is 1.5"),
    ({"_id": "a b", "text": "x"}, "white space in an id", "'a b'"),
    ({"_id": "n", "text": "x" * 301}, "oversized passage", "301"),
    ([1], "malformed line", "not a JSON object but [1]"),
]


@pytest.mark.parametrize(("row", "kind", "reason"), PASSAGES)
def test_a_refused_passage_names_field_and_value(tmp_path: Path, row: Any, kind: str, reason: str) -> None:
    name = beir(tmp_path / "in", corpus=row)
    result = prepared(name, tmp_path / "out", bad_rows_threshold=1.0, max_characters=300)
    assert result["rows_quarantined"] == {kind: 1}
    assert result["rows_read"] == result["rows_kept"] + 1 == 61
    (bad,) = quarantine(tmp_path / "out")
    assert reason in bad["reason"] and bad["line"] == 21
    with pytest.raises(UserError) as error:
        prepared(name, tmp_path / "again", max_characters=300)
    assert f"corpus.jsonl:21 {kind}" in str(error.value) and reason in str(error.value)


@pytest.mark.parametrize(
    ("line", "kind", "reason"),
    [
        ("q1\td5\t0.5", "grade that is no whole number", "the grade (column 3) is '0.5'"),
        ("q1\td5\tNaN", "malformed line", "the grade (column 3) is 'NaN'"),
        ("q1\t\t1", "malformed line", "id '' is empty"),
        ("q1\td5", "malformed line", "2 columns instead of 3"),
    ],
)
def test_a_refused_judgement_names_field_and_value(tmp_path: Path, line: str, kind: str, reason: str) -> None:
    result = prepared(beir(tmp_path / "in", qrels=f"{line}\n"), tmp_path / "out", bad_rows_threshold=1.0)
    assert result["rows_quarantined"] == {kind: 1} and reason in quarantine(tmp_path / "out")[0]["reason"]


def test_fractional_grades_are_counted_in_one_line_and_can_be_mapped(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_beir(folder)
    judged = [(f"q{n}", 0, f"d{n}", 0.5 if n < 9 else 0.25) for n in range(12)]
    write(folder / "qrels/test.tsv", layouts.lines(judged))
    with pytest.raises(UserError) as error:
        prepared(f"beir:{folder}", tmp_path / "out")
    line = str(error.value)
    assert "\n" not in line and "qrels/test.tsv:1 " in line
    assert "(column 4) is '0.5', not a whole number; 9 rows" in line and "'0.25', not a whole number; 3" in line
    command = line.partition("in the last column: ")[2].partition(". Mend")[0]
    subprocess.run(f"{command} && mv qrels/test.tsv.new qrels/test.tsv", shell=True, check=True, cwd=folder)
    result = prepared(f"beir:{folder}", tmp_path / "out", splits="official")
    assert result["rows_quarantined"] == {} and result["splits"]["test"] == {"queries": 12, "judgements": 12}
    grades = [row["grade"] for row in rows(tmp_path / "out/qrels.parquet") if row["split"] == "test"]
    assert grades == [1] * 9 + [0] * 3


def test_nothing_in_a_data_frame() -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "title": ["x", NAN], "text": ["one", "two"]})
    source: Any = Corpus.from_dataframe(frame, text="text", title="title", id="id").source
    assert source.documents == (("a", "x", "one"), ("b", "", "two"))
    for fields in ({"ids": [None]}, {"ids": [pd.NaT]}, {"ids": [pd.NA]}, {"ids": [NAN]}):
        with pytest.raises(UserError, match="cannot be an id"):
            Corpus.from_texts(["one"], **fields)
    with pytest.raises(UserError, match="titles, id '0': 3 is no string"):
        Corpus.from_texts(["one"], titles=[3])  # type: ignore[list-item]
