"""Two systems query by query: who wins where, and what the queries look like on which they differ most."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from midmask.arrays import Doubles
from midmask.artifact import Place
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.seeds import tables_of
from midmask.leaderboard.passages import evaluated, grades, passage_texts, query_texts, ranked_lists

EQUAL = 1e-9
"""Values that differ by less are a tie: measures are sums in float64."""

Sided = Literal["either", "wins", "losses"]


@dataclass(frozen=True)
class Pairing:
    """Values of a measure on the queries that two systems share, means over their seeds.

    queries: their ids, ascending; own_N, base_N: the values of a system and of the one that it is held against.
    left_out: queries that only one of the two has.
    """

    queries: tuple[str, ...]
    own_N: Doubles
    base_N: Doubles
    left_out: int

    @property
    def difference_N(self) -> Doubles:
        return self.own_N - self.base_N

    @property
    def wins(self) -> int:
        return int((self.difference_N > EQUAL).sum())

    @property
    def losses(self) -> int:
        return int((self.difference_N < -EQUAL).sum())

    @property
    def ties(self) -> int:
        return len(self.queries) - self.wins - self.losses


def pair_systems(own: pa.Table | Sequence[pa.Table], base: pa.Table | Sequence[pa.Table], measure: str) -> Pairing:
    """A system against another.

    Args:
        own, base: (query_id, measure, value), one table, or one per seed.
    """
    values, others = _seed_means(own, measure), _seed_means(base, measure)
    shared = sorted(values.keys() & others.keys())
    return Pairing(
        tuple(shared),
        np.array([values[query] for query in shared]),
        np.array([others[query] for query in shared]),
        len(values.keys() ^ others.keys()),
    )


def _seed_means(tables: pa.Table | Sequence[pa.Table], measure: str) -> dict[str, float]:
    """Query -> its mean value over the seeds, for the queries that all seeds have."""
    seeds = [by_query(table, measure) for table in tables_of(tables)]
    shared = set.intersection(*(set(own) for own in seeds))
    return {query: float(np.mean([own[query] for own in seeds])) for query in shared}


def widest(pairing: Pairing, count: int, side: Sided = "either") -> list[str]:
    """The queries that differ most, those of equal difference by their ids; ties are none."""
    difference_N = pairing.difference_N
    sizes_N = {"either": np.abs(difference_N), "wins": difference_N, "losses": -difference_N}[side]
    order = sorted(range(len(sizes_N)), key=lambda at: (-sizes_N[at], pairing.queries[at]))
    return [pairing.queries[at] for at in order[:count] if sizes_N[at] > EQUAL]


@dataclass(frozen=True)
class RetrievedPassage:
    """title, text: None where the corpus has no such passage, or cannot be reached. grade: None where nobody judged
    it. ranks: run -> its rank there, None where it was not found.
    """

    doc_id: str
    title: str | None
    text: str | None
    grade: int | None
    ranks: Mapping[str, int | None]


@dataclass(frozen=True)
class Query:
    """text: None where the corpus cannot be reached. judged: relevant ones first; retrieved: run -> its first ones."""

    query_id: str
    text: str | None
    judged: tuple[RetrievedPassage, ...]
    retrieved: Mapping[str, tuple[RetrievedPassage, ...]]


def look_up(
    query_ids: Sequence[str], artifacts: Mapping[str, Place | None], top: int
) -> tuple[list[Query], dict[str, str]]:
    """These queries with what was judged and retrieved for them.

    Args:
        artifacts: run -> where its evaluation lies; the corpus is that of the first that leads to one.
        top: passages of each ranked list.

    Returns:
        The queries, and, run -> what of it cannot be reached.
    """
    behind = {name: evaluated(place) for name, place in artifacts.items()}
    missing = {name: "; ".join(one.missing) for name, one in behind.items() if one.missing}
    lists = {name: ranked_lists(one, query_ids) for name, one in behind.items() if one.ranked is not None}
    known = next((one for one in behind.values() if one.corpus is not None), None)
    if known is None or known.corpus is None:
        texts, judged = dict[str, str](), {query_id: dict[str, int]() for query_id in query_ids}
        passages: dict[str, tuple[str, str]] = {}
    else:
        texts, judged = query_texts(known.corpus, query_ids), grades(known.corpus, known.split, query_ids)
        passages = passage_texts(known.corpus, _wanted(judged, lists, top))
    about = _Known(texts, judged, lists, passages)
    return [about.query(query_id, top) for query_id in query_ids], missing


def _wanted(
    judged: Mapping[str, Mapping[str, int]], lists: Mapping[str, Mapping[str, Sequence[str]]], top: int
) -> Collection[str]:
    found = {doc_id for own in judged.values() for doc_id in own}
    return found | {doc_id for own in lists.values() for ranking in own.values() for doc_id in ranking[:top]}


@dataclass(frozen=True)
class _Known:
    """What was read: texts of queries, their judgements, ranked lists by run and query, and passages."""

    texts: Mapping[str, str]
    judged: Mapping[str, Mapping[str, int]]
    lists: Mapping[str, Mapping[str, Sequence[str]]]
    passages: Mapping[str, tuple[str, str]]

    def query(self, query_id: str, top: int) -> Query:
        judged = sorted(self.judged[query_id], key=lambda doc_id: (-self.judged[query_id][doc_id], doc_id))
        retrieved = {
            name: tuple(self.passage(query_id, doc_id) for doc_id in own[query_id][:top])
            for name, own in self.lists.items()
        }
        return Query(
            query_id,
            self.texts.get(query_id),
            tuple(self.passage(query_id, doc_id) for doc_id in judged),
            retrieved,
        )

    def passage(self, query_id: str, doc_id: str) -> RetrievedPassage:
        title, text = self.passages.get(doc_id, (None, None))
        ranks = {name: _rank(own[query_id], doc_id) for name, own in self.lists.items()}
        return RetrievedPassage(doc_id, title, text, self.judged[query_id].get(doc_id), ranks)


def _rank(ranking: Sequence[str], doc_id: str) -> int | None:
    return ranking.index(doc_id) + 1 if doc_id in ranking else None
