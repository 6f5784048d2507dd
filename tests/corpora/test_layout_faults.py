"""What is missing or wrong in a collection's files: refused by name with the layout, or quarantined and counted."""

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from midmask.artifact import Place
from midmask.corpora import CorpusConfig, dpr_json, open_corpus, prepare
from midmask.corpora.gzipped import BrokenFile
from midmask.corpora.nq import parse_answers
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import json_lines, prepared, quarantine, rows, write, write_beir
from tests.support.corpora.saved import save_splits, write_saved

WRITERS: dict[str, Callable[[Path], None]] = {
    "beir": write_beir,
    "trec": layouts.write_trec,
    "msmarco": layouts.write_msmarco,
    "nq": layouts.write_nq,
    "tripclick": layouts.write_tripclick,
}


MISSING = [
    ("msmarco", "collection.tsv", "collection.tsv or collection.tsv.gz or corpus.tsv .* missing"),
    ("msmarco", "qrels.*", r"qrels\..* is missing"),
    ("beir", "queries.jsonl", r"queries\.jsonl.* missing"),
    ("beir", "qrels/*", r"SPLIT\.tsv.* missing"),
    ("trec", "docs/*", "docs/.*is missing"),
    ("trec", "topics*", "topics.*is missing"),
    ("nq", "psgs_w100.tsv", r"psgs_w100\.tsv or psgs_w100\.tsv\.gz is missing"),
    ("nq", "nq-*", r"nq-test\.csv or the like is missing"),
    ("tripclick", "benchmark/documents/*", r"documents/docs_grp_\*\.txt missing"),
]


@pytest.mark.parametrize(("kind", "missing", "wanted"), MISSING)
def test_what_is_missing_is_named_with_the_layout(tmp_path: Path, kind: str, missing: str, wanted: str) -> None:
    WRITERS[kind](tmp_path)
    for file in tmp_path.glob(missing):
        file.unlink()
    with pytest.raises(UserError, match=rf"{wanted}.*wanted layout: ") as error:
        open_corpus(CorpusConfig(name=f"{kind}:{tmp_path}"))
    assert "\n" not in str(error.value)


def test_titles_out_of_order_are_refused_and_strays_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    layouts.write_rocketqa(tmp_path / "in")
    texts, titles = ((tmp_path / "in" / f"{name}.txt").read_bytes() for name in ("para", "para.title"))
    caplog.set_level(logging.WARNING)

    def read(texts: list[bytes], titles: list[bytes]) -> None:
        write(tmp_path / "in/para.txt", b"".join(texts))
        write(tmp_path / "in/para.title.txt", b"".join(titles))
        prepared(f"msmarco:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)

    own, named = texts.splitlines(keepends=True), titles.splitlines(keepends=True)
    read([line for line in own if not line.startswith(b"2")], named)
    assert {row["doc_id"]: row["title"] for row in rows(tmp_path / "out/docs")}["41"] == "Title 41"
    assert "para.title.txt: titles without a passage in para.txt: 11" in caplog.text
    with pytest.raises(UserError, match=r"para\.title\.txt, line 2: title 0 stands after 1; sort"):
        read(own, [named[1], named[0], *named[2:]])
    with pytest.raises(UserError, match=r"passage 2 stands after passage 19.*sort -n"):
        read(sorted(own), named)  # as text, not as numbers: 0, 1, 10, …


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
    monkeypatch.setattr(dpr_json, "CHUNK", chunk)
    items = [{"question": "é ] } , [", "positive_ctxs": [{"psg_id": 3}]}, {"question": "b"}, 5, {"x": [[{}]]}]
    data = json.dumps(items, ensure_ascii=False, indent=1).encode()
    found = [record.data for record in dpr_json.Items("dev")(io.BytesIO(data), None, 1 << 16)]
    assert [data.decode().split("\t", 1)[0] for data in found] == ["dev-0", "dev-1", "dev-2", "dev-3"]
    assert [json.loads(data.decode().split("\t", 1)[1]) for data in found] == items
    assert list(dpr_json.Items("dev")(io.BytesIO(b" [ ] "), None, 99)) == []
    with pytest.raises(BrokenFile, match=r"object 3 .from 0. of the JSON array is broken or cut off"):
        list(dpr_json.Items("dev")(io.BytesIO(data[:-8]), None, 1 << 16))


GONE = {
    "beir": ("qrels/test.tsv", b"q2\tgone\t1\n"),
    "msmarco": ("qrels.dev.small.tsv", b"201\t0\tgone\t1\n"),
    "trec": ("qrels.txt", b"401 0 gone 2\n"),
    "tripclick": ("benchmark/qrels/qrels.raw.head.test.txt", b"300\t0\tgone\t1\n"),
}
"""Format -> a file of judgements, and one of a passage that the collection lacks."""


def with_gone(kind: str, folder: Path) -> None:
    """A collection with such a judgement."""
    if kind == "hf":
        write_saved(folder)
        judged = {"query-id": ["q0", "q1"], "corpus-id": ["d0", "gone"], "score": [1.0, 1.0]}
        save_splits(folder / "qrels", {"test": pa.table(judged)})
        return
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


@pytest.mark.parametrize("kind", [*WRITERS, "hf"])
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
    with pytest.raises(UserError, match=r"none of the 20 judged passages .*'d\d+', the collection has 'other-0'"):
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
