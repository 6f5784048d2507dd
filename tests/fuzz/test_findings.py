"""Files that once ended in a traceback, used gigabytes or took minutes, one by one. Each ends in one line."""

import contextlib
import gzip
import pickle
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place
from midmask.corpora import trec
from midmask.corpora.chunks import MALFORMED, NO_GRADE
from midmask.derived.given import read_file
from midmask.errors import UserError
from midmask.exchange.negatives_files import read_negatives_file
from midmask.exchange.pickles import read_pickle
from midmask.exchange.score_files import read_pickled_scores, read_score_lists
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.fuzz.refusing import refused
from tests.support.corpora.collections import prepared, write, write_beir
from tests.support.corpora.layouts import write_dpr_training, write_nq


@pytest.mark.parametrize("grade", ["inf", "-inf", "nan", "1e400", "9" * 400, "0.5", "²"])
def test_a_grade_that_is_no_whole_number_is_a_bad_row(tmp_path: Path, grade: str) -> None:
    write_beir(tmp_path / "in")
    with open(tmp_path / "in/qrels/train.tsv", "a") as qrels:
        qrels.write(f"q1\td5\t{grade}\n")
    result = prepared(f"beir:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)
    kind = NO_GRADE if grade == "0.5" else MALFORMED
    assert result["rows_quarantined"] == {kind: 1} and result["rows_read"] == 81


def damaged(data: bytes) -> bytes:
    """A gzip stream whose header is whole, and whose contents no inflater takes."""
    packed = bytearray(gzip.compress(data))
    packed[12:40] = b"\xff" * 28
    return bytes(packed)


@pytest.mark.parametrize("file", ["corpus.jsonl.gz", "qrels/train.tsv.gz"])
def test_a_damaged_gzip_stream_of_a_corpus_is_named(tmp_path: Path, file: str) -> None:
    write_beir(tmp_path / "in", packed=True)
    place = tmp_path / "in" / file
    place.write_bytes(damaged(gzip.decompress(place.read_bytes())))
    refused(lambda: prepared(f"beir:{tmp_path}/in", tmp_path / "out"), file, "broken gzip stream")


@pytest.mark.parametrize("read", [read_negatives_file, read_file])
def test_a_damaged_gzip_stream_of_lines_is_named(tmp_path: Path, read: Any) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(damaged(b'{"qid": 1, "pos": [], "neg": {}}\n' * 50))
    refused(lambda: read(Place(str(tmp_path / "x.jsonl.gz"))), "x.jsonl.gz", "broken gzip stream")


def test_dpr_json_that_is_not_utf8_names_the_file(tmp_path: Path) -> None:
    write_nq(tmp_path)
    write_dpr_training(tmp_path)
    file = next(tmp_path.glob("*.json*"))
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    write(file, data.replace(b"e", b"\xe9", 1))
    refused(lambda: prepared(f"nq:{tmp_path}", tmp_path / "out"), file.name, "UTF-8")
    write(file, data[:-30])
    refused(lambda: prepared(f"nq:{tmp_path}", tmp_path / "out"), file.name, "broken or cut off")


def test_an_id_with_white_space_is_a_bad_row_with_that_reason(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    with open(tmp_path / "in/corpus.jsonl", "a") as corpus:
        corpus.write('{"_id": "two words", "text": "a passage"}\n')
    result = prepared(f"beir:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)
    assert result["rows_quarantined"] == {"white space in an id": 1}
    refused(lambda: prepared(f"beir:{tmp_path}/in", tmp_path / "again"), "TREC run files cannot express white space")


def test_quotes_are_of_the_rows_that_are_counted_and_the_named_field_can_be_set(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", passages=3000)
    with open(tmp_path / "in/corpus.jsonl", "a") as corpus:
        corpus.write("{broken\n" * 5)
    write(tmp_path / "in/qrels/train.tsv", b"query-id\tcorpus-id\tscore\nwrong\td0\t1\n")
    line = refused(lambda: prepared(f"beir:{tmp_path}/in", tmp_path / "out"), "rows of the qrels", "wrong\\td0\\t1")
    assert "{broken" not in line
    (path,) = set(re.findall(r"[\w.]+\.bad_rows_threshold", line))
    assert override(RECIPES["mlm"](), {path: "0.5"}).corpus.bad_rows_threshold == 0.5


@pytest.mark.parametrize("part", ["<!--", "<a", "<TITLE>", "<TITLE><HL>", "</TITLE>", "<!-->", "<"])
def test_unclosed_markup_of_megabytes_is_read(part: str) -> None:
    """In a second or so. Where time grows with the square of the length it takes hours, and pytest's limit ends it."""
    text = part * (2_000_000 // len(part))
    is_tag = part.endswith(">")
    assert trec.parse_passage(f"<DOC><DOCNO>d</DOCNO>{text}</DOC>") == ("d", "", "" if is_tag else text)


def test_markup_is_taken_out_as_before() -> None:
    text = "<DOC><DOCNO> d1 </DOCNO><TITLE>a &amp; <b>b</b></TITLE><HL>c</HL><TEXT>x <!-- no --> y <!-- z</TEXT>"
    assert trec.parse_passage(f"{text}<TITLE>open</DOC>") == ("d1", "a &  b c", "x   y <!-- z")
    assert trec.parse_passage("<DOC><DOCNO>d</DOCNO>all <i>of</i> it<TITLE>t</TITLE></DOC>") == (
        "d",
        "t",
        "all  of  it",
    )


WRONG_COLUMNS = {
    "query_id": [[1.5], [b"\xff"], [None], [["q"]], [True]],
    "corpus_id": [["d"], [[1.5]], [[["d"]]], [{"a": 1}], [None], [3]],
    "score": [[["high"]], [3.0], ["x"], [[[1.0]]], [None], [[None]], [[float("nan")]], [[float("inf")]], [[1e39]]],
}


@pytest.mark.parametrize(
    ("name", "values"), [(name, one) for name, own in WRONG_COLUMNS.items() for one in own], ids=repr
)
def test_score_files_of_other_types_are_refused(tmp_path: Path, name: str, values: list[Any]) -> None:
    columns: dict[str, Any] = {"query_id": ["q"], "corpus_id": [["d"]], "score": [[1.0]], name: values}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    refused(lambda: read_score_lists(Place(str(tmp_path / "x.parquet"))), "x.parquet")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\xff" * 40 + b"PAR1"])
def test_damaged_parquet_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(data)
    refused(lambda: read_score_lists(Place(str(tmp_path / "x.parquet"))), "x.parquet", "cannot be read")


PICKLES = [{1.5: {"d": 1.0}}, {"q": {(1, 2): 1.0}}, {"q": {None: 1.0}}, {"q": {"d": 10**400}}, {10**5000: {"d": 1.0}},
           {"q": {"d": True}}, {"\ud800": {"d": 1.0}}, {"q": {b"d": 1.0}}]  # fmt: skip


@pytest.mark.parametrize("value", PICKLES, ids=range(len(PICKLES)))
def test_pickled_scores_of_other_types_are_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    refused(lambda: read_pickled_scores(Place(str(tmp_path / "x.pkl"))), "x.pkl")


MANY = struct.pack("<Q", 2**32 - 1)
BOMBS = [b"\x80\x02Nr\xff\xff\xff\x0f.", b"Np268435455\n.", b"B" + MANY[:4] + b".", b"X" + MANY[:4] + b".",
         b"\x8e" + MANY + b".", b"\x96" + MANY + b".", b"\x95" + MANY + b".", b"\x8b\xff\xff\xff\x7f."]  # fmt: skip


@pytest.mark.parametrize("data", BOMBS, ids=range(len(BOMBS)))
def test_a_few_bytes_of_a_pickle_take_no_memory(tmp_path: Path, data: bytes) -> None:
    """The first took 4 GB: it states a number for the memo, and nothing else is wrong with it."""
    (tmp_path / "x.pkl").write_bytes(data)
    tracemalloc.start()
    try:
        with contextlib.suppress(UserError):
            assert read_pickle(Place(str(tmp_path / "x.pkl"))) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_keys_of_a_pickle_are_plain(tmp_path: Path) -> None:
    """To hash 200,000 tuples inside of each other ends the process, with no exception to catch."""
    (tmp_path / "x.pkl").write_bytes(b"}" + b")" + b"\x85" * 200_000 + b"Ns.")
    refused(lambda: read_pickle(Place(str(tmp_path / "x.pkl"))), "a tuple as a key")
