"""Files of other contents than their format expects, and faults in good ones: named, or counted and quarantined."""

import bz2
import gzip
import io
import json
import logging
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask import Corpus
from midmask.corpora import chunks, nq
from midmask.corpora.assemble import prepare
from midmask.corpora.config import FORMATS, CorpusConfig, name_forms
from midmask.corpora.nq import parse_answers
from midmask.corpora.opening import BrokenFile
from midmask.corpora.reader import corpus_identity, judged_splits, open_corpus, recognise
from midmask.errors import UserError
from midmask.store.place import Place
from tests.support.corpora import layouts
from tests.support.corpora.collections import (
    contents,
    json_lines,
    prepared,
    quarantine,
    rows,
    write,
    write_beir,
    write_saved,
)
from tests.tools.fields import with_formats

DOCS = [{"_id": f"d{n}", "title": "", "text": f"passage, {n} of its é set"} for n in range(25)]
QUERIES = [{"_id": f"q{n}", "text": f"where is {n}"} for n in range(9)]
JUDGED = [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1} for n in range(9)]
TSV = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(9))
LINES, TABLE = json_lines(DOCS), pa.Table.from_pylist(DOCS)


def zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", data)
    return buffer.getvalue()


def parquet() -> bytes:
    pq.write_table(TABLE, buffer := io.BytesIO())
    return buffer.getvalue()


def collection(folder: Path) -> Path:
    write(folder / "corpus.jsonl", LINES)
    write(folder / "queries.jsonl", json_lines(QUERIES))
    write(folder / "qrels/test.tsv", TSV.encode())
    return folder


def refused(name: str) -> str:
    with pytest.raises(UserError) as error:
        open_corpus(CorpusConfig(name=name))
    assert "\n" not in str(error.value)
    return str(error.value)


NO_DATA = [
    ("corpus.jsonl", parquet(), "binary data"), ("corpus.jsonl", zipped(LINES), "binary data"),
    ("corpus.jsonl.gz", gzip.compress(gzip.compress(LINES)), "binary data"),
    ("corpus.jsonl", bz2.compress(LINES), "binary data"), ("qrels/test.tsv", TSV.encode("utf-16"), "or text in UTF-16"),
    ("queries.jsonl", b"\0\0\0\7\1" * 20, "binary data"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "data", "named"), NO_DATA, ids=range(len(NO_DATA)))
def test_what_is_no_text_is_named_in_every_file(tmp_path: Path, file: str, data: bytes, named: str) -> None:
    folder = collection(tmp_path / "in")
    (folder / file.removesuffix(".gz")).unlink()
    (folder / file).write_bytes(data)
    with pytest.raises(UserError, match=named) as error:
        prepared(f"beir:{folder}", tmp_path / "out")
    assert str(error.value).startswith(f"{folder}/{file}") and "\n" not in str(error.value)


OTHER_FORMS = {
    "an array": ("corpus.jsonl", json.dumps(DOCS).encode(), "not a JSON object"),
    "a web page": ("corpus.jsonl", b"<!DOCTYPE html>\n<html><title>404</title></html>\n", "Expecting value"),
    "a table": ("corpus.jsonl", layouts.lines([(row["_id"], row["text"]) for row in DOCS]), "Expecting value"),
    "nothing": ("corpus.jsonl", b" \n\n", "there is no passage in it"),
    "commas": ("qrels/test.tsv", TSV.replace("\t", ",").encode(), "its rows have 1 columns"),
}


@pytest.mark.parametrize("case", OTHER_FORMS)
def test_text_of_another_form_is_refused_by_its_rows(tmp_path: Path, case: str) -> None:
    file, data, named = OTHER_FORMS[case]
    folder = collection(tmp_path / "in")
    (folder / file).write_bytes(data)
    with pytest.raises(UserError, match=re.escape(named)) as error:
        prepared(f"beir:{folder}", tmp_path / "out")
    assert "\n" not in str(error.value)


