"""Lists of shards on disk, merged, and as a table."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from midmask.artifact import Place
from midmask.retrieve import ranked
from midmask.retrieve.merging import as_table, merge, read_found, read_seconds, write_found

NONE = (-np.inf, -1)


def lists(*queries: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    """What a shard found: (score, row) of each query, as its two arrays."""
    scores = np.array([[score for score, _ in query] for query in queries], np.float32)
    return scores, np.array([[row for _, row in query] for query in queries], np.int64)


FIRST = lists([(5.0, 0), (3.0, 2)], [(1.0, 1), NONE])
SECOND = lists([(4.0, 3), (3.0, 4)], [NONE, NONE])
PLACES = np.array([0, 1, 4, 2, 3])
"""Row 4's id comes before row 2's, so of equal scores it stands first."""


def pairs(found: tuple[np.ndarray, np.ndarray]) -> list[list[tuple[float, int]]]:
    return [list(zip(*each, strict=True)) for each in zip(*(part.tolist() for part in found), strict=True)]


@pytest.mark.parametrize("depth", [1, 3, 4])
def test_the_best_of_all_shards_with_ties_by_id_and_gaps_last(depth: int) -> None:
    expected = [[(5.0, 0), (4.0, 3), (3.0, 4), (3.0, 2)], [(1.0, 1), NONE, NONE, NONE]]
    for parts in ([FIRST, SECOND], [SECOND, FIRST]):
        assert pairs(merge(parts, PLACES, depth)) == [query[:depth] for query in expected]


def test_one_shard_is_cut_to_the_depth() -> None:
    assert pairs(merge([FIRST], PLACES, 1)) == [[(5.0, 0)], [(1.0, 1)]]


def test_a_file_of_a_shard_keeps_every_bit(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "shard.npz"))
    scores, rows = lists([(1 + 2**-23, 2**40), (-0.0, 7), NONE])
    write_found(place, (scores, rows), seconds=0.1)
    found = read_found(place)
    assert found[0].tobytes() == scores.tobytes() and found[1].tobytes() == rows.tobytes()
    assert (found[0].dtype, found[1].dtype) == (np.float32, np.int64)
    assert read_seconds(place) == 0.1


@pytest.mark.parametrize("read", [read_found, read_seconds])
def test_a_file_with_a_pickle_in_it_is_not_read(read: Callable[[Place], object], tmp_path: Path) -> None:
    place = Place(str(tmp_path / "shard.npz"))
    pickled = np.array([0.5], dtype=object)
    np.savez(str(place), scores=pickled, rows=pickled, seconds=pickled)
    with pytest.raises(ValueError, match="allow_pickle"):
        read(place)


def test_gaps_have_no_row_in_the_table_and_ranks_count_from_one() -> None:
    queries = pa.chunked_array([["q1"], ["q2", "q3"]])
    doc_ids = pa.array(["a", "b", "c"])
    found = lists([(9.0, 2), (8.0, 0), (7.0, 1)], [NONE, NONE, NONE], [(6.0, 1), NONE, NONE])
    table = as_table(found, queries, doc_ids)
    assert table.schema.names == ["query_id", "doc_id", "score", "rank"]
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("q1", "c", 9.0, 1), ("q1", "a", 8.0, 2), ("q1", "b", 7.0, 3), ("q3", "b", 6.0, 1),
    ]  # fmt: skip
    assert table.cast(ranked.SCHEMA).num_rows == 4


def test_the_passage_in_row_0_is_found_too() -> None:
    table = as_table(lists([(0.0, 0)]), pa.chunked_array([["q"]]), pa.array(["a"]))
    assert table["doc_id"].to_pylist() == ["a"]
