"""Packed rows against lists put end to end."""

import numpy as np
import pytest

from midmask.errors import UserError
from midmask.training import packing
from midmask.training.packing import PackedExamples
from tests.support.training.examples import all_passages, write_weights


def packed(ids: list[list[int]], group: int, length: int) -> tuple[list[list[int]], int]:
    """The slow way: groups end to end, cut into rows, the rest of each group thrown away and counted."""
    rows, dropped = [], 0
    for first in range(0, len(ids), group):
        flat = [token for row in ids[first : first + group] for token in row]
        rows += [flat[at : at + length] for at in range(0, len(flat) - length + 1, length)]
        dropped += len(flat) % length
    return rows, dropped


@pytest.mark.parametrize(("group", "length"), [(1000, 16), (1000, 64), (7, 50), (2, 90)])  # the last leaves groups out
def test_rows_are_passages_end_to_end(tokens, group, length, monkeypatch):
    monkeypatch.setattr(packing, "GROUP", group)
    _, ids = all_passages(tokens)
    expected, dropped = packed(ids, group, length)
    source = PackedExamples(tokens, "f", length).open()
    assert (source.count, source.dropped) == (len(expected), dropped)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(source.count), 2))
    text = source.read(rows, 0, 0)["passage"]
    assert [piece.tolist() for piece in text.pieces()] == [expected[row] for row in rows]
    assert text.lengths.tolist() == [length] * len(rows)


def test_term_weights_are_packed_with_their_tokens(tokens, tmp_path):
    source = PackedExamples(tokens, "f", 32, write_weights(tokens, tmp_path)).open()
    text = source.read(np.arange(0, source.count, 3), 0, 0)["passage"]
    np.testing.assert_array_equal(text.weights, text.flat / np.float32(4096))


def test_a_row_is_named_by_the_passage_it_begins_in(tokens):
    doc_ids, ids = all_passages(tokens)
    owner = [doc_id for doc_id, row in zip(doc_ids, ids, strict=True) for _ in row]
    source = PackedExamples(tokens, "f", 40).open()
    assert source.names(np.array([0, 3, 9])) == [owner[0], owner[120], owner[360]]
    with pytest.raises(UserError, match="tokens do not fill one packed row"):
        PackedExamples(tokens, "f", 100_000).open()
