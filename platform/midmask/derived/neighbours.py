"""The passages before and after a passage under the same title, as its pseudo-queries (neighbouring passages)."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place


def neighbour_reader(docs: Place) -> Callable[[str, int, pa.RecordBatch], list[list[str]]]:
    """(shard, number of the first row, passages) -> the texts before and after each passage under its title.

    A passage without a title has none, and a passage in another shard is no neighbour. The titles and texts of a shard
    are held while its rows are read.
    """
    held: dict[str, tuple[list[str], list[str]]] = {}

    def read(name: str, first: int, rows: pa.RecordBatch) -> list[list[str]]:
        if name not in held:
            held.clear()
            with (docs / name).reading() as stream:
                table = pq.read_table(stream, columns=["title", "text"])
            held[name] = table["title"].to_pylist(), table["text"].to_pylist()
        titles, texts = held[name]
        return [_neighbours(titles, texts, row) for row in range(first, first + len(rows))]

    return read


def _neighbours(titles: list[str], texts: list[str], row: int) -> list[str]:
    """The texts before and after a row that have its title; without those that are empty."""
    around = [near for near in (row - 1, row + 1) if 0 <= near < len(texts)]
    return [
        texts[near].strip() for near in around if titles[row] and titles[near] == titles[row] and texts[near].strip()
    ]
