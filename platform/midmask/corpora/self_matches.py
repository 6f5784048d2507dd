"""Queries that are passages of their own corpus (ArguAna, Quora): which passage is the query itself.

Ids alone do not tell: MS MARCO numbers queries and passages apart, and query 7 is not passage 7. So by the rule "auto"
a query is the passage of its id if at least half of the queries that have such a passage have its very text; else it is
every passage of its very text, if at least half of all queries have one; else none is. A passage that is judged
relevant for a query is never taken for the query itself.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.corpora.ids import IdTable
from midmask.corpora.writer import SELF_MATCHES


def self_matches(docs: Place, queries: pa.Table, qrels: pa.Table, rule: str) -> tuple[pa.Table, dict[str, Any]]:
    """The pairs (query_id, doc_id) to leave out of ranked lists, and the facts: rule, pairs, and the queries that have
    a passage of the same id, of the same text, and of both.

    Args:
        docs: the folder of written passages; one row group is in memory at a time.
        queries: query_id, text. rule: id, text, none or auto.
    """
    asked = pa.table({"query_id": queries["query_id"], "text": pc.utf8_trim_whitespace(queries["text"])})
    pairs = _find_pairs(docs, asked) if len(asked) else FOUND.empty_table()
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
    if counts["same_id"] and 2 * counts["same_id_and_text"] >= counts["same_id"]:
        return "id"
    return "text" if counts["same_text"] and 2 * counts["same_text"] >= queries else "none"


def _find_pairs(docs: Place, asked: pa.Table) -> pa.Table:
    """Pairs of a query and a passage that have the same id or the same text (title and text together count, too)."""
    ids, texts = IdTable(), IdTable()
    ids.add(asked["query_id"].to_pylist())
    texts.add(asked["text"].to_pylist())
    longest = pc.max(pc.binary_length(asked["text"])).as_py()
    found = [FOUND.empty_table()]
    for table in _read_passages(docs):
        names = table["doc_id"]
        same = names.filter(pa.array(ids.rows(names.to_pylist()) >= 0))
        found.append(pa.table([same, same, pa.repeat(False, len(same))], schema=FOUND))
        for rows in _wordings(table):
            rows = rows.filter(pc.less_equal(pc.binary_length(rows["text"]), longest))
            rows = rows.filter(pa.array(texts.rows(rows["text"].to_pylist()) >= 0))
            if len(rows):
                joined = rows.join(asked, keys="text", join_type="inner")
                found.append(joined.append_column("same_text", pa.repeat(True, len(joined))).select(FOUND.names))
    return pa.concat_tables(found)


def _wordings(table: pa.Table) -> Iterator[pa.Table]:
    """(doc_id, text) of the passages as their text alone, and of those with a title as both together."""
    text = pc.utf8_trim_whitespace(table["text"])
    yield pa.table({"doc_id": table["doc_id"], "text": text})
    titled = table.filter(pc.not_equal(table["title"], ""))
    whole = pc.utf8_trim_whitespace(pc.binary_join_element_wise(titled["title"], titled["text"], " "))
    yield pa.table({"doc_id": titled["doc_id"], "text": whole})


def _read_passages(docs: Place) -> Iterator[pa.Table]:
    for shard in docs.names():
        with (docs / shard).reading() as stream:
            file = pq.ParquetFile(stream)
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def _queries_of(pairs: pa.Table) -> int:
    return int(pc.count_distinct(pairs["query_id"]).as_py())


def _without_relevant(pairs: pa.Table, qrels: pa.Table) -> pa.Table:
    """The pairs, each once, without those that have a judgement of grade 1 or more."""
    pairs = pairs.group_by(["query_id", "doc_id"]).aggregate([])
    relevant = qrels.filter(pc.greater_equal(qrels["grade"], 1))
    return pairs.filter(pc.invert(pc.is_in(_join_ids(pairs), value_set=_join_ids(relevant))))


def _join_ids(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["query_id"], table["doc_id"], "\t")
