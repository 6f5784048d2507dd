"""Faults and missing values in good collections: each is counted, quoted and quarantined, and the run goes on."""

import gzip
import json
import logging
import math
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask import Corpus
from midmask.corpora import chunks as pieces
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import json_lines, prepared, quarantine, rows, write, write_beir

DOC_FAULTS = {
    "malformed line": [b"{not json", b'["a", "list"]', b'{"title": "no id", "text": "x"}', b'{"_id": "n1", "text": 3}'],
    "invalid UTF-8": [b'{"_id": "n2", "text": "caf\xe9"}', b'{"_id": "n3", "text": "lone \\ud800 surrogate"}'],
    "empty passage": [b'{"_id": "n4", "title": "", "text": ""}', b'{"_id": "n5", "text": " \\t "}'],
    "oversized passage": [b'{"_id": "n6", "text": "' + b"x" * 301 + b'"}', b'{"_id": "n7", "text": "' + b"y" * 99_999],
    "duplicate id": [b'{"_id": "d0", "text": "another text"}'],
}
QREL_FAULTS = {
    "malformed line": [b"q0\td1", b"q0\td1\thigh", b"q0\td1\t1\t1\t1", b"q0\td3\tNaN", b"q1\t\t1"],
    "grade that is no whole number": [b"q0\td2\t0.5", b"q0\td2\t1e300"],
    "unknown id": [b"none\td0\t1", b"nobody\tnone\t1"],
    "duplicate judgement": [b"q0\td0\t1"],
}


def inject(path: Path, found: list[tuple[str, bytes]], places: list[int], *, packed: bool, first: int) -> Counter[str]:
    """Puts the bad lines at some lines of a file, from line `first` on; gives their number by kind."""
    lines = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).splitlines()
    for (_, line), place in zip(found, places, strict=False):
        lines.insert(first + place % (len(lines) - first), line)
    write(path, b"\n".join(lines) + b"\n")
    return Counter(kind for kind, _ in found)


def faults(kinds: dict[str, list[bytes]], most: int) -> st.SearchStrategy[list[tuple[str, bytes]]]:
    pairs = [(kind, line) for kind, lines in kinds.items() for line in lines]
    return st.lists(st.sampled_from(pairs), max_size=most, unique=True)


@settings(max_examples=20)
@given(
    *(faults(DOC_FAULTS, 8), faults(QREL_FAULTS, 4)),
    *(st.lists(st.integers(0, 1000), min_size=12, max_size=12), st.booleans(), st.booleans()),
)
def test_rows_read_are_rows_kept_and_rows_quarantined(docs, qrels, places, packed, small) -> None:
    """Plain and packed, in one piece and in many byte ranges."""
    end = ".gz" if packed else ""
    whole, pieces.PIECE_BYTES = pieces.PIECE_BYTES, 257 if small else pieces.PIECE_BYTES
    try:
        with TemporaryDirectory() as folder:
            root = Path(folder, "in")
            write_beir(root, packed=packed)
            wanted = inject(root / f"corpus.jsonl{end}", docs, places, packed=packed, first=1)
            wanted += inject(root / f"qrels/train.tsv{end}", qrels, places[8:], packed=packed, first=2)
            out = Path(folder, "out")
            result = prepared(f"beir:{root}", out, bad_rows_threshold=1.0, max_characters=300)
            check(result, wanted, out, root, packed=packed)
    finally:
        pieces.PIECE_BYTES = whole


def check(result: dict[str, object], wanted: Counter[str], out: Path, root: Path, *, packed: bool) -> None:
    assert result["rows_quarantined"] == dict(wanted)
    assert result["rows_read"] == 80 + wanted.total() and result["rows_kept"] == 80
    assert [row["doc_id"] for row in rows(out / "docs")] == [f"d{n}" for n in range(40)]
    assert len(rows(out / "queries.parquet")) == len(rows(out / "qrels.parquet")) == 20
    bad = quarantine(out)
    assert Counter(row["kind"] for row in bad) == wanted
    for row in bad:
        data = (root / row["file"]).read_bytes()
        line = (gzip.decompress(data) if packed else data).split(b"\n")[row["line"] - 1].decode(errors="replace")
        quoted = row["text"]
        if row["kind"] == "duplicate id":
            assert json.loads(line)["_id"] in quoted
        elif row["kind"] in ("unknown id", "duplicate judgement"):
            assert quoted == line
        else:
            assert line.startswith(quoted[:200]) or quoted.startswith("(over")