def test_the_contents_and_not_the_name_say_whether_a_file_is_packed(tmp_path: Path) -> None:
    folder = collection(tmp_path / "in")
    (folder / "corpus.jsonl").rename(folder / "corpus.jsonl.gz")
    (folder / "queries.jsonl").write_bytes(gzip.compress(json_lines(QUERIES)))
    assert prepared(f"beir:{folder}", tmp_path / "out", splits="official")["rows_kept"] == 25 + 9 + 9


def test_judgements_with_a_header_alone_are_named(tmp_path: Path) -> None:
    """Recognition does not take the folder for texts instead."""
    folder = collection(tmp_path / "in")
    write(folder / "qrels/test.tsv", b"query-id\tcorpus-id\tscore\n")
    assert recognise(str(folder)) == f"beir:{folder}"
    line = refused(f"beir:{folder}")
    assert line.startswith(f"{folder}/qrels/test.tsv has a header and no rows")


def test_bad_first_rows_stay_bad_rows(tmp_path: Path) -> None:
    """A list, a broken object, an object without an id, before good ones; a NUL and a long line, too."""
    first = [b'["a", "list"]', b'{"_id": "cut', b'{"title": "x"}', b'{"_id": "n", "text": "\0"}', b"no JSON"]
    first += [b'{"_id": "long", "text": "' + b"x" * 99_999 + b'"}', b'{"metadata": {"a": 1}, "text": "no id"}']
    for number, line in enumerate(first):
        folder = collection(tmp_path / str(number))
        write(folder / "corpus.jsonl", line + b"\n" + LINES)
        result = prepared(f"beir:{folder}", tmp_path / "out", bad_rows_threshold=1.0)
        assert sum(result["rows_quarantined"].values()) == 1, line


STRAYS = {
    "README.txt": b"Judgements of three people, one pass each.\n", "LICENSE": b"free\n", ".DS_Store": b"\0\0\0\1Bud1",
    "__MACOSX/._x.txt": b"\0\5\26\7", "checksums.md5": b"d41d8cd9  x\n",
}  # fmt: skip
COLLECTIONS: dict[str, tuple[Callable[[Path], Any], dict[str, str]]] = {
    "beir": (write_beir, {"qrels/": "test.tsv"}), "texts": (layouts.write_texts, {"": "a.jsonl"}),
    "msmarco": (layouts.write_msmarco, {"": "queries.dev.tsv"}), "nq": (layouts.write_nq, {"": "nq-test.csv"}),
    "tripclick": (layouts.write_tripclick, {"benchmark/documents/": "docs_grp_00.txt", "benchmark/qrels/": "q"}),
    "hf": (write_saved, {"corpus/": "state.json", "qrels/": "test"}),
}  # fmt: skip
"""Format -> what writes a collection, and its folders of data with the name of a file in each."""


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_strays_change_nothing(tmp_path: Path, kind: str) -> None:
    write_collection, folders = COLLECTIONS[kind]
    write_collection(tmp_path / "clean/set")
    write_collection(tmp_path / "in/set")
    for folder, file in folders.items():
        leftovers = {f"._{file}": b"\0\5\26\7\0\2", f"{file}~": b"old\n", f"{file}.bak": b"old\n"}
        for name, data in {**STRAYS, **leftovers}.items():
            write(tmp_path / "in/set" / folder / name, data)
    clean, config = (CorpusConfig(name=f"{kind}:{tmp_path}/{folder}/set") for folder in ("clean", "in"))
    assert judged_splits(config) == judged_splits(clean) and corpus_identity(config) == corpus_identity(clean)
    assert prepared(config.name, tmp_path / "out") == prepared(clean.name, tmp_path / "wanted")
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")


@pytest.mark.parametrize("name", ["test.long.tsv", "readable.tsv", "noticed.tsv.gz"])
def test_a_split_of_other_contents_is_refused_and_not_passed_over(tmp_path: Path, name: str) -> None:
    write_beir(tmp_path / "in")
    write(tmp_path / "in/qrels" / name, b"Judgements of three people, one pass each.\n")
    with pytest.raises(UserError, match=rf"qrels/{name}: its rows have 7 columns"):
        judged_splits(CorpusConfig(name=f"beir:{tmp_path}/in"))


