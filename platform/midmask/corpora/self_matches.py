"""Queries that are passages of their own corpus (ArguAna, Quora): which passage is the query itself.

Ids alone do not tell: MS MARCO numbers queries and passages apart, and query 7 is not passage 7. So by the rule "auto"
a query is the passage of its id where at least half of the queries have such a passage and at least half of these have
its very text; else it is every passage of its very text, where at least half of the queries have one; else none is.
A passage that is judged relevant for a query is never taken for the query itself.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.corpora.writer import SELF_MATCHES


def self_matches(docs: Place, queries: pa.Table, qrels: pa.Table, rule: str) -> tuple[pa.Table, dict[str, Any]]:
    """The pairs (query_id, doc_id) to leave out of ranked lists, and the facts: rule, pairs, and the queries that have
    a passage of the same id, of the same text, and of both.

    Args:
        docs: the folder of written passages; one row group is in memory at a time.
        queries: query_id, text. rule: id, text, none or auto.
    """
    asked = pa.table({"query_id": queries["query_id"], "text": pc.utf8_trim_whitespace(queries["text"])})
    asked = asked.combine_chunks()
    found = [part for batch in _passages(docs) for part in _of_batch(batch, asked)]
    pairs = pa.concat_tables([FOUND.empty_table(), *found])
    same_id = pairs.filter(pc.equal(pairs["query_id"], pairs["doc_id"]))
    same_text = pairs.filter(pairs["same_text"])
    both = same_id.filter(same_id["same_text"])
    counts = {
        "same_id": _queries_of(same_id),
        "same_text": _queries_of(same_text),
        "same_id_and_text": _queries_of(both),
    }
    chosen = _auto(len(queries), counts) if rule == "auto" else rule
    kept = {"id": same_id, "text": same_text, "none": pairs.slice(0, 0)}[chosen]
    kept = _without_relevant(kept, qrels).select(SELF_MATCHES.names)
    kept = kept.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    return kept, {"rule": chosen, "pairs": len(kept), **counts}


FOUND = pa.schema([*SELF_MATCHES, ("same_text", pa.bool_())])


def _auto(queries: int, counts: dict[str, int]) -> str:
    if counts["same_id"] and 2 * counts["same_id"] >= queries and 2 * counts["same_id_and_text"] >= counts["same_id"]:
        return "id"
    return "text" if counts["same_text"] and 2 * counts["same_text"] >= queries else "none"


def _passages(docs: Place) -> Iterator[pa.Table]:
    for shard in docs.names():
        with (docs / shard).reading() as stream:
            file = pq.ParquetFile(stream)
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def _of_batch(batch: pa.Table, asked: pa.Table) -> Iterator[pa.Table]:
    """Pairs of a query and a passage that have the same id or the same text (title and text together count, too)."""
    text = pc.utf8_trim_whitespace(batch["text"])
    whole = pc.utf8_trim_whitespace(pc.binary_join_element_wise(batch["title"], batch["text"], " "))
    for own in (text, whole):
        rows = pa.table({"doc_id": batch["doc_id"], "text": own})
        rows = rows.filter(pc.is_in(own, value_set=asked["text"]))
        joined = rows.join(asked, keys="text", join_type="inner") if len(rows) else None
        if joined is not None:
            yield joined.append_column("same_text", pa.repeat(True, len(joined))).select(FOUND.names)
    ids = batch["doc_id"].filter(pc.is_in(batch["doc_id"], value_set=asked["query_id"]))
    yield pa.table({"query_id": ids, "doc_id": ids, "same_text": pa.repeat(False, len(ids))})


def _queries_of(pairs: pa.Table) -> int:
    return int(pc.count_distinct(pairs["query_id"]).as_py())


def _without_relevant(pairs: pa.Table, qrels: pa.Table) -> pa.Table:
    """The pairs, each once, without those that have a judgement of grade 1 or more."""
    pairs = pairs.group_by(["query_id", "doc_id"]).aggregate([])
    relevant = qrels.filter(pc.greater_equal(qrels["grade"], 1))
    return pairs.filter(pc.invert(pc.is_in(_joined(pairs), value_set=_joined(relevant))))


def _joined(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["query_id"], table["doc_id"], "\t")
