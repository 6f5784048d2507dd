"""From the files of a collection to the rows that are kept: ids once each, judgements of known queries only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.chunks import BLOCKS, Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.ids import IdTable
from midmask.corpora.quarantine import Quarantine, reject_rows, separate_rejected
from midmask.corpora.splits import OFFICIAL, Rule, assign_splits
from midmask.corpora.writer import QRELS
from midmask.errors import UserError
from midmask.randomness.texts import hash64

QUERIES = pa.schema([field for field in BLOCKS["queries"] if field.name not in ("fault", "raw", "reason")])

UNKNOWN_ID = "unknown id"
"""The fault of a judgement whose query has no text in the collection."""

Stream = Callable[[Sequence[Piece]], Iterator[pa.Table]]
"""Reads pieces into blocks, in order: in this process, or by the workers of a cluster."""


@dataclass
class Collection:
    """One reading of a corpus's files. `passages()` first, to its end; then `read_judged()`.

    Passages stream through; their ids (about 25 bytes each), the queries and the judgements are held as Arrow columns.
    """

    corpus: CorpusPieces
    config: CorpusConfig
    stream: Stream
    rejected: Quarantine

    def __post_init__(self) -> None:
        self._ids = IdTable()
        self._salt = f"sample {self.config.split_seed}"
        self._highest: np.uint64 | None = None

    def passages(self) -> Iterator[pa.Table]:
        """Blocks of passages to keep, in source order."""
        if self.config.max_passages is not None:
            self._highest = self._sample_bound(self.config.max_passages)
        for table in separate_rejected(self.stream(self.corpus.docs), self.corpus.docs, "docs", self.rejected):
            new = self._ids.add(table.column("doc_id").to_pylist())
            table = reject_rows(table, ~new, "duplicate id", self.corpus.docs, "docs", self.rejected)
            kept = self._leave_out(table, self._mark_sampled(table.column("doc_id")), "docs")
            self.rejected.kept["docs"] += len(kept)
            yield kept
        self.rejected.check("docs")

    def _sample_bound(self, wanted: int) -> np.uint64 | None:
        """The highest hash among the `wanted` lowest ones of all passages; reads the passages once for it."""
        hashes = [np.zeros(0, np.uint64)]
        for table in self.stream(self.corpus.docs):
            hashes.append(hash64(table.column("doc_id").drop_null().to_pylist(), self._salt))
        unique = np.unique(np.concatenate(hashes))
        return None if len(unique) <= wanted else unique[wanted - 1]

    def _mark_sampled(self, doc_ids: pa.ChunkedArray) -> np.ndarray:
        if self._highest is None:
            return np.ones(len(doc_ids), bool)
        return hash64(doc_ids.to_pylist(), self._salt) <= self._highest

    def _leave_out(self, table: pa.Table, kept: np.ndarray, rows: str, rule: str = "max_passages") -> pa.Table:
        if kept.all():
            return table
        self.rejected.left_out[rows][rule] += int((~kept).sum())
        return table.filter(pa.array(kept))

    def read_judged(self) -> tuple[pa.Table, pa.Table, Rule]:
        """Queries (with words, question, answers and the split of their file), judgements (split, query_id, doc_id,
        grade), and the rule of splitting.
        """
        known = IdTable()
        queries = self._queries(known)
        qrels, rule = self._judgements(known)
        if self._highest is not None and len(qrels):
            surviving = self._mark_sampled(qrels.column("doc_id"))
            relevant = qrels.filter(pc.and_(pa.array(surviving), pc.greater_equal(qrels.column("grade"), 1)))
            answered = pc.unique(relevant.column("query_id"))
            of_answered = pc.is_in(qrels.column("query_id"), value_set=answered).to_numpy()
            qrels = self._leave_out(qrels, surviving & of_answered, "qrels")
            wanted = pc.or_(
                pc.is_in(queries.column("query_id"), value_set=answered), queries.column("answers").is_valid()
            )
            queries = self._leave_out(queries, wanted.to_numpy(), "queries")
        self.rejected.kept.update(queries=len(queries), qrels=len(qrels))
        for rows in ("queries", "qrels"):
            self.rejected.check(rows)
        return queries, pa.concat_tables([qrels, *self._unions(qrels)]), rule

    def _unions(self, qrels: pa.Table) -> Iterator[pa.Table]:
        """The judgements of the splits that are made up of slices, each pair once: its row in the first slice."""
        for split, slices in self.corpus.unions.items():
            for index, own in enumerate(slices):
                rows = qrels.filter(pc.equal(qrels.column("split"), own))
                earlier = qrels.filter(pc.is_in(qrels.column("split"), value_set=pa.array(slices[:index], pa.string())))
                new = ~pc.is_in(_pairs(rows), value_set=_pairs(earlier)).to_numpy()
                yield rows.filter(pa.array(new)).set_column(0, "split", pa.repeat(split, int(new.sum())))

    def _queries(self, known: IdTable) -> pa.Table:
        """Queries, each id once. MS MARCO's files overlap (dev.small is part of dev): a query that another file has
        with the same text is left out by that rule; any other second row of an id is a bad row.
        """
        pieces = self.corpus.queries
        first, again = [QUERIES.empty_table()], [QUERIES.empty_table()]
        for table in separate_rejected(self.stream(pieces), pieces, "queries", self.rejected):
            new = known.add(table.column("query_id").to_pylist())
            table = table.select(QUERIES.names)
            first.append(table.filter(pa.array(new)))
            again.append(table.filter(pa.array(~new)))
        queries, repeated = pa.concat_tables(first), pa.concat_tables(again)
        if len(repeated):
            earlier = queries.take(pa.array(known.rows(repeated.column("query_id").to_pylist())))
            same = pc.equal(earlier.column("text"), repeated.column("text")).to_numpy()
            copies = same & (_files(earlier, pieces) != _files(repeated, pieces))
            repeated = self._leave_out(repeated, ~copies, "queries", "the same query in two files")
            reject_rows(repeated, np.ones(len(repeated), bool), "duplicate id", pieces, "queries", self.rejected)
        splits = [piece.split for piece in pieces]
        of_file = pa.array([splits[number] for number in queries.column("piece").to_pylist()], pa.string())
        return queries.select(["query_id", "text", "words", "question", "answers"]).append_column("split", of_file)

    def _judgements(self, known: IdTable) -> tuple[pa.Table, Rule]:
        """Judgements whose query was read, each pair once in its split. A judged passage may be missing: it belongs to
        the ideal ranking of its query all the same.
        """
        pieces = self.corpus.qrels
        tables = []
        for table in separate_rejected(self.stream(pieces), pieces, "qrels", self.rejected):
            unknown = known.rows(table.column("query_id").to_pylist()) < 0
            tables.append(reject_rows(table, unknown, UNKNOWN_ID, pieces, "qrels", self.rejected))
        if not tables:
            return QRELS.empty_table(), Rule("")
        table = pa.concat_tables(tables)
        self._refuse_foreign(table)
        own = [pieces[number].split for number in table.column("piece").to_pylist()]
        splits, rule = own, Rule(OFFICIAL)
        if self.config.splits == "complete" and not self.corpus.unions:
            names = {piece.split for piece in (*pieces, *self.corpus.queries) if piece.split}
            splits, rule = assign_splits(own, table.column("query_id").to_pylist(), names, self.config.split_seed)
        table = table.append_column("split", pa.array(splits, pa.string()))
        table = reject_rows(table, _mark_repeated(table), "duplicate judgement", pieces, "qrels", self.rejected)
        return table.select(["split", "query_id", "doc_id", "grade"]), rule

    def missing_passages(self, qrels: pa.Table) -> pa.Array:
        """Ids of judged passages that the collection lacks, each once."""
        names = pc.unique(qrels.column("doc_id"))
        return names.filter(pa.array(self._ids.rows(names.to_pylist()) < 0))

    def _refuse_foreign(self, qrels: pa.Table) -> None:
        """
        Raises:
            UserError: for judgements none of whose passages was read, which belong to another collection.
        """
        missing = self.missing_passages(qrels)
        if len(missing) and len(missing) == pc.count_distinct(qrels.column("doc_id")).as_py():
            raise UserError(
                f"{self.config.name}: none of the {len(missing):,} judged passages is in the collection: judgements "
                f"name {missing[0].as_py()!r}, the collection has {self._ids[0]!r}; put the judgements of this "
                "collection beside it"
            )


def _files(table: pa.Table, pieces: Sequence[Piece]) -> np.ndarray:
    """The name of the file that each row stands in."""
    names = np.array([piece.file for piece in pieces], dtype=object)
    return np.asarray(names[table.column("piece").to_numpy()])


def _pairs(qrels: pa.Table) -> pa.ChunkedArray:
    """Query and passage as one text; ids hold no white space."""
    return pc.binary_join_element_wise(qrels.column("query_id"), qrels.column("doc_id"), "\t")


def _mark_repeated(table: pa.Table) -> np.ndarray:
    """True where the same split, query and passage stand in an earlier row."""
    columns = [table.column(name).combine_chunks() for name in ("split", "query_id", "doc_id")]
    keys = np.stack([column.dictionary_encode().indices.to_numpy() for column in columns], axis=1)
    repeated = np.ones(len(keys), bool)
    repeated[np.unique(keys, axis=0, return_index=True)[1]] = False
    return repeated