ROOT = Path(__file__).resolve().parents[2]


def test_the_guide_and_the_commands_name_all_formats() -> None:
    guide = ROOT / "docs" / "protocols.md"
    text = guide.read_text("utf-8")
    assert with_formats(text) == text, "type: make guide"
    assert all(f"| `{name}` |" in text for name in FORMATS)
    assert all(re.search(rf"\b{name}\b", name_forms()) for name in FORMATS)


@pytest.mark.parametrize("kind", [name for name, place in FORMATS.items() if place == "FOLDER" and name != "docs"])
def test_a_file_in_place_of_a_folder_is_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    with pytest.raises(UserError, match=rf"notes\.txt is a file; .* write docs:{tmp_path}/notes"):
        open_corpus(CorpusConfig(name=f"{kind}:{tmp_path}/notes.txt"))


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


def unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def inject(path: Path, found: list[tuple[str, bytes]], places: list[int], *, first: int) -> Counter[str]:
    """Puts the bad lines at some lines of a file, from line `first` on; gives their number by kind."""
    lines = unpacked(path).splitlines()
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
    """Plain and packed, in one block and in many."""
    end = ".gz" if packed else ""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "BLOCK_ROWS", 3 if small else chunks.BLOCK_ROWS)
        root, out = Path(folder, "in"), Path(folder, "out")
        write_beir(root, packed=packed)
        wanted = inject(root / f"corpus.jsonl{end}", docs, places, first=1)
        wanted += inject(root / f"qrels/train.tsv{end}", qrels, places[8:], first=2)
        result = prepared(f"beir:{root}", out, bad_rows_threshold=1.0, max_characters=300)
        assert result["rows_quarantined"] == dict(wanted)
        assert result["rows_read"] == 80 + wanted.total() and result["rows_kept"] == 80
        assert [row["doc_id"] for row in rows(out / "docs")] == [f"d{n}" for n in range(40)]
        assert len(rows(out / "queries.parquet")) == len(rows(out / "qrels.parquet")) == 20
        bad = quarantine(out)
        assert Counter(row["kind"] for row in bad) == wanted
        for row in bad:
            quoted, lines = row["text"], unpacked(root / row["file"]).split(b"\n")
            line = lines[row["line"] - 1].decode(errors="replace")
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
    {"title": NAN, "text": "a text"}, {"text": "a text"}, {"title": "a text", "text": NAN},
    {"text": NAN, "contents": "a text"}, {"text": "a text", "metadata": NAN}, {"_id": NAN, "id": "n", "text": "a text"},
]  # fmt: skip


@pytest.mark.parametrize("row", MISSING_VALUES)
def test_nothing_in_a_field_is_a_missing_value(tmp_path: Path, row: dict[str, Any]) -> None:
    result = prepared(with_row(tmp_path / "in", {"_id": "n", **row}), tmp_path / "out")
    assert result["rows_quarantined"] == {} and result["titled"] == 20
    assert rows(tmp_path / "out/docs")[-1] == {"doc_id": "n", "title": "", "text": "a text"}


PASSAGES: list[tuple[Any, str, str]] = [
    ({"_id": "n", "title": NAN, "text": NAN}, "empty passage", "neither a text nor a title"),
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


def test_fractional_grades_are_quoted_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_beir(folder)
    judged = [(f"q{n}", 0, f"d{n}", 0.5 if n < 9 else 0.25) for n in range(12)]
    write(folder / "qrels/test.tsv", layouts.lines(judged))
    with pytest.raises(UserError) as error:
        prepared(f"beir:{folder}", tmp_path / "out")
    line = str(error.value)
    assert "\n" not in line and "qrels/test.tsv:1 " in line
    assert "(column 4) is '0.5', not a whole number" in line and "12 grade that is no whole number" in line


def test_nothing_in_a_data_frame() -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "title": ["x", NAN], "text": ["one", "two"]})
    source: Any = Corpus.from_dataframe(frame, text="text", title="title", id="id").source
    assert source.documents == (("a", "x", "one"), ("b", "", "two"))
    for fields in ({"ids": [None]}, {"ids": [pd.NaT]}, {"ids": [pd.NA]}, {"ids": [NAN]}):
        with pytest.raises(UserError, match="cannot be an id"):
            Corpus.from_texts(["one"], **fields)
    with pytest.raises(UserError, match="titles, id '0': 3 is no string"):
        Corpus.from_texts(["one"], titles=[3])  # type: ignore[list-item]


