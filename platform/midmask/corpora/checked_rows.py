"""Rows of a collection's files: kept with each id once, quarantined with a reason, or left out by a rule.

Judgements are kept for known queries only.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.core.randomness import hash64
from midmask.corpora.chunks import BLOCKS, Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.documents.blocks import TOLERATED
from midmask.corpora.splits import OFFICIAL, Rule, assign_splits
from midmask.corpora.writer import QRELS
from midmask.errors import UserError, how_to_set

log = logging.getLogger(__name__)

QUOTED = 5
"""Bad rows of a kind that the log quotes."""
ROWS = ("docs", "queries", "qrels")


class Quarantine:
    """Counts the rows of one corpus and writes the bad ones to quarantine.jsonl, one object a line: kind, file, line,
    text, and a reason where the kind does not say it all.
    """

    def __init__(self, quarantine: BinaryIO, threshold: float, source: str) -> None:
        self._quarantine, self._threshold, self._source = quarantine, threshold, source
        self.kept: Counter[str] = Counter()
        self.bad: dict[str, Counter[str]] = {rows: Counter() for rows in ROWS}
        self.left_out: dict[str, Counter[str]] = {rows: Counter() for rows in ROWS}
        self.examples: dict[str, list[str]] = {rows: [] for rows in ROWS}
        """The first bad rows, quoted."""

    def reject(self, rows: str, kind: str, file: str, line: int, text: str, reason: str = "") -> None:
        """Quarantines one row; the first few of each kind of rows are quoted in the log."""
        self.bad[rows][kind] += 1
        entry = {"kind": kind, "file": file, "line": line, "text": text, **({"reason": reason} if reason else {})}
        self._quarantine.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        if self.bad[rows].total() <= QUOTED:
            self.examples[rows].append(f"{file}:{line} {kind}: {text[:80]!r}{f' ({reason})' if reason else ''}")
            log.warning("bad row of the %s: %s", rows, self.examples[rows][-1])

    def check(self, rows: str) -> None:
        """Call at the end of each kind of rows. Whole files that cannot be read are no bad rows.

        Raises:
            UserError: if the share of bad rows is above the threshold.
        """
        bad = sum(number for kind, number in self.bad[rows].items() if kind not in TOLERATED)
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.bad[rows].most_common())
        read = bad + self.kept[rows] + self.left_out[rows].total()
        if bad > self._threshold * read:
            raise UserError(
                f"{self._source}: {bad:,} of {read:,} rows of the {rows} are bad ({bad / read:.2%}, "
                f"corpus.bad_rows_threshold = {self._threshold:g}): {kinds}; first: "
                f"{'; '.join(self.examples[rows])}. Mend the files, or go on without these rows: "
                f"{how_to_set({'corpus.bad_rows_threshold': 'SHARE'})}"
            )

    def result(self) -> dict[str, Any]:
        """rows_read = rows_kept + sum of rows_quarantined (by fault) + sum of rows_left_out (by rule)."""
        quarantined = sum(self.bad.values(), Counter())
        left_out = sum(self.left_out.values(), Counter())
        kept = self.kept.total()
        by_kind = {
            rows: {
                "kept": self.kept[rows],
                "quarantined": dict(sorted(bad.items())),
                "left_out": self.left_out[rows].total(),
            }
            for rows, bad in self.bad.items()
        }
        return {
            "rows_read": kept + quarantined.total() + left_out.total(),
            "rows_kept": kept,
            "rows_quarantined": dict(sorted(quarantined.items())),
            "rows_left_out": dict(sorted(left_out.items())),
            "rows_by_kind": by_kind,
        }

    def line(self) -> str:
        """The sum, for the log."""
        rows = self.result()
        bad, left_out = rows["rows_quarantined"], rows["rows_left_out"]
        kept = f"{rows['rows_read']:,} rows read = {rows['rows_kept']:,} kept"
        return f"{self._source}: {kept} + quarantined {bad or 0} + left out {left_out or 0}"


def separate_rejected(tables: Iterator[pa.Table], rows: str, rejected: Quarantine) -> Iterator[pa.Table]:
    """Yields the good rows of blocks, and quarantines the others."""
    for table in tables:
        faulty = pc.is_valid(table.column("fault"))
        for row in table.filter(faulty).select(["fault", "file", "line", "raw", "reason"]).to_pylist():
            rejected.reject(rows, row["fault"], row["file"], row["line"], row["raw"] or "", row["reason"] or "")
        if len(good := table.filter(pc.invert(faulty))):
            yield good


def reject_rows(table: pa.Table, bad: np.ndarray, kind: str, rows: str, rejected: Quarantine) -> pa.Table:
    """Quarantines the rows where `bad` is True, quoted by their own columns; gives the others."""
    for row in table.filter(pa.array(bad)).to_pylist():
        values = [str(row[name])[:200] for name in ("query_id", "doc_id", "grade", "text") if row.get(name) is not None]
        rejected.reject(rows, kind, row["file"], row["line"], "\t".join(values))
    return table.filter(pa.array(~bad))


UNKNOWN_ID = "unknown id"
"""The fault of a judgement whose query has no text in the collection."""

Stream = Callable[[Sequence[Piece]], Iterator[pa.Table]]
"""Reads pieces into blocks, in order: in this process, or by the workers of a cluster."""


@dataclass
class Collection:
    """One reading of a corpus's files. `passages()` first, to its end; then `read_judged()`.

    Passages stream through; their ids, the queries and the judgements are held as Arrow columns.
    """

    corpus: CorpusPieces
    config: CorpusConfig
    stream: Stream
    rejected: Quarantine

    def __post_init__(self) -> None:
        self._ids: set[str] = set()
        self._salt = f"sample {self.config.split_seed}"
        self._highest: np.uint64 | None = None

    def passages(self) -> Iterator[pa.Table]:
        """Blocks of passages to keep, in source order."""
        if self.config.max_passages is not None:
            self._highest = self._sample_bound(self.config.max_passages)
        for table in separate_rejected(self.stream(self.corpus.docs), "docs", self.rejected):
            ids = table.column("doc_id").to_pandas()
            again = ids.duplicated().to_numpy() | np.array([name in self._ids for name in ids], bool)
            self._ids.update(ids)
            table = reject_rows(table, again, "duplicate id", "docs", self.rejected)
            kept = self._leave_out(table, self._mark_sampled(table.column("doc_id")), "docs")
            self.rejected.kept["docs"] += len(kept)
            yield kept
        self.rejected.check("docs")

    def _sample_bound(self, count: int) -> np.uint64 | None:
        """The highest hash among the `count` lowest ones of all passages; reads the passages once for it."""
        hashes = [np.zeros(0, np.uint64)]
        for table in self.stream(self.corpus.docs):
            hashes.append(hash64(table.column("doc_id").drop_null().to_pylist(), self._salt))
        unique = np.unique(np.concatenate(hashes))
        return None if len(unique) <= count else unique[count - 1]

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
        """Queries (with answers and the split of their file), judgements (split, query_id, doc_id,
        grade), and the rule of splitting.
        """
        queries = self._queries()
        qrels, rule = self._judgements(set(queries.column("query_id").to_pylist()))
        if self._highest is not None and len(qrels):
            surviving = self._mark_sampled(qrels.column("doc_id"))
            relevant = qrels.filter(pc.and_(pa.array(surviving), pc.greater_equal(qrels.column("grade"), 1)))
            answered = pc.unique(relevant.column("query_id"))
            of_answered = pc.is_in(qrels.column("query_id"), value_set=answered).to_numpy()
            qrels = self._leave_out(qrels, surviving & of_answered, "qrels")
            kept = pc.or_(
                pc.is_in(queries.column("query_id"), value_set=answered), queries.column("answers").is_valid()
            )
            queries = self._leave_out(queries, kept.to_numpy(), "queries")
        self.rejected.kept.update(queries=len(queries), qrels=len(qrels))
        for rows in ("queries", "qrels"):
            self.rejected.check(rows)
        return queries, pa.concat_tables([qrels, *self._unions(qrels)]), rule

    def _unions(self, qrels: pa.Table) -> Iterator[pa.Table]:
        """The judgements of the splits that are made up of slices, each pair once: its row in the first slice."""
        for split, slices in self.corpus.unions.items():
            for index, part in enumerate(slices):
                rows = qrels.filter(pc.equal(qrels.column("split"), part))
                earlier = qrels.filter(pc.is_in(qrels.column("split"), value_set=pa.array(slices[:index], pa.string())))
                new = ~pc.is_in(pair_texts(rows), value_set=pair_texts(earlier)).to_numpy()
                yield rows.filter(pa.array(new)).set_column(0, "split", pa.repeat(split, int(new.sum())))

    def _queries(self) -> pa.Table:
        """Queries, each id once. MS MARCO's files overlap (dev.small is part of dev): a query that another file has
        with the same text is left out by that rule; any other second row of an id is a bad row.
        """
        tables = separate_rejected(self.stream(self.corpus.queries), "queries", self.rejected)
        table = pa.concat_tables([BLOCKS["queries"].empty_table(), *tables])
        again = table.column("query_id").to_pandas().duplicated().to_numpy()
        queries, repeated = table.filter(pa.array(~again)), table.filter(pa.array(again))
        earlier = queries.take(pc.index_in(repeated.column("query_id"), value_set=queries.column("query_id")))
        same = pc.equal(earlier.column("text"), repeated.column("text"))
        copies = pc.and_(same, pc.not_equal(earlier.column("file"), repeated.column("file"))).to_numpy()
        repeated = self._leave_out(repeated, ~copies, "queries", "the same query in two files")
        reject_rows(repeated, np.ones(len(repeated), bool), "duplicate id", "queries", self.rejected)
        return queries

    def _judgements(self, known: set[str]) -> tuple[pa.Table, Rule]:
        """Judgements whose query is `known`, each pair once in its split. A judged passage may be missing: it belongs
        to the ideal ranking of its query all the same.
        """
        tables = []
        for table in separate_rejected(self.stream(self.corpus.qrels), "qrels", self.rejected):
            unknown = np.array([name not in known for name in table.column("query_id").to_pylist()], bool)
            tables.append(reject_rows(table, unknown, UNKNOWN_ID, "qrels", self.rejected))
        if not tables:
            return QRELS.empty_table(), Rule("")
        table = pa.concat_tables(tables)
        self._refuse_foreign(table)
        rule = Rule(OFFICIAL)
        if self.config.splits == "complete" and not self.corpus.unions:
            names = {piece.split for piece in (*self.corpus.qrels, *self.corpus.queries) if piece.split}
            official, queries = table.column("split").to_pylist(), table.column("query_id").to_pylist()
            splits, rule = assign_splits(official, queries, names, self.config.split_seed)
            table = table.set_column(table.column_names.index("split"), "split", pa.array(splits, pa.string()))
        again = table.select(["split", "query_id", "doc_id"]).to_pandas().duplicated().to_numpy()
        table = reject_rows(table, again, "duplicate judgement", "qrels", self.rejected)
        return table.select(QRELS.names), rule

    def missing_passages(self, qrels: pa.Table) -> pa.Array:
        """Ids of judged passages that the collection lacks, each once."""
        names = pc.unique(qrels.column("doc_id")).to_pylist()
        return pa.array([name for name in names if name not in self._ids], pa.string())

    def _refuse_foreign(self, qrels: pa.Table) -> None:
        """
        Raises:
            UserError: for judgements none of whose passages was read, which belong to another collection.
        """
        missing = self.missing_passages(qrels)
        if len(missing) and len(missing) == pc.count_distinct(qrels.column("doc_id")).as_py():
            raise UserError(
                f"{self.config.name}: none of the {len(missing):,} judged passages is in the collection, such as "
                f"{missing[0].as_py()!r}; put the judgements of this collection beside it"
            )


def pair_texts(qrels: pa.Table) -> pa.ChunkedArray:
    """Query and passage as one text; ids hold no white space."""
    return pc.binary_join_element_wise(qrels.column("query_id"), qrels.column("doc_id"), "\t")
