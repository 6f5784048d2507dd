"""What is sent to pgvector, and when ranked lists are the same; the server itself: tests/system/exchange/pgvector."""

import numpy as np
import pyarrow as pa
import pytest

from midmask.errors import UserError
from midmask.exchange.pgvector.rows import MOST_WORDS, encode_rows
from midmask.exchange.pgvector.upload import is_same
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views


def test_texts_and_vectors_that_pgvector_cannot_store() -> None:
    """A NUL character has a stand-in; more words than it holds are refused, with the passage's name."""
    passage = pa.table({"doc_id": ["a"], "title": pa.array([None], pa.string()), "text": ["one\0two"]})
    written = encode_rows(passage, Views(np.ones((1, 2), np.float32), None))
    assert "one\ufffdtwo".encode() in written and b"one\0two" not in written
    many = SparseRows.top(np.ones((1, MOST_WORDS + 1), np.float32), None)
    with pytest.raises(UserError, match=r"passage 'a' has 16,001 words"):
        encode_rows(passage, Views(None, many))


@pytest.mark.parametrize(
    ("own", "theirs", "same"),
    [
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("b", 2.0)], True),
        ([("a", 3.0), ("b", 2.0), ("c", 2.0)], [("a", 3.0), ("c", 2.0), ("b", 2.0)], True),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("c", 2.0)], True),
        ([("a", 3.0), ("b", 2.0)], [("b", 3.0), ("a", 2.0)], False),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("b", 2.1)], False),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0)], False),
        ([], [], True),
    ],
)
def test_lists_are_the_same_but_for_ties(own, theirs, same: bool) -> None:
    assert is_same(own, theirs) is same