WRITERS: dict[str, Callable[[Path], None]] = {
    "beir": write_beir, "msmarco": layouts.write_msmarco, "nq": layouts.write_nq, "tripclick": layouts.write_tripclick,
}  # fmt: skip

MISSING = [
    ("msmarco", "collection.tsv", "collection.tsv or collection.tsv.gz or corpus.tsv .* missing"),
    ("beir", "queries.jsonl", r"queries\.jsonl.* missing"),
    ("beir", "qrels/*", r"SPLIT\.tsv.* missing"),
    ("nq", "psgs_w100.tsv", r"psgs_w100\.tsv or psgs_w100\.tsv\.gz is missing"),
    ("nq", "nq-*", r"nq-test\.csv or the like is missing"),
    ("tripclick", "benchmark/documents/*", r"documents/docs_grp_\*\.txt is missing"),
]


@pytest.mark.parametrize(("kind", "missing", "wanted"), MISSING)
def test_what_is_missing_is_named_with_the_layout(tmp_path: Path, kind: str, missing: str, wanted: str) -> None:
    WRITERS[kind](tmp_path)
    for file in tmp_path.glob(missing):
        file.unlink()
    with pytest.raises(UserError, match=rf"{wanted}.*wanted layout: ") as error:
        open_corpus(CorpusConfig(name=f"{kind}:{tmp_path}"))
    assert "\n" not in str(error.value)


