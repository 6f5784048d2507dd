"""Lists of passages by query, end to end in arrays, each passage with a teacher's score if there is one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.arrays import Floats
from midmask.artifact import Place
from midmask.training.plan import Rows
from midmask.training.table import TokenTable


@dataclass(frozen=True)
class Lists:
    """Passages (rows of the tokens) of each query: list q is values[offsets[q] : offsets[q + 1]]."""

    offsets: Rows
    values: Rows
    scores: Floats | None = None

    @staticmethod
    def of(query: Rows, passage: Rows, count: int) -> "Lists":
        order = np.argsort(query, kind="stable")
        return Lists(np.searchsorted(query[order], np.arange(count + 1)), passage[order])

    @property
    def query(self) -> Rows:
        """The query of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def without(self, others: "Lists") -> "Lists":
        """The same lists less the passages that the other lists hold for the query."""
        width = 1 + max(self.values.max(initial=0), others.values.max(initial=0))
        kept = ~np.isin(self.query * width + self.values, others.query * width + others.values)
        return Lists.of(self.query[kept], self.values[kept], len(self.offsets) - 1)

    def __getitem__(self, query: int) -> Rows:
        return self.values[self.offsets[query] : self.offsets[query + 1]]

    def scores_of(self, query: int) -> Floats:
        """The scores of a list."""
        return self.known_scores[self.offsets[query] : self.offsets[query + 1]]

    @property
    def known_scores(self) -> Floats:
        """The scores of all values, NaN where one is missing."""
        if self.scores is None:
            raise ValueError("these lists have no scores")
        return self.scores


def attach_scores(lists: Sequence[Lists], place: Place, query_ids: pa.ChunkedArray, tokens: TokenTable) -> list[Lists]:
    """Lists with a teacher's scores from a table (query_id, doc_id, score); NaN for a passage that is not in it.

    The table is read a row group at a time; only scores of passages in the lists are kept.
    """
    keys = np.concatenate([own.query * tokens.count + own.values for own in lists])
    order = np.argsort(keys, kind="stable")
    found = np.full(len(keys), np.nan, np.float32)
    for query, rows, scores in _score_rows(place, query_ids, tokens):
        own = query * tokens.count + rows
        first, last = np.searchsorted(keys, own, "left", order), np.searchsorted(keys, own, "right", order)
        # A passage that stands in a list twice takes its score twice.
        found[order[np.repeat(first, last - first) + _count_within(last - first)]] = np.repeat(scores, last - first)
    pieces = np.split(found, np.cumsum([len(own.values) for own in lists])[:-1])
    return [replace(own, scores=piece) for own, piece in zip(lists, pieces, strict=True)]


def _score_rows(place: Place, query_ids: pa.ChunkedArray, tokens: TokenTable) -> Iterator[tuple[Rows, Rows, Floats]]:
    """(query, passage, score) of the known queries' scores, a row group at a time."""
    with place.reading() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.metadata.num_row_groups):
            table = file.read_row_group(group, columns=["query_id", "doc_id", "score"])
            query = pc.index_in(table["query_id"], value_set=query_ids)
            table = table.append_column("query", query).filter(query.is_valid())
            scores = table["score"].to_numpy().astype(np.float32)
            yield table["query"].to_numpy().astype(np.int64), tokens.rows_of(table["doc_id"]), scores


def _count_within(counts: Rows) -> Rows:
    """0 … counts[0] - 1, then 0 … counts[1] - 1, and so on."""
    return np.asarray(np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
