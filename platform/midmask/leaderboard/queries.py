"""Two systems query by query: who wins where, by kinds of queries, and the texts of those that differ most.

Texts, judgements and ranked lists behind an evaluation are read a few queries at a time, by row groups of its
artifacts, so that of a large collection only ids pass through memory, and the texts asked for.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.core.arrays import Doubles
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import tables_of
from midmask.leaderboard.lineage import artifact_of
from midmask.retrieve.blocks import StoredPassages
from midmask.retrieve.searched_queries import excluded_pairs, without_self
from midmask.store.artifact import Artifact
from midmask.store.place import Place


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation's record leads to. corpus, ranked: None where they cannot be reached; missing: which, and why.

    split: of the queries; the evaluation of a slice lies with its split. depth: of the list that was judged.
    """

    corpus: Artifact | None = None
    ranked: Artifact | None = None
    split: str = ""
    depth: int | None = None
    missing: tuple[str, ...] = ()


def evaluated(place: Place | None) -> Evaluated:
    """What can be reached from an evaluation's artifact.

    Args:
        place: None for a run that does not tell where its artifact lies.
    """
    if place is None:
        return Evaluated(missing=("the run does not tell where its artifact lies",))
    evaluation, why = artifact_of(place)
    if evaluation is None:
        return Evaluated(missing=(f"the evaluation {place}: {why}",))
    found: dict[str, Artifact | None] = {}
    missing = []
    for role in ("corpus", "ranked"):
        source = evaluation.record["inputs"].get(role)
        found[role], why = artifact_of(Place(source)) if source else (None, "the record does not name it")
        if found[role] is None:
            missing.append(f"its {role} {source or ''}: {why}")
    split, depth = str(evaluation.result.get("split", "")), evaluation.record["config"].get("depth")
    return Evaluated(found["corpus"], found["ranked"], split, depth, tuple(missing))


def query_texts(corpus: Artifact, query_ids: Collection[str]) -> dict[str, str]:
    """Query id -> text, for those that the corpus has."""
    with (corpus.place / "queries.parquet").reading() as stream:
        table = pq.read_table(stream, columns=["query_id", "text"])
    table = table.filter(pc.is_in(table["query_id"], value_set=pa.array(list(query_ids), pa.string())))
    return dict(zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def passage_texts(corpus: Artifact, doc_ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Passage id -> (title, text), for those that the corpus has."""
    passages = StoredPassages(corpus.place).find(sorted(doc_ids))
    return {doc_id: (title, text) for doc_id, title, text in passages.values()}


def grades(corpus: Artifact, split: str, query_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Query -> passage -> grade of the split's judgements, for these queries."""
    with (corpus.place / "qrels.parquet").reading() as stream:
        table = pq.read_table(stream, filters=[("split", "=", split), ("query_id", "in", sorted(query_ids))])
    found: dict[str, dict[str, int]] = {query_id: {} for query_id in query_ids}
    for row in table.select(["query_id", "doc_id", "grade"]).to_pylist():
        found[row["query_id"]][row["doc_id"]] = row["grade"]
    return found


def ranked_lists(source: Evaluated, query_ids: Collection[str]) -> dict[str, list[str]]:
    """Query -> passages that were judged as found for it, the first first; where the corpus can be reached, without
    those that the evaluation left out because they are the query itself.
    """
    assert source.ranked is not None, "asked for where it was reached"
    with (source.ranked.place / "ranked" / f"{source.split}.parquet").reading() as stream:
        table = pq.read_table(stream, filters=[("query_id", "in", sorted(query_ids))])
    table = table.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    if source.corpus is not None:
        table, _ = without_self(table, excluded_pairs(source.ranked, source.corpus), source.depth)
    found: dict[str, list[str]] = {query_id: [] for query_id in query_ids}
    for query_id, doc_id in zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        found[query_id].append(doc_id)
    return found


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


RELEVANT = (0, 1, 2, 5)
"""The largest number of relevant passages of each group but the last."""


@dataclass(frozen=True)
class QueryTraits:
    """Query -> number of words of its text, and number of passages judged relevant; missing: why they are not known."""

    words: Mapping[str, int]
    relevant: Mapping[str, int]
    missing: str = ""


@dataclass(frozen=True)
class QueryGroup:
    """Queries of a kind. label: the range of the number that they share ("3 to 8"); difference: the mean, per query."""

    label: str
    wins: int
    ties: int
    losses: int
    difference: float

    @property
    def queries(self) -> int:
        return self.wins + self.ties + self.losses


def query_traits(place: Place | None, query_ids: Sequence[str]) -> QueryTraits:
    """Reads the texts and judgements behind an evaluation.

    Args:
        place: of the evaluation; None for a run that does not tell it.
    """
    behind = evaluated(place)
    if behind.corpus is None:
        return QueryTraits({}, {}, "; ".join(behind.missing))
    judged = grades(behind.corpus, behind.split, query_ids)
    return QueryTraits(
        {query: len(text.split()) for query, text in query_texts(behind.corpus, query_ids).items()},
        {query: sum(grade > 0 for grade in own.values()) for query, own in judged.items()},
    )


def quartiles(numbers: Mapping[str, int]) -> tuple[int, ...]:
    """The largest number of each quarter of the queries but the last, ascending, equal ones once."""
    values = sorted(numbers.values())
    return tuple(sorted({values[(len(values) - 1) * part // 4] for part in (1, 2, 3)}))


def groups(pairing: Pairing, numbers: Mapping[str, int], bounds: Sequence[int]) -> list[QueryGroup]:
    """The paired queries by the range in which their number lies, ascending; empty ranges and unknown queries are left
    out.

    Args:
        bounds: the largest number of each range but the last, which has no end.
    """
    found: dict[int, list[tuple[int, float]]] = {}
    for query, difference in zip(pairing.queries, pairing.difference_N.tolist(), strict=True):
        if query in numbers:
            at = int(np.searchsorted(bounds, numbers[query], side="left"))
            found.setdefault(at, []).append((numbers[query], difference))
    return [_group(found[at]) for at in sorted(found)]


def _group(own: Sequence[tuple[int, float]]) -> QueryGroup:
    numbers = [number for number, _ in own]
    differences_N = np.array([difference for _, difference in own])
    wins, losses = int((differences_N > EQUAL).sum()), int((differences_N < -EQUAL).sum())
    low, high = min(numbers), max(numbers)
    label = f"{low}" if low == high else f"{low} to {high}"
    return QueryGroup(label, wins, len(own) - wins - losses, losses, float(differences_N.mean()))
