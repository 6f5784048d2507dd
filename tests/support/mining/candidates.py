"""Lists, judgements and scores as plain dictionaries, in the tables that mining reads."""

import pyarrow as pa
from hypothesis import strategies as st

from midmask.mining.known import KnownRelevant
from midmask.mining.negatives import CANDIDATES, NegativeList

SOURCES = [NegativeList("a", "fa", "Flat"), NegativeList("b", "fb")]

DOCS = [f"d{row}" for row in range(8)]
QUERIES = [f"q{row}" for row in range(4)]

relevant = st.fixed_dictionaries({query: st.sets(st.sampled_from(DOCS), min_size=1, max_size=2) for query in QUERIES})
teachers = st.dictionaries(st.tuples(st.sampled_from(QUERIES), st.sampled_from(DOCS)), st.integers(-2, 2).map(float))


def lists_of(scores: st.SearchStrategy[int]) -> st.SearchStrategy["Lists"]:
    """Lists a and b of some queries, by falling quarters of scores."""
    one = st.lists(st.tuples(st.sampled_from(DOCS), scores), unique_by=lambda pair: pair[0], min_size=2)
    ranked = one.map(lambda found: sorted([(doc, score / 4) for doc, score in found], key=lambda pair: -pair[1]))
    queries = st.dictionaries(st.sampled_from(QUERIES), ranked, min_size=1)
    return st.fixed_dictionaries({"a": queries, "b": queries})


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
    relevant_ = sorted({doc for _, doc in pairs})
    like = [(doc, group) for group, name in enumerate(relevant_) for doc in sorted((near or {}).get(name, set()))]
    schemas = [("query_id", "doc_id"), ("doc_id", "group"), ("doc_id", "group")]
    rows = [pairs, list(zip(relevant_, range(len(relevant_)), strict=True)), like]
    types = {"query_id": pa.string(), "doc_id": pa.string(), "group": pa.int32()}
    return KnownRelevant(
        *(
            pa.table({name: pa.array([row[at] for row in own], types[name]) for at, name in enumerate(names)})
            for names, own in zip(schemas, rows, strict=True)
        )
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
