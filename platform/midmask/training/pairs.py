"""Rows of fine-tuning: a query with a passage that answers it, and passages that do not, with a teacher's scores."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.core.arrays import Floats
from midmask.core.randomness import mix
from midmask.errors import UserError
from midmask.retrieve.blocks import cut_row, token_rows
from midmask.retrieve.searched_queries import relevant_passages
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_batches, read_table
from midmask.training.examples import ExampleSource, TextColumns, TokenTable, join_texts
from midmask.training.plan import Rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lists:
    """Passages (rows of the tokens) of each query: list q is values[offsets[q] : offsets[q + 1]]."""

    offsets: Rows
    values: Rows
    scores: Floats  # a teacher's, of each value; NaN where there is none

    @staticmethod
    def of(query: Rows, passage: Rows, count: int) -> "Lists":
        order = np.argsort(query, kind="stable")
        scores = np.full(len(passage), np.nan, np.float32)
        return Lists(np.searchsorted(query[order], np.arange(count + 1)), passage[order], scores)

    @property
    def query(self) -> Rows:
        """The query of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def without(self, others: "Lists") -> "Lists":
        """The same lists less the passages that the other lists hold for the query."""
        width = 1 + max(self.values.max(initial=0), others.values.max(initial=0))
        is_new = ~np.isin(self.query * width + self.values, others.query * width + others.values)
        return Lists.of(self.query[is_new], self.values[is_new], len(self.offsets) - 1)

    def __getitem__(self, query: int) -> Rows:
        return self.values[self.offsets[query] : self.offsets[query + 1]]

    def scores_of(self, query: int) -> Floats:
        """The scores of a list."""
        return self.scores[self.offsets[query] : self.offsets[query + 1]]


def attach_scores(lists: Sequence[Lists], place: Place, query_ids: pa.ChunkedArray, tokens: TokenTable) -> list[Lists]:
    """Lists with a teacher's scores from a table (query_id, doc_id, score); NaN for a passage that is not in it.

    The table is read some rows at a time; only scores of passages in the lists are kept.
    """
    keys = np.concatenate([passages.query * tokens.count + passages.values for passages in lists])
    pairs, places = np.unique(keys, return_inverse=True)
    scores = np.full(len(pairs), np.nan, np.float32)
    for batch in read_batches(place, columns=["query_id", "doc_id", "score"]):
        table = pa.Table.from_batches([batch])
        query = pc.index_in(table["query_id"], value_set=query_ids)
        known = table.append_column("query", query).filter(query.is_valid())
        rows = tokens.rows_of(known["doc_id"])
        scored = known["query"].to_numpy().astype(np.int64) * tokens.count + rows
        listed = np.isin(scored, pairs) & (rows >= 0)
        scores[np.searchsorted(pairs, scored[listed])] = known["score"].to_numpy()[listed]
    pieces = np.split(scores[places], np.cumsum([len(passages.values) for passages in lists])[:-1])
    return [replace(passages, scores=piece) for passages, piece in zip(lists, pieces, strict=True)]


@dataclass(frozen=True)
class PairExamples:
    """Fine-tuning: a row is a query with a positive passage in the split, drawn anew each epoch, and `per_query`
    negatives.

    Negatives come from the list `negatives` (columns query_id, doc_id), all its rows being fair choices; where a query
    has too few of them, passages drawn at random are added. Batches are not grouped by length: in-batch negatives
    would become clusters of one length.

    With a teacher's scores every passage of a row needs one, which passages drawn at random would lack; so a query with
    too few negatives gets some of them repeatedly, and a query with none is left out, which is logged.
    """

    tokens: Place
    corpus: Place
    split: str
    fingerprint: str
    negatives: Place | None = None
    per_query: int = 0
    query_length: int = 32
    passage_length: int = 128
    scores: Place | None = None  # a teacher's (query_id, doc_id, score)
    # What a positive without a score is: an error, or it takes the highest score of its query's passages (SIGIR'23)
    missing_positive_score: Literal["refuse", "highest"] = "refuse"
    queries: Place | None = None  # a table with a column query_id, the only queries to train on; None: all

    @classmethod
    def of(cls, inputs: Mapping[str, Artifact], **settings: Any) -> Self:
        """Rows on the train queries of a step's inputs: tokens, corpus and, where they are, negatives, scores and
        queries.
        """
        files = ("negatives", "scores", "queries")
        tables: dict[str, Any] = {name: inputs[name].place / f"{name}.parquet" for name in files if name in inputs}
        tokens = inputs["tokens"]
        return cls(tokens.place, inputs["corpus"].place, "train", tokens.fingerprint, **tables, **settings)

    def open(self) -> "PairSource":
        return PairSource(self)


