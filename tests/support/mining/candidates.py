"""Lists, judgements and scores as plain dictionaries, in the tables that mining reads."""

import pyarrow as pa

from midmask.mining.known import KnownRelevant
from midmask.mining.negatives import CANDIDATES, NegativeList

SOURCES = [NegativeList("a", "fa", "Flat"), NegativeList("b", "fb")]

Lists = dict[str, dict[str, list[tuple[str, float | None]]]]
"""source -> query -> (passage, score), best first."""


def candidates(lists: Lists) -> pa.Table:
    rows = [
        (query, doc, rank, score, source)
        for source, queries in sorted(lists.items())
        for query, found in sorted(queries.items())
        for rank, (doc, score) in enumerate(found, start=1)
    ]
    columns = list(zip(*rows, strict=True)) or [[]] * 5
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, CANDIDATES, strict=True)],
        schema=CANDIDATES,
    )


def known(positives: dict[str, set[str]], near: dict[str, set[str]] | None = None) -> KnownRelevant:
    """near: positive -> the passages like it; every positive is a group of its own."""
    pairs = [(query, doc) for query, docs in positives.items() for doc in sorted(docs)]
    relevant = sorted({doc for _, doc in pairs})
    like = [(doc, group) for group, name in enumerate(relevant) for doc in sorted((near or {}).get(name, set()))]
    return KnownRelevant(
        pa.table(
            {
                "query_id": pa.array([q for q, _ in pairs], pa.string()),
                "doc_id": pa.array([d for _, d in pairs], pa.string()),
            }
        ),
        pa.table({"doc_id": pa.array(relevant, pa.string()), "group": pa.array(range(len(relevant)), pa.int32())}),
        pa.table(
            {"doc_id": pa.array([d for d, _ in like], pa.string()), "group": pa.array([g for _, g in like], pa.int32())}
        ),
    )


def scored(scores: dict[tuple[str, str], float]) -> pa.Table:
    rows = sorted(scores.items())
    return pa.table(
        {
            "query_id": pa.array([query for (query, _), _ in rows], pa.string()),
            "doc_id": pa.array([doc for (_, doc), _ in rows], pa.string()),
            "score": pa.array([score for _, score in rows], pa.float32()),
        }
    )
