"""Packed rows against lists put end to end."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training import packing
from midmask.training.packing import PackedExamples
from tests.support.training.examples import all_passages


def packed(ids: list[list[int]], group: int, length: int) -> tuple[list[list[int]], int]:
    """The slow way: groups end to end, cut into rows, the rest of each group thrown away and counted."""
    rows, dropped = [], 0
    for first in range(0, len(ids), group):
        flat = [token for row in ids[first : first + group] for token in row]
        rows += [flat[at : at + length] for at in range(0, len(flat) - length + 1, length)]
        dropped += len(flat) % length
    return rows, dropped


@pytest.mark.parametrize("group", [1000, 7])
@pytest.mark.parametrize("length", [16, 50, 64])
def test_rows_are_passages_end_to_end(tokens: Place, group: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "GROUP", group)
    _, ids = all_passages(tokens)
    expected, dropped = packed(ids, group, length)
    source = PackedExamples(tokens, "f", length).open()
    assert (source.count, source.dropped) == (len(expected), dropped)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(source.count), 2))
    text = source.read(rows, 0, 0)["passage"]
    assert [piece.tolist() for piece in text.pieces()] == [expected[row] for row in rows]
    assert text.lengths.tolist() == [length] * len(rows)


def test_groups_without_a_whole_row_give_none(tokens: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "GROUP", 2)
    _, ids = all_passages(tokens)
    expected, _ = packed(ids, 2, 90)
    assert 0 < len(expected) < len(ids) / 2
    source = PackedExamples(tokens, "f", 90).open()
    text = source.read(np.arange(source.count), 0, 0)["passage"]
    assert [piece.tolist() for piece in text.pieces()] == expected


def test_term_weights_are_packed_with_their_tokens(tokens: Place, tmp_path: Path) -> None:
    """The weight of each token is its id over 1000."""
    (tmp_path / "weights").mkdir()
    for name in (tokens / "passages").names():
        ids = pq.read_table(f"{tokens}/passages/{name}")["ids"].to_pylist()
        weights = pa.array([[token / 1000 for token in row] for row in ids], pa.list_(pa.float32()))
        pq.write_table(pa.table({"weights": weights}), tmp_path / "weights" / name)
    source = PackedExamples(tokens, "f", 32, Place(str(tmp_path))).open()
    text = source.read(np.arange(0, source.count, 3), 0, 0)["passage"]
    assert text.weights is not None
    np.testing.assert_allclose(text.weights, text.flat / 1000, rtol=1e-6)


def test_too_few_tokens_are_refused(tokens: Place) -> None:
    with pytest.raises(UserError, match="tokens do not fill one packed row"):
        PackedExamples(tokens, "f", 100_000).open()


def test_a_row_is_named_by_the_passage_it_begins_in(tokens: Place) -> None:
    doc_ids, ids = all_passages(tokens)
    owner = [doc_id for doc_id, row in zip(doc_ids, ids, strict=True) for _ in row]
    source = PackedExamples(tokens, "f", 40).open()
    assert source.names(np.array([0, 3, 9])) == [owner[0], owner[120], owner[360]]
