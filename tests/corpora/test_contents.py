"""Files that as a whole hold something else than their format expects, strays beside them, and the table of formats."""

import gzip
import io
import json
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.corpora import CorpusConfig, corpus_identity, judged_splits, open_corpus
from midmask.corpora.formats import FORMATS, name_forms
from midmask.corpora.guide import with_formats
from midmask.corpora.recognition import recognise
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import contents, json_lines, prepared, rows, write, write_beir
from tests.support.corpora.saved import write_saved

DOCS = [{"_id": f"d{n}", "title": "", "text": f"passage, {n} of its é set"} for n in range(25)]
QUERIES = [{"_id": f"q{n}", "text": f"where is {n}"} for n in range(9)]
JUDGED = [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1} for n in range(9)]
TSV = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(9))
NESTED = {f"q{n}": {f"d{n}": 1} for n in range(9)}
LINES, TABLE = json_lines(DOCS), pa.Table.from_pylist(DOCS)


def zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("data", data)
    return buffer.getvalue()


def parquet() -> bytes:
    pq.write_table(TABLE, buffer := io.BytesIO())
    return buffer.getvalue()


def arrow_stream() -> bytes:
    with pa.ipc.new_stream(buffer := io.BytesIO(), TABLE.schema) as writer:
        writer.write_table(TABLE)
    return buffer.getvalue()


CONVERTIBLE = {
    "array in one line": ("corpus.jsonl", json.dumps(DOCS).encode(), "JSON array"),
    "array, packed": ("corpus.jsonl.gz", json.dumps(DOCS, indent=1).encode(), "JSON array"),
    "lines of judgements": ("qrels/test.tsv", json_lines(JUDGED), "JSON object a line"),
    "judgements by query": ("qrels/test.tsv", json.dumps(NESTED).encode(), "key is 'q0'"),
    "dicts of Python": ("corpus.jsonl", "".join(f"{row}\n" for row in DOCS).encode(), "Python"),
    "UTF-16 without a mark": ("qrels/test.tsv", TSV.encode("utf-16-be"), "UTF-16BE"),
    "commas": ("qrels/test.tsv", TSV.replace("\t", ",").encode(), "commas"),
    "tabs": ("corpus.jsonl", layouts.lines([(row["_id"], row["text"]) for row in DOCS]), "tabs"),
    "no gzip": ("corpus.jsonl.gz", LINES, "no gzip"),
    "zip": ("corpus.jsonl", zipped(LINES), "zip"),
    "Parquet": ("corpus.jsonl", parquet(), "Parquet"),
    "Arrow": ("corpus.jsonl", arrow_stream(), "Arrow"),
}


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


@pytest.mark.parametrize("case", CONVERTIBLE)
def test_another_form_is_named_and_the_command_of_the_message_converts_it(tmp_path: Path, case: str) -> None:
    """The folder's name has a blank and a quotation mark. What is converted is the collection as it should be."""
    file, data, named = CONVERTIBLE[case]
    folder = collection(tmp_path / "it's here")
    (folder / file.removesuffix(".gz")).unlink()
    (folder / file).write_bytes(gzip.compress(data) if case == "array, packed" else data)
    line = refused(f"beir:{folder}")
    assert line.startswith(f"{folder}/{file} holds ") and named in line
    command = re.search(r"(?:Convert|Unpack|Rename) it: (.*)$", line)
    assert command
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command[1], shell=True, check=True, cwd="/", env=environment)
    result = prepared(f"beir:{folder}", tmp_path / "out", splits="official")
    assert result["rows_kept"] == 25 + 9 + 9 and not result["rows_quarantined"]
    wanted = [{"doc_id": row["_id"], "title": "", "text": row["text"]} for row in DOCS]
    assert rows(tmp_path / "out/docs") == wanted


NO_DATA = [
    ("corpus.jsonl", b"\n<!DOCTYPE html>\n<html><title>404</title></html>\n", "web page"),
    ("queries.jsonl", b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>\n', "XML"),
    ("qrels/test.tsv", b'{"error": "not found"}', "'error'"),
    ("corpus.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
    ("queries.jsonl", b"\0\0\0\7\1" * 20, "binary"),
    ("corpus.jsonl", b" \n\n", "is empty"),
]


@pytest.mark.parametrize(("file", "data", "named"), NO_DATA)
def test_what_cannot_be_converted_is_named_in_every_file(tmp_path: Path, file: str, data: bytes, named: str) -> None:
    folder = collection(tmp_path / "in")
    (folder / file).write_bytes(data)
    line = refused(f"beir:{folder}")
    assert line.startswith(f"{folder}/{file}") and named in line and "columns;" not in line


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
    "README.txt": b"Judgements of three people, one pass each.\n",
    "LICENSE": b"free\n",
    ".DS_Store": b"\0\0\0\1Bud1",
    "__MACOSX/._x.txt": b"\0\5\26\7",
    "checksums.md5": b"d41d8cd9  x\n",
}
COLLECTIONS: dict[str, tuple[Callable[[Path], Any], dict[str, str]]] = {
    "beir": (write_beir, {"qrels/": "test.tsv"}),
    "texts": (layouts.write_texts, {"": "a.jsonl"}),
    "trec": (layouts.write_trec, {"docs/": "a", "": "topics.txt"}),
    "msmarco": (layouts.write_msmarco, {"": "queries.dev.tsv"}),
    "nq": (layouts.write_nq, {"": "nq-test.csv"}),
    "tripclick": (layouts.write_tripclick, {"benchmark/documents/": "docs_grp_00.txt", "benchmark/qrels/": "q"}),
    "hf": (write_saved, {"corpus/": "state.json", "qrels/": "test"}),
}
"""Format -> what writes a collection, and its folders of data with the name of a file in each."""


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_strays_change_nothing_and_are_named(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    write_collection, folders = COLLECTIONS[kind]
    write_collection(tmp_path / "clean/set")
    write_collection(tmp_path / "in/set")
    for folder, file in folders.items():
        leftovers = {f"._{file}": b"\0\5\26\7\0\2", f"{file}~": b"old\n", f"{file}.bak": b"old\n"}
        for name, data in {**STRAYS, **leftovers}.items():
            write(tmp_path / "in/set" / folder / name, data)
    clean, config = (CorpusConfig(name=f"{kind}:{tmp_path}/{folder}/set") for folder in ("clean", "in"))
    caplog.set_level(logging.INFO)
    assert judged_splits(config) == judged_splits(clean) and corpus_identity(config) == corpus_identity(clean)
    assert prepared(config.name, tmp_path / "out") == prepared(clean.name, tmp_path / "wanted")
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")
    for folder, file in folders.items():
        begin = f"{tmp_path}/in/set/{folder}".rstrip("/") + ": not"
        (named,) = (line for line in caplog.messages if line.startswith(begin))
        assert f"._{file}" in named


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
    assert with_formats(text) == text, f"type: python -m midmask.corpora.guide {guide}"
    assert all(f"| `{name}` |" in text for name in FORMATS)
    assert all(re.search(rf"\b{name}\b", name_forms()) for name in FORMATS)


@pytest.mark.parametrize("kind", [name for name, one in FORMATS.items() if one.place == "FOLDER" and name != "docs"])
def test_a_file_in_place_of_a_folder_is_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    with pytest.raises(UserError, match=rf"notes\.txt is a file; .* write docs:{tmp_path}/notes"):
        open_corpus(CorpusConfig(name=f"{kind}:{tmp_path}/notes.txt"))
