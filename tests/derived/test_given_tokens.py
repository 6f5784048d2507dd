"""Rows that were tokenised elsewhere end up as our own tokenisation writes them, or are refused or counted."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Artifact, Place
from midmask.corpora import writer
from midmask.derived.given_tokens import ReadTokensConfig, read_tokens, tokens_content
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary
from tests.support.derived.documents import files
from tests.support.derived.token_files import tokenised_passages, write_token_file

MAX = 12


def write(folder: Path, rows: list[list[int]], name: str = "x.parquet", **columns: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"input_ids": pa.array(rows, pa.list_(pa.int64())), **columns})
    pq.write_table(table, folder / name, row_group_size=4)
    return folder


def run(folder: Path, inputs: dict[str, Artifact], out: Path, max_length: int = MAX) -> dict[str, Any]:
    config = ReadTokensConfig(folder=str(folder), max_length=max_length)
    return read_tokens(config, {"like": inputs["tokens"]}, Place(str(out)))


def rows_of(out: Path) -> tuple[list[str], list[list[int]]]:
    table = pa.concat_tables([pq.read_table(path) for path in sorted((out / "passages").iterdir())])
    return table["doc_id"].to_pylist(), table["ids"].to_pylist()


@pytest.fixture(scope="module")
def vocabulary(inputs) -> Vocabulary:
    return Vocabulary.of((inputs["tokens"].place / "tokenizer").local())


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_our_own_tokens_come_back_as_they_went(inputs, tmp_path, end):
    tokens = inputs["tokens"].place
    count = write_token_file(Place(f"{tmp_path}/given/all.{end}"), tokenised_passages(tokens))
    result = run(tmp_path / "given", inputs, tmp_path / "out", max_length=40)
    assert rows_of(tmp_path / "out") == rows_of(tokens.local())
    for name in ("lengths.npy", "tokenizer/tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tokens / name).read()
    assert result["passages"] == result["rows_read"] == count == 90
    assert (result["had_special_tokens"], result["rows_cut"], result["queries"]) == (True, 0, 0)
    assert pq.read_table(tmp_path / "out" / "queries.parquet").to_pylist() == []


inner = st.lists(st.integers(5, 100), max_size=2 * MAX)


@settings(max_examples=20)
@given(rows=st.lists(inner, min_size=1, max_size=11).filter(any), framed=st.booleans())
def test_rows_with_and_without_special_tokens_end_up_the_same(inputs, vocabulary, tmp_path_factory, rows, framed):
    folder = tmp_path_factory.mktemp("rows")
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    docid = [f"p{number}" for number in range(len(rows))]
    write(folder / "in", [[cls, *row, sep] if framed else row for row in rows], docid=docid)
    result = run(folder / "in", inputs, folder / "out")
    wanted = [(name, [cls, *row[: MAX - 2], sep]) for name, row in zip(docid, rows, strict=True) if row]
    assert list(zip(*rows_of(folder / "out"), strict=True)) == wanted
    assert np.load(folder / "out/lengths.npy").tolist() == [len(row) for _, row in wanted]
    empty = [docid[number] for number, row in enumerate(rows) if not row]
    put_aside = [json.loads(line) for line in (folder / "out/quarantine.jsonl").read_text().splitlines()]
    assert [line["doc_id"] for line in put_aside] == empty
    assert result["rows_quarantined"] == {"empty row": len(empty)}
    assert (result["rows_read"], result["rows_kept"]) == (len(rows), len(wanted))
    assert result["rows_cut"] == sum(len(row) > MAX - 2 for row in rows)
    assert result["had_special_tokens"] == framed


def test_rows_that_do_not_fit_the_vocabulary_or_disagree_about_special_tokens_are_refused(inputs, vocabulary, tmp_path):
    def refused(rows: list[list[int]], message: str) -> None:
        with pytest.raises(UserError, match=message):
            run(write(tmp_path / "in", rows), inputs, tmp_path / "out")

    size, pad, good = vocabulary.size, vocabulary.pad_id, [[7, 8]] * 6
    run(write(tmp_path / "last", [*good, [size - 1]]), inputs, tmp_path / "out")
    refused([*good, [9], [9, size, 9]], rf"x.parquet, row 7: token id {size}, but.*tokens.tokenizer=FOLDER")
    refused([*good, [-1]], "row 6: token id -1, but")
    refused([[7, pad]], f"row 0: token id {pad} is padding")
    refused([[], []], "there is no row with tokens in it")
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    both, without = [cls, 7, sep], [7, 8]
    torn = {6: [without] * 6 + [both], 5: [both] * 5 + [without], 1: [both, [cls, 7]], 2: [without, [], [7, sep]]}
    for row, rows in {**torn, 0: [[cls]]}.items():
        refused(rows, rf"x.parquet, row {row}: \[CLS\] and \[SEP\] at its ends")


def test_an_interrupted_reading_leaves_no_trace(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_ROWS", 4)
    monkeypatch.setattr(writer, "SHARD_GROUPS", 2)
    for number in range(3):
        write(tmp_path / "in", [[], *[[10 + number, 20 + row] for row in range(13)]], f"{number}.parquet")
    run(tmp_path / "in", inputs, tmp_path / "whole")
    third = tmp_path / "in/2.parquet"
    good = third.read_bytes()
    third.write_bytes(good[:-9])
    with pytest.raises(UserError, match=r"2\.parquet: it cannot be read"):
        run(tmp_path / "in", inputs, tmp_path / "out")
    assert len(list((tmp_path / "out/passages").iterdir())) == 3
    (tmp_path / "out/passages/00009.parquet.0a1b2c3d.draft").write_bytes(b"half a shard")
    third.write_bytes(good)
    run(tmp_path / "in", inputs, tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_folder_is_known_by_its_files_not_by_its_place(tmp_path):
    before = tokens_content(str(write(tmp_path / "a", [[7]])))
    assert tokens_content(shutil.copytree(tmp_path / "a", tmp_path / "b").as_uri()) == before
    assert tokens_content(str(write(tmp_path / "b", [[8]]))) != before
