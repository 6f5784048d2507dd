"""Lists of shards on disk, merged, and as a table."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.retrieve.merging import merge, read_found, read_seconds, write_found

NONE = (-np.inf, -1)


def lists(*queries: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    """What a shard found: (score, row) of each query, as its two arrays."""
    scores = np.array([[score for score, _ in query] for query in queries], np.float32)
    return scores, np.array([[row for _, row in query] for query in queries], np.int64)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 12))
def test_merging_is_a_plain_sort_whatever_the_order_of_shards(seed: int, shards: int, depth: int):
    draw = np.random.default_rng(seed)
    scores = draw.choice(
        np.array([-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 0.5, 3e38], np.float32), (2, shards, 6)
    )
    rows = np.stack([draw.permutation(shards * 6).reshape(shards, 6) for _ in range(2)])
    rows[np.isneginf(scores)] = -1
    places = draw.permutation(shards * 6)
    parts = [(scores[:, shard], rows[:, shard]) for shard in range(shards)]
    merged = merge(parts, places, depth)
    for found in (merged, merge(parts[::-1], places, depth)):
        for query in range(2):
            pairs = zip(scores[query].ravel().tolist(), rows[query].ravel().tolist(), strict=True)
            best = sorted((pair for pair in pairs if pair[1] >= 0), key=lambda pair: (-pair[0], places[pair[1]]))[
                :depth
            ]
            missing = min(depth, shards * 6) - len(best)
            assert found[0][query].tolist() == [score for score, _ in best] + [-np.inf] * missing
            assert found[1][query].tolist() == [row for _, row in best] + [-1] * missing


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
