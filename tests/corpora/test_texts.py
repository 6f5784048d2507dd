"""Folders of texts for pre-training: ids that are given or made, copies, and what is refused."""

import gzip
import json
from pathlib import Path

from tests.support.corpora.collections import json_lines, prepared, rows, write


def test_texts_of_all_files_are_passages_and_copies_are_counted(tmp_path: Path) -> None:
    texts = [{"text": f"text number {number}"} for number in range(200)]
    write(tmp_path / "in/b.jsonl", json_lines([*texts[:120], {"_id": "own", "title": "t", "text": "with an id"}]))
    (tmp_path / "in/a.jsonl.gz").write_bytes(gzip.compress(json_lines([*texts[120:], texts[0]])))
    write(tmp_path / "in/notes.txt", b"not read")
    result = prepared(f"texts:{tmp_path}/in", tmp_path / "out")
    found = {row["doc_id"]: row["text"] for row in rows(tmp_path / "out/docs")}
    assert result["passages"] == len(found) == 201 and result["rows_read"] == 202
    assert set(found.values()) == {row["text"] for row in texts} | {"with an id"} and found["own"] == "with an id"
    prepared(f"texts:{tmp_path}/in", tmp_path / "again")
    assert rows(tmp_path / "again/docs") == rows(tmp_path / "out/docs")


def test_lines_without_a_text_are_quarantined(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"text number {number}"}) for number in range(200)]
    write(tmp_path / "in/a.jsonl", "\n".join([*lines, '{"body": "no text"}', ""]).encode())
    result = prepared(f"texts:{tmp_path}/in", tmp_path / "out")
    assert result["rows_read"] - result["rows_kept"] == 1
