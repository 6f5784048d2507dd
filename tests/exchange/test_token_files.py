"""Token files go out and come back; what others write is read in all its forms, and anything else is refused."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.token_files import read_token_files
from tests.support.derived.token_files import write_token_file

ROWS = [[5, 6, 7], [8], [], [9, 9]]


def read(folder: Path) -> tuple[list[str], list[list[int]]]:
    """All ids and rows of a folder; that blocks say which rows they are is checked on the way."""
    names: list[str] = []
    rows: list[list[int]] = []
    for file, blocks in itertools.groupby(read_token_files(Place(str(folder))), key=lambda block: block.file):
        place = 0
        assert (folder / file).is_file()
        for block in blocks:
            assert block.first == place
            place += len(block.lengths)
            names += block.doc_ids.to_pylist()
            flat = iter(block.flat.tolist())
            rows += [list(itertools.islice(flat, length)) for length in block.lengths.tolist()]
            assert not list(flat)
    return names, rows


tokens = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), max_size=9)


@settings(max_examples=60)
@given(rows=tokens, cuts=st.lists(st.integers(0, 9), max_size=3), end=st.sampled_from(["parquet", "arrow"]))
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], cuts: list[int], end: str
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    names = [f"d {number} é" for number in range(len(rows))]
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    kinds = [pa.string(), pa.list_(pa.int32())]
    tables = [
        pa.table([pa.array(names[a:b], kinds[0]), pa.array(rows[a:b], kinds[1])], names=["doc_id", "ids"])
        for a, b in itertools.pairwise(edges)
    ]
    assert write_token_file(Place(str(folder / f"x.{end}")), tables) == len(rows)
    assert read(folder) == (names, rows)


def stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def file(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


WRITERS: dict[str, tuple[str, Callable[[Path, pa.Table], None]]] = {
    "parquet": ("x.parquet", lambda path, table: pq.write_table(table, path, row_group_size=3)),
    "stream": ("data-00000-of-00001.arrow", stream),
    "file": ("x.arrow", file),
}
KINDS = [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.uint16()), pa.list_(pa.int8())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", WRITERS)
def test_lists_of_any_integers_are_read_from_any_layout(name: str, kind: pa.DataType, tmp_path: Path) -> None:
    end, write = WRITERS[name]
    columns = {"text": ["a", "b", "c", "d"], "id": [4, 3, 2, 1], "token_ids": pa.array(ROWS, kind)}
    write(tmp_path / end, pa.table(columns))
    assert read(tmp_path) == (["4", "3", "2", "1"], ROWS)


def test_rows_of_one_length_rows_that_are_null_and_slices(tmp_path: Path) -> None:
    fixed = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    file(tmp_path / "a.arrow", pa.table({"input_ids": fixed}))
    stream(tmp_path / "b.arrow", pa.table({"input_ids": ROWS, "_id": ["w", None, "y", "z"]}).slice(1))
    names = ["a.arrow:0", "a.arrow:1", "a.arrow:2", "b.arrow:0", "y", "z"]
    assert read(tmp_path) == (names, [[1, 2], [], [3, 4], *ROWS[1:]])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"ids": ROWS}, r"no list of token ids; its columns are ids \(list<.*int64>\); wanted are"),
    "texts": ({"input_ids": ["5 6 7"]}, r"no list of token ids; its columns are input_ids \(string\)"),
    "floats": ({"input_ids": [[0.5]]}, "no list of token ids"),
    "both": ({"input_ids": ROWS, "token_ids": ROWS}, "both input_ids and token_ids"),
    "a missing id": ({"input_ids": [[5], [5, None]]}, r"x.parquet: a token id is missing \(null\) .*rows 0 to 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_list_of_ids_is_refused(case: str, tmp_path: Path) -> None:
    columns, message = REFUSED[case]
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=message):
        read(tmp_path)


def test_no_files_half_files_and_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there are no token files in it; wanted are \.parquet or \.arrow"):
        read(tmp_path / "nowhere")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(UserError, match="name the folder of one, such as its train/"):
        read(tmp_path)
    for end, write in WRITERS.values():
        write(tmp_path / end, pa.table({"input_ids": ROWS}))
        (tmp_path / end).write_bytes((tmp_path / end).read_bytes()[:-40])
        with pytest.raises(UserError, match=rf"{end}: it cannot be read \("):
            read(tmp_path)
        with pytest.raises(UserError, match="it cannot be read"):
            read(tmp_path / end)
        (tmp_path / end).unlink()
