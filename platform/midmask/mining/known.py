"""Facts about queries and passages before negatives are chosen: judgements, near-duplicates, a teacher's scores.

Queries and passages are numbered stretch by stretch; a pair of both is then one number, its key.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.arrays import Doubles, Ints
from midmask.artifact import Artifact, Place
from midmask.mining import near_duplicates
from midmask.retrieve.selection import relevant_passages


class KnownRelevant:
    """Passages that are judged relevant to a query (in any split), and their like: they are never negatives.

    Args:
        positives: query_id, doc_id; each pair once.
        groups: doc_id, group: which texts the relevant passages are (`near_duplicates`).
        near: doc_id, group: the passages like a group's, sorted by group.
    """

    def __init__(self, positives: pa.Table, groups: pa.Table, near: pa.Table) -> None:
        place = pc.index_in(positives["doc_id"], value_set=groups["doc_id"])
        group = pc.fill_null(groups["group"].take(place), -1)
        self._positives = positives.select(["query_id", "doc_id"]).append_column("group", group)
        self._near_docs = near["doc_id"].combine_chunks()
        self._near_groups = near["group"].to_numpy()

    @staticmethod
    def of(corpus: Artifact, like: Place, similarity: float) -> "KnownRelevant":
        """Reads the relevant passages of all splits, and the output of the near_duplicates step."""
        pairs = relevant_passages(corpus.place).group_by(["query_id", "doc_id"], use_threads=False).aggregate([])
        return KnownRelevant(pairs, *near_duplicates.read(like, similarity))

    def positives(self, query_ids: pa.Array) -> pa.Table:
        """The relevant passages of these queries: query (its place among them), doc_id, group."""
        place = pc.index_in(self._positives["query_id"], value_set=query_ids)
        return self._positives.append_column("query", place).filter(place.is_valid())

    def like(self, positives: pa.Table) -> tuple[Ints, pa.Array]:
        """(query, doc_id) of every passage like one of the positives."""
        group = positives["group"].to_numpy()
        first = np.searchsorted(self._near_groups, group, "left")
        last = np.where(group < 0, first, np.searchsorted(self._near_groups, group, "right"))
        query = np.repeat(numbers(positives["query"]), last - first)
        return query, self._near_docs.take(pa.array(near_duplicates.spread(first, last)))


class Keys:
    """Numbers of pairs of a query and a passage, of those that are given."""

    def __init__(self, query_ids: pa.Array, doc_ids: pa.Array) -> None:
        self.query_ids, self.doc_ids = query_ids, doc_ids

    def of(self, query: Ints, doc_ids: pa.Array | pa.ChunkedArray) -> Ints:
        """One number a pair; -1 for a passage that is not among the given ones."""
        doc = places(doc_ids, self.doc_ids)
        return np.where((doc < 0) | (query < 0), -1, query * len(self.doc_ids) + doc)

    def docs(self, keys: Ints) -> Ints:
        """The place of each pair's passage."""
        return keys % max(1, len(self.doc_ids))


class ScoresByKey:
    """A teacher's scores of pairs. scores: query_id, doc_id, score; none: nothing is scored."""

    def __init__(self, scores: pa.Table | None, keys: Keys) -> None:
        if scores is None:
            self._keys, self._scores = np.empty(0, np.int64), np.empty(0)
            return
        own = keys.of(places(scores["query_id"], keys.query_ids), scores["doc_id"])
        order = np.argsort(own, kind="stable")
        self._keys = own[order]
        self._scores = scores["score"].cast(pa.float64()).to_numpy()[order]

    def of(self, keys: Ints) -> Doubles:
        """The score of each pair, NaN where it has none."""
        at = np.searchsorted(self._keys, keys)
        there = (at < len(self._keys)) & (keys >= 0)
        there[there] = self._keys[at[there]] == keys[there]
        found = np.full(len(keys), np.nan)
        found[there] = self._scores[at[there]]
        return found


def places(values: pa.Array | pa.ChunkedArray, among: pa.Array) -> Ints:
    """Position of each value among others; -1 if it is not among them."""
    return numbers(pc.fill_null(pc.index_in(values, value_set=among), -1))


def numbers(values: pa.Array | pa.ChunkedArray) -> Ints:
    """Whole numbers, none of them null."""
    return np.asarray(values.to_numpy()).astype(np.int64)