def test_a_query_in_two_files_is_no_bad_row_unless_its_text_differs(tmp_path: Path) -> None:
    layouts.write_msmarco(tmp_path / "in")
    with open(tmp_path / "in/queries.dev.tsv", "ab") as file:
        file.write(b"201\tanother text\n")  # twice in dev, once in dev.small
        file.write(b"0\twhere is word0\n")  # as train has it
    result = prepared(f"msmarco:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=0.2)
    assert result["rows_left_out"] == {"the same query in two files": 6 + 1}
    assert result["rows_quarantined"] == {"duplicate id": 1} and result["queries"] == 23
    (bad,) = quarantine(tmp_path / "out")
    assert (bad["file"], bad["line"], bad["text"]) == ("queries.dev.tsv", 9, "201\tanother text")


def test_bad_rows_of_nq_are_quarantined_by_kind(tmp_path: Path) -> None:
    layouts.write_nq(tmp_path / "in")
    with open(tmp_path / "in/nq-test.csv", "ab") as file:
        file.write(b"no list\tNew York\nno strings\t[1, 2]\ncode\t__import__('os').getcwd()\nno answers\t[]\n")
        file.write(b"blank answers\t['', ' ']\n\t['no question']\none column\n")
    result = prepared(f"nq:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)
    assert result["rows_quarantined"] == {"malformed line": 4, "no answer": 2, "empty query": 1}
    assert result["splits"]["test"]["answered"] == 4
    lines = {row["line"] for row in quarantine(tmp_path / "out")}
    assert lines == set(range(5, 12))


NO_LISTS = ["[" * 5000, "['a', " * 3000, "{'a'}", "'a'", "['a'] + ['b']", "[b'a']", '["a"' + " " * 100_000]


@pytest.mark.parametrize("text", NO_LISTS)
def test_answers_are_read_as_literals_only_and_not_without_bounds(text: str) -> None:
    with pytest.raises(ValueError):
        parse_answers(text)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_dprs_array_is_cut_alike_however_it_is_read(tmp_path, monkeypatch, chunk) -> None:
    monkeypatch.setattr(nq, "CHUNK", chunk)
    items = [{"question": "é ] } , [", "positive_ctxs": [{"psg_id": 3}]}, {"question": "b"}, 5, {"x": [[{}]]}]
    data = json.dumps(items, ensure_ascii=False, indent=1).encode()
    found = [record.data for record in nq.cut_array("dev", io.BytesIO(data), 1 << 16)]
    assert [data.decode().split("\t", 1)[0] for data in found] == ["dev-0", "dev-1", "dev-2", "dev-3"]
    assert [json.loads(data.decode().split("\t", 1)[1]) for data in found] == items
    assert list(nq.cut_array("dev", io.BytesIO(b" [ ] "), 99)) == []
    with pytest.raises(BrokenFile, match=r"object 3 .from 0. of the JSON array is broken or cut off"):
        list(nq.cut_array("dev", io.BytesIO(data[:-8]), 1 << 16))


GONE = {
    "beir": ("qrels/test.tsv", b"q2\tgone\t1\n"),
    "msmarco": ("qrels.dev.small.tsv", b"201\t0\tgone\t1\n"),
    "tripclick": ("benchmark/qrels/qrels.raw.head.test.txt", b"300\t0\tgone\t1\n"),
}
"""Format -> a file of judgements, and one of a passage that the collection lacks."""


def with_gone(kind: str, folder: Path) -> None:
    """A collection with such a judgement."""
    WRITERS[kind](folder)
    if kind == "nq":
        layouts.write_dpr_training(folder)
        file = folder / "biencoder-nq-train.json"
        items = json.loads(file.read_text())
        items[0]["positive_ctxs"].append({"psg_id": "gone"})
        items[0]["positive_ctxs"][0]["passage_id"] = "gone"
        file.write_text(json.dumps(items))
    else:
        file, line = folder / GONE[kind][0], GONE[kind][1]
        file.write_bytes(file.read_bytes() + line)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_judgement_of_a_missing_passage_stays_in_every_format(kind: str, tmp_path: Path) -> None:
    with_gone(kind, tmp_path / "in")
    corpus = layouts.read(f"{kind}:{tmp_path}/in", tmp_path / "out")
    assert "gone" in {row["doc_id"] for row in rows(tmp_path / "out/qrels.parquet")}
    assert rows(tmp_path / "out/missing_passages.parquet") == [{"doc_id": "gone"}]
    assert corpus.result["missing_passages"] == {"passages": 1, "judgements": 1}
    assert corpus.result["rows_quarantined"] == {}


def test_judgements_of_another_collection_are_refused(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    docs = [{"_id": f"other-{n}", "text": f"passage {n}"} for n in range(5)]
    write(tmp_path / "in/corpus.jsonl", json_lines(docs))
    with pytest.raises(UserError, match=r"none of the 20 judged passages .*'d\d+'"):
        prepared(f"beir:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)


def test_a_sample_of_the_passages_keeps_missing_ones_by_the_same_hash(tmp_path: Path) -> None:
    """What the sample leaves out is no missing passage, and goes with its judgements as before."""
    write_beir(tmp_path / "in", passages=40)
    with open(tmp_path / "in/qrels/test.tsv", "a") as judged:
        judged.write("".join(f"q2\tgone-{n}\t1\n" for n in range(40)))
    config = CorpusConfig(name=f"beir:{tmp_path}/in", splits="official", max_passages=20)
    result = prepare(config, {}, Place(str(tmp_path / "out")))
    known = {row["doc_id"] for row in rows(tmp_path / "out/docs")}
    left = {row["doc_id"] for row in rows(tmp_path / "out/qrels.parquet")}
    missing = {row["doc_id"] for row in rows(tmp_path / "out/missing_passages.parquet")}
    assert left - known == missing and all(name.startswith("gone-") for name in missing)
    assert 5 < len(missing) < 35 and result["missing_passages"]["passages"] == len(missing)
