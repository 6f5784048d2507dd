"""Records that are no lines of a text, such as rows of a table: read into blocks, their faults counted."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from midmask.corpora.chunks import END, ParsedBlock, check_values, kind_and_reason

T = TypeVar("T")


def record_blocks(
    records: Iterable[T],
    parse: Callable[[T], tuple[Any, ...]],
    quote: Callable[[T], str],
    *,
    rows: str,
    piece: int,
    max_characters: int,
) -> Iterator[pa.Table]:
    """The blocks of a piece, as `TextPiece.read` gives them; `line` counts the records, from 1.

    Args:
        parse: a record -> the row's own values (`chunks.BLOCKS`, without words and question). Raises Fault, or
            ValueError for a malformed record. quote: a record as text, for the quarantine. rows: "docs", "queries" or
            "qrels". piece: its number.
    """
    block, count = ParsedBlock(rows, piece), 0
    for count, record in enumerate(records, start=1):
        try:
            block.add(count, check_values(rows, parse(record), max_characters))
        except ValueError as error:
            block.add(count, None, *kind_and_reason(error), quote(record))
        if block.full:
            yield block.take()
    block.add(count, None, END)
    yield block.take()