class PairSource(ExampleSource):
    """Queries of a split that have a positive, in the order of `queries.parquet`."""

    def __init__(self, examples: PairExamples) -> None:
        self._examples = examples
        self.group = 1 + examples.per_query
        self._table = TokenTable(examples.tokens / "passages")
        self._queries = read_table(examples.tokens / "queries.parquet")
        self._positives = self._lists(relevant_passages(examples.corpus, examples.split))
        empty = self._queries.slice(0, 0).append_column("doc_id", pa.array([], pa.string()))
        mined = read_table(examples.negatives) if examples.negatives else empty
        self._negatives = self._lists(mined).without(self._positives)
        self._kept = np.flatnonzero(np.diff(self._positives.offsets))
        if examples.queries is not None:
            self._kept = self._select_queries(read_table(examples.queries)["query_id"])
        if examples.scores is not None:
            self._take_scores(examples.scores)
        self.count = len(self._kept)
        if not self.count:
            raise UserError(
                f"split {examples.split!r} of {examples.corpus}: no query has a relevant passage to train on"
            )

    def _lists(self, judged: pa.Table) -> Lists:
        """The passages that a table of (query_id, doc_id) names, by query."""
        query = pc.index_in(judged["query_id"], value_set=self._queries["query_id"]).combine_chunks()
        passage = self._table.rows_of(judged["doc_id"])
        if query.null_count or (passage < 0).any():
            raise UserError(
                f"{self._examples.tokens}: judgements or negatives name queries or passages that the tokens lack; "
                "tokenise the corpus that they belong to"
            )
        numbers = query.to_numpy(zero_copy_only=False).astype(np.int64)
        return Lists.of(numbers, passage, len(self._queries))

    def _select_queries(self, query_ids: pa.ChunkedArray) -> Rows:
        """The queries to train on. Raises UserError if one of them has no positive in the split."""
        having = self._queries["query_id"].take(pa.array(self._kept))
        strange = query_ids.filter(pc.invert(pc.is_in(query_ids, value_set=having)))
        if len(strange):
            raise UserError(
                f"{self._examples.queries}: {len(strange)} of its queries, such as {strange[0].as_py()!r}, have no "
                f"relevant passage in split {self._examples.split!r}; draw the queries from this split"
            )
        return np.asarray(self._kept[pc.is_in(having, value_set=query_ids).to_numpy()])

    def _take_scores(self, place: Place) -> None:
        """Gives every passage that can stand in a row its score; queries that then have no negative are left out."""
        if self.group > 1:
            have = np.diff(self._negatives.offsets)[self._kept] > 0
            if not have.all():
                first = ", ".join(self._names(self._kept[~have][:5]))
                log.warning("%d queries have no negative to be scored and are left out: %s", (~have).sum(), first)
            self._kept = self._kept[have]
        lists = (self._positives, self._negatives)
        positives, self._negatives = attach_scores(lists, place, self._queries["query_id"], self._table)
        if self._examples.missing_positive_score == "highest":
            positives = _highest_where_missing(positives, self._negatives)
        self._positives = positives
        self._refuse_missing(place, self._negatives, "candidate")
        self._refuse_missing(place, self._positives, "relevant")

    def _refuse_missing(self, place: Place, lists: Lists, kind: str) -> None:
        missing = np.flatnonzero(np.isnan(lists.scores) & np.isin(lists.query, self._kept))
        if len(missing):
            (query,) = self._names(lists.query[missing[:1]])
            (passage,) = self._table.doc_ids(lists.values[missing[:1]])
            raise UserError(
                f"{place}: no score for query {query!r} and its {kind} passage {passage!r}, {len(missing)} in all; "
                "score the same negatives and judgements that are trained on, or for relevant passages set "
                "stages.*.missing_positive_score=highest"
            )

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        queries = self._kept[rows]
        keys = mix(mix(np.uint64(seed), np.uint64(epoch)), queries.astype(np.uint64))
        chosen = [self._choose(query, key) for query, key in zip(queries, keys, strict=True)]
        passages = np.concatenate([group for group, _ in chosen])
        scores = None if self._examples.scores is None else np.concatenate([taken for _, taken in chosen])
        texts = token_rows(self._queries["ids"].take(pa.array(queries)))
        pieces = [cut_row(text, self._examples.passage_length) for text in self._table.read(passages)]
        return {
            "query": join_texts([cut_row(text, self._examples.query_length) for text in texts], queries),
            "passage": join_texts(pieces, passages)._replace(teacher=scores),
        }

    def _names(self, queries: Rows) -> list[str]:
        return [str(name) for name in self._queries["query_id"].take(pa.array(queries)).to_pylist()]

    def _choose(self, query: int, key: np.uint64) -> tuple[Rows, Floats]:
        """One positive, then `per_query` different negatives, by hash of the key, int64 [group]; and their scores, if
        there are any.
        """
        positives, mined = self._positives[query], self._negatives[query]
        first = int(mix(key, np.uint64(0))) % len(positives)
        order = np.argsort(mix(key, 1 + np.arange(len(mined), dtype=np.uint64)), kind="stable")[: self.group - 1]
        if self._examples.scores is None:
            return self._fill(positives, [positives[first], *mined[order]], key), np.empty(0, np.float32)
        lacking = self.group - 1 - len(order)
        if lacking:
            again = mix(key, np.uint64(1 << 32) + np.arange(lacking, dtype=np.uint64)) % np.uint64(len(mined))
            order = np.append(order, again.astype(np.int64))
        rows = np.array([positives[first], *mined[order]], dtype=np.int64)
        scores = [self._positives.scores_of(query)[first], *self._negatives.scores_of(query)[order]]
        return rows, np.array(scores, np.float32)

    def _fill(self, positives: Rows, chosen: list[np.int64], key: np.uint64) -> Rows:
        """A group filled up with passages drawn at random."""
        taken = {int(row) for row in (*chosen, *positives)}
        draw = 1 << 32
        while len(chosen) < self.group:
            row = int(mix(key, np.uint64(draw))) % self._table.count
            draw += 1
            # A corpus smaller than the group cannot give different passages: after many tries, repeat.
            if row not in taken or draw > (1 << 32) + 1000:
                chosen.append(np.int64(row))
                taken.add(row)
        return np.array(chosen, dtype=np.int64)


def _highest_where_missing(positives: Lists, negatives: Lists) -> Lists:
    """Positives without a score take the highest score of their query's passages; NaN stays where none has one."""
    highest = np.full(len(positives.offsets) - 1, -np.inf, np.float32)
    for lists in (positives, negatives):
        np.fmax.at(highest, lists.query, lists.scores)
    best = highest[positives.query]
    missing = np.isnan(positives.scores) & np.isfinite(best)
    return replace(positives, scores=np.where(missing, best, positives.scores))
