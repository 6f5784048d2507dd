"""Files that as a whole hold something else than their format expects: one line, and a command that converts them."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.corpora import CorpusConfig, open_corpus
from midmask.corpora.recognition import recognise
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import json_lines, prepared, rows, write

DOCS = [{"_id": f"d{n}", "title": "", "text": f"passage, {n} of its é set"} for n in range(25)]
QUERIES = [{"_id": f"q{n}", "text": f"where is {n}"} for n in range(9)]
JUDGED = [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1} for n in range(9)]
TSV = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(9))
LINES = json_lines(DOCS)


def text(value: Any, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent).encode()


def zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("data", data)
    return buffer.getvalue()


def parquet(records: list[dict[str, Any]]) -> bytes:
    pq.write_table(pa.Table.from_pylist(records), buffer := io.BytesIO())
    return buffer.getvalue()


def arrow_stream(records: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(records)
    with pa.ipc.new_stream(buffer := io.BytesIO(), table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


CONVERTIBLE = {
    "array in one line": ("corpus.jsonl", text(DOCS), "JSON array"),
    "array, packed": ("corpus.jsonl.gz", text(DOCS, 1), "JSON array"),
    "lines of judgements": ("qrels/test.tsv", json_lines(JUDGED), "JSON object a line"),
    "judgements by query": ("qrels/test.tsv", text({f"q{n}": {f"d{n}": 1} for n in range(9)}), "key is 'q0'"),
    "dicts of Python": ("corpus.jsonl", "".join(f"{row}\n" for row in DOCS).encode(), "Python"),
    "UTF-16 without a mark": ("qrels/test.tsv", TSV.encode("utf-16-be"), "UTF-16BE"),
    "commas": ("qrels/test.tsv", TSV.replace("\t", ",").encode(), "commas"),
    "tabs": ("corpus.jsonl", layouts.lines([(row["_id"], row["text"]) for row in DOCS]), "tabs"),
    "no gzip": ("corpus.jsonl.gz", LINES, "no gzip"),
    "zip": ("corpus.jsonl", zipped(LINES), "zip"),
    "Parquet": ("corpus.jsonl", parquet(DOCS), "Parquet"),
    "Arrow": ("corpus.jsonl", arrow_stream(DOCS), "Arrow"),
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
    assert rows(tmp_path / "out/docs") == [
        {"doc_id": row["_id"], "title": "", "text": row["text"]} for row in DOCS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "data", "named"),
    [
        ("corpus.jsonl", b"\n<!DOCTYPE html>\n<html><title>404</title></html>\n", "web page"),
        ("queries.jsonl", b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>\n', "XML"),
        ("qrels/test.tsv", b'{"error": "not found"}', "'error'"),
        ("corpus.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        ("qrels/test.tsv", b"%PDF-1.5\nq d 1\n", "PDF"),
        ("queries.jsonl", b"\0\0\0\7\1" * 20, "binary"),
        ("corpus.jsonl", b" \n\n", "is empty"),
    ],
)
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
