"""What a person's judgements say of a verdict's systems, beside what the verdict estimated.

Passages without a judgement count as not relevant, as in an evaluation of the same labelled set. That is harder on a
system whose results were judged less, so the share of judged results stands beside each value, and the pool of all
systems' results is there to be judged. A query counts once one of its passages was judged relevant.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midmask.choice.judgements import query_id
from midmask.choice.verdict import Verdict
from midmask.evaluation.measures import by_query, evaluate
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask.randomness.texts import hash64

MEASURE = "nDCG@10"
CUTOFF = 10

FEWEST = 10
"""Judged queries below which no sentence compares the judgements with the verdict."""

EQUAL = 1e-9
"""Values of two systems that differ by less are a tie."""

RankedBySystem = Mapping[str, Mapping[str, Sequence[str]]]
"""System -> query id -> its ranked document ids, the best first."""

GradesByQuery = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade."""


@dataclass(frozen=True)
class JudgedSystem:
    """One system on the judged queries. value: its mean nDCG@10, where passages without a judgement are not relevant.
    judged: share of its first ten passages, over all these queries, that have a judgement.
    """

    label: str
    queries: int
    value: float
    judged: float


@dataclass(frozen=True)
class JudgedPair:
    """A system against another on the judged queries. difference: mean of the first's nDCG@10 less the second's; low,
    high: its interval with the verdict's coverage, infinite for a single query.
    """

    first: str
    second: str
    wins: int
    ties: int
    losses: int
    difference: float
    low: float
    high: float

    @property
    def queries(self) -> int:
        return self.wins + self.ties + self.losses


def answerable(grades: GradesByQuery) -> list[str]:
    """Ids of the queries with a relevant passage."""
    return [query for query, own in grades.items() if any(grade > 0 for grade in own.values())]


def values_of(lists: Mapping[str, Sequence[str]], grades: GradesByQuery) -> pa.Table:
    """nDCG@10 of one system: query_id, measure, value, for each answerable query.

    Args:
        lists: query id -> ranked document ids, of all answerable queries.
    """
    wanted = answerable(grades)
    rows = [(query, doc_id, rank) for query in wanted for rank, doc_id in enumerate(lists[query], start=1)]
    columns = [[row[column] for row in rows] for column in range(3)]
    types = (pa.string(), pa.string(), pa.int32())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    ranked = pa.table(arrays, names=["query_id", "doc_id", "rank"])
    judged = [("test", query, doc_id, grade) for query in wanted for doc_id, grade in grades[query].items()]
    qrels = pa.table(
        [list(column) for column in zip(*judged, strict=True)], names=["split", "query_id", "doc_id", "grade"]
    )
    return evaluate(ranked, qrels, "test", [MEASURE])


def judged_systems(lists: RankedBySystem, grades: GradesByQuery) -> list[JudgedSystem]:
    """Each system's mean, the best first; empty while no query is answerable."""
    wanted = answerable(grades)
    if not wanted:
        return []
    found = []
    for label, own in lists.items():
        values = by_query(values_of(own, grades), MEASURE).values()
        top = [doc_id in grades[query] for query in wanted for doc_id in own[query][:CUTOFF]]
        found.append(JudgedSystem(label, len(wanted), sum(values) / len(wanted), sum(top) / max(1, len(top))))
    return sorted(found, key=lambda one: -one.value)


def judged_pair(
    lists: RankedBySystem, grades: GradesByQuery, first: str, second: str, coverage: float
) -> JudgedPair | None:
    """The first system against the second; None while no query is answerable.

    Args:
        coverage: of the interval, such as 0.9.
    """
    if not answerable(grades):
        return None
    tables = {label: values_of(lists[label], grades) for label in (first, second)}
    own, other = (by_query(table, MEASURE) for table in tables.values())
    gains = [own[query] - other[query] for query in own]
    wins, losses = sum(gain > EQUAL for gain in gains), sum(gain < -EQUAL for gain in gains)
    row = _compared(tables, first, second, coverage)
    return JudgedPair(first, second, wins, len(gains) - wins - losses, losses, row.difference, row.low, row.high)


def _compared(tables: Mapping[str, pa.Table], first: str, second: str, coverage: float) -> Comparison:
    (row,) = compare(
        {label: tables[label] for label in (first, second)},
        measure=MEASURE,
        baseline=second,
        correction=None,
        correction_alpha=1 - coverage,
    )
    return row


def plain_words(pair: JudgedPair, verdict: Verdict) -> list[str]:
    """What the judgements say of a pair, and whether that is what the verdict estimated, in sentences."""
    queries = "1 judged query" if pair.queries == 1 else f"{pair.queries} judged queries"
    counts = f"On {queries}, {pair.first} is better on {pair.wins}, equal on {pair.ties} and worse on {pair.losses}."
    if pair.queries < FEWEST:
        return [counts, f"That is too few to compare with the verdict: judge at least {FEWEST} queries."]
    level = f"{verdict.calibration.level:.0%}"
    own = f"Its {MEASURE} differs by {pair.difference:+.3f} ({level} interval {pair.low:+.3f} to {pair.high:+.3f})."
    estimate = next((one for one in verdict.systems if one.label == pair.first), None)
    if estimate is None or pair.second != verdict.baseline:
        return [counts, own, f"The verdict estimated differences from {verdict.baseline} only."]
    said = (
        f"The verdict expected {estimate.gain:+.3f} {verdict.measure} "
        f"({estimate.gain_low:+.3f} to {estimate.gain_high:+.3f})."
    )
    if pair.low > estimate.gain_high:
        outcome = "Your judgements show a larger gain than the verdict expected."
    elif pair.high < estimate.gain_low:
        outcome = "Your judgements show a smaller gain than the verdict expected"
        outcome += f", and {_better(pair)}." if pair.high < 0 else "."
    elif pair.low > 0 or pair.high < 0:
        outcome = f"Your judgements agree with the verdict, and show by themselves that {_better(pair)}."
    else:
        outcome = "Your judgements do not contradict the verdict; by themselves they do not show a difference yet."
    return [counts, own, said, outcome]


def _better(pair: JudgedPair) -> str:
    return f"{pair.first if pair.low > 0 else pair.second} is better"


def pool(lists: Mapping[str, Sequence[str]], query: str, judged: Mapping[str, int], depth: int = CUTOFF) -> list[str]:
    """Unjudged passages among the first `depth` of any system for a query, in the order of a hash, which does not show
    who found them nor how high.

    Args:
        lists: system -> its ranked document ids. judged: document id -> grade, of this query.
    """
    found = {doc_id for own in lists.values() for doc_id in own[:depth]} - judged.keys()
    names = sorted(found)
    if not names:
        return []
    keys = hash64([f"{query_id(query)}/{name}" for name in names], "pool").tolist()
    return [name for _, name in sorted(zip(keys, names, strict=True))]


def next_to_judge(
    queries: Iterable[str],
    lists_of: Callable[[str], Mapping[str, Sequence[str]]],
    grades: GradesByQuery,
    skipped: frozenset[tuple[str, str]] = frozenset(),
) -> tuple[str, list[str]] | None:
    """The first query whose pool is not judged to its end, and what is left of the pool; None if there is none.

    Args:
        queries: texts, those to be judged first at the front. lists_of: text -> system -> ranked document ids.
        skipped: (query id, document id) of passages to leave out.
    """
    for query in queries:
        left = pool(lists_of(query), query, grades.get(query_id(query), {}))
        left = [doc_id for doc_id in left if (query_id(query), doc_id) not in skipped]
        if left:
            return query, left
    return None