def test_above_the_threshold_it_stops_and_leaves_the_quarantine(tmp_path, caplog) -> None:
    write_beir(tmp_path / "in", passages=198)
    with open(tmp_path / "in/corpus.jsonl", "ab") as corpus:
        corpus.write(b"{broken\n")
    assert prepared(f"beir:{tmp_path}/in", tmp_path / "out")["rows_quarantined"] == {"malformed line": 1}
    with open(tmp_path / "in/corpus.jsonl", "ab") as corpus:
        corpus.write(b"{broken too\n")
        corpus.write(b"{and again\n")
    caplog.set_level(logging.WARNING)
    with pytest.raises(UserError) as error:
        prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    message = str(error.value)
    assert "3 of 201 rows of the docs are bad (1.49%, corpus.bad_rows_threshold = 0.01): 3 malformed line" in message
    assert "corpus.jsonl:199 malformed line: '{broken'" in message and "\n" not in message
    assert [row["line"] for row in quarantine(tmp_path / "out")] == [199, 200, 201]
    assert "corpus.jsonl:200" in caplog.text


def test_judgements_have_a_threshold_of_their_own(tmp_path: Path) -> None:
    """In a large corpus even judgements that are all wrong are a small share of all rows."""
    write_beir(tmp_path / "in", passages=3000)
    write(tmp_path / "in/qrels/train.tsv", b"query-id\tcorpus-id\tscore\nwrong\td0\t1\n")
    with pytest.raises(UserError, match=r"rows of the qrels are bad.*1 unknown id"):
        prepared(f"beir:{tmp_path}/in", tmp_path / "out")


def test_blank_lines_and_windows_files_are_no_faults(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    corpus = tmp_path / "in/corpus.jsonl"
    write(corpus, b"\xef\xbb\xbf" + corpus.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    assert prepared(f"beir:{tmp_path}/in", tmp_path / "out")["rows_quarantined"] == {}
    assert rows(tmp_path / "out/docs")[0]["doc_id"] == "d0"


def test_a_broken_gzip_stream_is_named(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", packed=True)
    corpus = tmp_path / "in/corpus.jsonl.gz"
    corpus.write_bytes(corpus.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"corpus\.jsonl\.gz: broken gzip"):
        prepared(f"beir:{tmp_path}/in", tmp_path / "out")


pd = pytest.importorskip("pandas")
NAN = math.nan


def with_row(folder: Path, row: Any) -> str:
    """Twenty good passages and queries, and one more passage."""
    write_beir(folder, passages=20)
    with open(folder / "corpus.jsonl", "ab") as stream:
        stream.write(json_lines([row]))
    return f"beir:{folder}"


MISSING_VALUES = [
    {"title": NAN, "text": "a text"},
    {"text": "a text"},
    {"title": "a text", "text": NAN},
    {"text": NAN, "contents": "a text"},
    {"text": "a text", "metadata": NAN},
    {"_id": NAN, "id": "n", "text": "a text"},
]


@pytest.mark.parametrize("row", MISSING_VALUES)
def test_nothing_in_a_field_is_a_missing_value(tmp_path: Path, row: dict[str, Any]) -> None:
    result = prepared(with_row(tmp_path / "in", {"_id": "n", **row}), tmp_path / "out")
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
    name = with_row(tmp_path / "in", row)
    result = prepared(name, tmp_path / "out", bad_rows_threshold=1.0, max_characters=300)
    assert result["rows_quarantined"] == {kind: 1}
    assert result["rows_read"] == result["rows_kept"] + 1 == 61
    (bad,) = quarantine(tmp_path / "out")
    assert reason in bad["reason"] and bad["line"] == 21
    with pytest.raises(UserError) as error:
        prepared(name, tmp_path / "again", max_characters=300)
    assert f"corpus.jsonl:21 {kind}" in str(error.value) and reason in str(error.value)


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
