"""Systems query by query: the texts, judgements and ranked lists behind an evaluation.

They are read a few queries at a time, by row groups of its artifacts, so that of a large collection only ids pass
through memory, and the texts asked for.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from midmask.leaderboard.artifacts import Evaluated, evaluated
from midmask.retrieve.blocks import StoredPassages
from midmask.retrieve.searched_queries import excluded_pairs, without_self
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table


def query_texts(corpus: Artifact, query_ids: Collection[str]) -> dict[str, str]:
    """Query id -> text, for those that the corpus has."""
    table = read_table(corpus.place / "queries.parquet", ["query_id", "text"])
    table = table.filter(pc.is_in(table["query_id"], value_set=pa.array(list(query_ids), pa.string())))
    return dict(zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def passage_texts(corpus: Artifact, doc_ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Passage id -> (title, text), for those that the corpus has."""
    passages = StoredPassages(corpus.place).find(sorted(doc_ids))
    return {doc_id: (title, text) for doc_id, title, text in passages.values()}


def grades(corpus: Artifact, split: str, query_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Query -> passage -> grade of the split's judgements, for these queries."""
    within = [("split", "=", split), ("query_id", "in", sorted(query_ids))]
    table = read_table(corpus.place / "qrels.parquet", filters=within)
    by_query: dict[str, dict[str, int]] = {query_id: {} for query_id in query_ids}
    for row in table.select(["query_id", "doc_id", "grade"]).to_pylist():
        by_query[row["query_id"]][row["doc_id"]] = row["grade"]
    return by_query


def ranked_lists(source: Evaluated, query_ids: Collection[str]) -> dict[str, list[str]]:
    """Query -> passages that were judged as found for it, the first first; where the corpus can be reached, without
    those that the evaluation left out because they are the query itself.
    """
    assert source.ranked is not None, "asked for where it was reached"
    lists = source.ranked.place / "ranked" / f"{source.split}.parquet"
    table = read_table(lists, filters=[("query_id", "in", sorted(query_ids))])
    table = table.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    if source.corpus is not None:
        table, _ = without_self(table, excluded_pairs(source.ranked, source.corpus), source.depth)
    by_query: dict[str, list[str]] = {query_id: [] for query_id in query_ids}
    for query_id, doc_id in zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        by_query[query_id].append(doc_id)
    return by_query


@dataclass(frozen=True)
class RetrievedPassage:
    """A passage that was judged or retrieved for a query."""

    doc_id: str
    title: str | None  # None where the corpus lacks the passage or cannot be reached; so is the text
    text: str | None
    grade: int | None  # None where the passage is not judged
    ranks: Mapping[str, int | None]  # run -> rank of the passage; None where it was not retrieved


@dataclass(frozen=True)
class Query:
    """A query with the passages that were judged and retrieved for it."""

    query_id: str
    text: str | None  # None where the corpus cannot be reached
    judged: tuple[RetrievedPassage, ...]  # relevant ones first
    retrieved: Mapping[str, tuple[RetrievedPassage, ...]]  # run -> the first of its ranked list


def look_up(query_ids: Sequence[str], artifacts: Mapping[str, Place | None], top: int) -> tuple[list[Query], list[str]]:
    """Collects the passages that were judged and retrieved for some queries.

    Args:
        artifacts: run -> where its evaluation lies; the corpus is that of the first that leads to one.
        top: passages of each ranked list.

    Returns:
        The queries, and the runs whose corpus or list cannot be reached.
    """
    behind = {name: evaluated(place) for name, place in artifacts.items()}
    missing = [name for name, source in behind.items() if source.corpus is None or source.ranked is None]
    lists = {name: ranked_lists(source, query_ids) for name, source in behind.items() if source.ranked is not None}
    texts: dict[str, str] = {}
    judged: dict[str, dict[str, int]] = {query_id: {} for query_id in query_ids}
    passages: dict[str, tuple[str, str]] = {}
    for source in behind.values():
        if source.corpus is not None:
            texts, judged = query_texts(source.corpus, query_ids), grades(source.corpus, source.split, query_ids)
            listed = {doc_id for lists_of in lists.values() for best in lists_of.values() for doc_id in best[:top]}
            passages = passage_texts(source.corpus, listed.union(*judged.values()))
            break

    def passage(query_id: str, doc_id: str) -> RetrievedPassage:
        title, text = passages.get(doc_id, (None, None))
        ranks = {name: _rank(by_query[query_id], doc_id) for name, by_query in lists.items()}
        return RetrievedPassage(doc_id, title, text, judged[query_id].get(doc_id), ranks)

    def query(query_id: str) -> Query:
        relevant = sorted(judged[query_id], key=lambda doc_id: (-judged[query_id][doc_id], doc_id))
        retrieved = {
            name: tuple(passage(query_id, doc_id) for doc_id in by_query[query_id][:top])
            for name, by_query in lists.items()
        }
        return Query(query_id, texts.get(query_id), tuple(passage(query_id, doc_id) for doc_id in relevant), retrieved)

    return [query(query_id) for query_id in query_ids], missing


def _rank(ranking: Sequence[str], doc_id: str) -> int | None:
    return ranking.index(doc_id) + 1 if doc_id in ranking else None
