"""From the files of a collection to the rows that are kept: ids once each, judgements of known ids only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import Corpus
from midmask.corpora.ids import IdTable, hash64
from midmask.corpora.ledger import Ledger, reject_rows, sorted_out
from midmask.corpora.pieces import Piece
from midmask.corpora.splits import assign_splits

Stream = Callable[[Sequence[Piece]], Iterator[pa.Table]]
"""Reads pieces into blocks, in order: in this process, or by the workers of a cluster."""


@dataclass
class Collection:
    """One reading of a corpus's files. `passages()` first, to its end; then `judged()`.

    Passages stream through; their ids (about 25 bytes each), the queries and the judgements are held as Arrow columns.
    """

    corpus: Corpus
    config: CorpusConfig
    stream: Stream
    ledger: Ledger

    def __post_init__(self) -> None:
        self._ids = IdTable()
        self._salt = f"sample {self.config.split_seed}"
        self._highest: np.uint64 | None = None

    def passages(self) -> Iterator[pa.Table]:
        """Blocks of passages to keep, in source order."""
        if self.config.max_passages is not None:
            self._highest = self._sample_bound(self.config.max_passages)
        for table in sorted_out(self.stream(self.corpus.docs), self.corpus.docs, "docs", self.ledger):
            new = self._ids.add(table.column("doc_id").to_pylist())
            table = reject_rows(table, ~new, "duplicate id", self.corpus.docs, "docs", self.ledger)
            kept = self._left_out(table, self._sampled(table.column("doc_id")), "docs")
            self.ledger.kept["docs"] += len(kept)
            yield kept
        self.ledger.check("docs")

    def _sample_bound(self, wanted: int) -> np.uint64 | None:
        """The highest hash among the `wanted` lowest ones of all passages; reads the passages once for it."""
        hashes = [np.zeros(0, np.uint64)]
        for table in self.stream(self.corpus.docs):
            hashes.append(hash64(table.column("doc_id").drop_null().to_pylist(), self._salt))
        unique = np.unique(np.concatenate(hashes))
        return None if len(unique) <= wanted else unique[wanted - 1]

    def _sampled(self, doc_ids: pa.ChunkedArray) -> np.ndarray:
        if self._highest is None:
            return np.ones(len(doc_ids), bool)
        return hash64(doc_ids.to_pylist(), self._salt) <= self._highest

    def _left_out(self, table: pa.Table, kept: np.ndarray, rows: str) -> pa.Table:
        self.ledger.left_out[rows] += int((~kept).sum())
        return table if kept.all() else table.filter(pa.array(kept))

    def judged(self) -> tuple[pa.Table, pa.Table, str]:
        """Queries (with words and question), judgements (split, query_id, doc_id, grade), and the rule of splitting."""
        known = IdTable()
        queries = self._queries(known)
        qrels, rule = self._judgements(known)
        if self._highest is not None and len(qrels):
            surviving = self._sampled(qrels.column("doc_id"))
            relevant = qrels.filter(pc.and_(pa.array(surviving), pc.greater_equal(qrels.column("grade"), 1)))
            answered = pc.unique(relevant.column("query_id"))
            of_answered = pc.is_in(qrels.column("query_id"), value_set=answered).to_numpy()
            qrels = self._left_out(qrels, surviving & of_answered, "qrels")
            queries = self._left_out(
                queries, pc.is_in(queries.column("query_id"), value_set=answered).to_numpy(), "queries"
            )
        self.ledger.kept.update(queries=len(queries), qrels=len(qrels))
        for rows in ("queries", "qrels"):
            self.ledger.check(rows)
        return queries, qrels, rule

    def _queries(self, known: IdTable) -> pa.Table:
        pieces, tables = self.corpus.queries, []
        for table in sorted_out(self.stream(pieces), pieces, "queries", self.ledger):
            new = known.add(table.column("query_id").to_pylist())
            table = reject_rows(table, ~new, "duplicate id", pieces, "queries", self.ledger)
            tables.append(table.select(["query_id", "text", "words", "question"]))
        empty = pa.schema(
            [("query_id", pa.string()), ("text", pa.string()), ("words", pa.int32()), ("question", pa.bool_())]
        )
        return pa.concat_tables([empty.empty_table(), *tables])

    def _judgements(self, known: IdTable) -> tuple[pa.Table, str]:
        """Judgements whose query and passage were read, each pair once in its split."""
        pieces = self.corpus.qrels
        tables = []
        for table in sorted_out(self.stream(pieces), pieces, "qrels", self.ledger):
            query_rows = known.rows(table.column("query_id").to_pylist())
            doc_rows = self._ids.rows(table.column("doc_id").to_pylist())
            table = table.append_column("query_row", pa.array(query_rows)).append_column("doc_row", pa.array(doc_rows))
            strange = (query_rows < 0) | (doc_rows < 0)
            tables.append(reject_rows(table, strange, "unknown id", pieces, "qrels", self.ledger))
        names = {piece.split for piece in pieces}
        if not tables:
            return pa.schema(
                [("split", pa.string()), ("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())]
            ).empty_table(), ""
        table = pa.concat_tables(tables)
        official = [pieces[number].split for number in table.column("piece").to_pylist()]
        splits, rule = assign_splits(official, table.column("query_id").to_pylist(), names, self.config.split_seed)
        table = table.append_column("split", pa.array(splits, pa.string()))
        table = reject_rows(table, _repeated(table), "duplicate judgement", pieces, "qrels", self.ledger)
        return table.select(["split", "query_id", "doc_id", "grade"]), rule


def _repeated(table: pa.Table) -> np.ndarray:
    """True where the same split, query and passage stand in an earlier row."""
    split = table.column("split").combine_chunks().dictionary_encode().indices.to_numpy()
    keys = np.stack([split, table.column("query_row").to_numpy(), table.column("doc_row").to_numpy()], axis=1)
    repeated = np.ones(len(keys), bool)
    repeated[np.unique(keys, axis=0, return_index=True)[1]] = False
    return repeated
