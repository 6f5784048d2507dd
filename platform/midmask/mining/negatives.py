"""Hard negatives from ranked lists: a pure function of the lists, the judgements, a teacher's scores and a seed.

Each candidate gets one verdict: it is allowed, or the first rule that refuses it. Negatives are drawn from the allowed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from midmask.core.arrays import Doubles, Ints
from midmask.core.config import Config
from midmask.core.randomness import hash64, mix
from midmask.errors import UserError
from midmask.mining.known import Keys, KnownRelevant, numbers, places, scores_of

Bools = NDArray[np.bool_]
Codes = NDArray[np.uint8]

VERDICTS = (
    "chosen",
    "not_drawn",
    "outside_ranks",
    "positive",
    "near_duplicate",
    "positive_unscored",
    "unscored",
    "teacher_margin",
    "max_score",
    "min_score",
    "positive_not_ranked",
    "absolute_margin",
    "relative_margin",
)
"""What can become of a candidate; all but the first two are refusals, in the order in which they are asked.

not_drawn: a fair negative that was not needed, or is chosen from another list. positive: judged relevant, in any split.
near_duplicate: of a positive. positive_unscored, unscored: the teacher has no score. positive_not_ranked: a margin is
wanted, and a positive is not in the list.
"""
CODE = {name: np.uint8(code) for code, name in enumerate(VERDICTS)}
ALLOWED = CODE["not_drawn"]


class FilterConfig(Config):
    """Which candidates are too likely to be relevant, or too far off, to be negatives."""

    near_duplicates: float = Field(
        0.8, ge=0.5, le=1, description="similarity to a positive from which a passage is refused; 1: only copies"
    )
    teacher_margin: float | None = Field(
        None, description="least difference between the teacher's scores of a positive and its negative; none: no limit"
    )
    unscored: Literal["error", "refuse"] = Field(
        "error", description="with a teacher margin, a candidate without a teacher score: an error, or refused"
    )
    max_score: float | None = Field(None, description="highest score of a negative in its list; none: any")
    min_score: float | None = Field(None, description="lowest score of a negative in its list; none: any")
    absolute_margin: float | None = Field(
        None, description="least difference between the scores of a positive and its negative; none: no limit"
    )
    relative_margin: float | None = Field(
        None, description="least difference as a share of the positive's score, such as 0.05; none: no limit"
    )

    @property
    def asks_scores(self) -> bool:
        """Whether a filter uses the lists' own scores."""
        limits = (self.max_score, self.min_score, self.absolute_margin, self.relative_margin)
        return any(value is not None for value in limits)


class CandidateFacts(NamedTuple):
    """Facts about each candidate, one number or boolean a row; NaN where a score is not known."""

    rank: Ints
    is_positive: Bools
    is_near: Bools
    score: Doubles
    positive_score: Doubles  # lowest score of the query's positives in the candidate's list; -inf if one is not in it
    teacher: Doubles
    positive_teacher: Doubles  # lowest teacher score of the query's positives; NaN if one has none


def verdicts(facts: CandidateFacts, rules: FilterConfig, ranks: range) -> Codes:
    """One verdict a candidate, `ALLOWED` where no rule refuses it; `ranks`: those that a negative may have."""
    refusals = {
        "outside_ranks": (facts.rank < ranks.start) | (facts.rank >= ranks.stop),
        "positive": facts.is_positive,
        "near_duplicate": facts.is_near,
        **_by_score(facts, rules),
    }
    if rules.teacher_margin is not None:
        refusals |= {
            "positive_unscored": np.isnan(facts.positive_teacher),
            "unscored": np.isnan(facts.teacher),
            "teacher_margin": beyond_absolute(facts.teacher, facts.positive_teacher, rules.teacher_margin),
        }
    codes = np.full(len(facts.rank), ALLOWED)
    for name in reversed(VERDICTS):
        if name in refusals:
            codes[refusals[name]] = CODE[name]
    return codes


def _by_score(facts: CandidateFacts, rules: FilterConfig) -> dict[str, Bools]:
    refusals: dict[str, Bools] = {}
    if rules.max_score is not None:
        refusals["max_score"] = facts.score > rules.max_score
    if rules.min_score is not None:
        refusals["min_score"] = facts.score < rules.min_score
    if rules.absolute_margin is not None:
        refusals["absolute_margin"] = beyond_absolute(facts.score, facts.positive_score, rules.absolute_margin)
    if rules.relative_margin is not None:
        refusals["relative_margin"] = beyond_relative(facts.score, facts.positive_score, rules.relative_margin)
    if rules.absolute_margin is not None or rules.relative_margin is not None:
        refusals["positive_not_ranked"] = np.isneginf(facts.positive_score)
    return refusals


def beyond_absolute(score: Doubles, positive: Doubles, margin: float) -> Bools:
    """Whether a score comes closer to its positive's than the margin."""
    return np.asarray(score + margin > positive)


def beyond_relative(score: Doubles, positive: Doubles, margin: float) -> Bools:
    """Like `beyond_absolute`, with the margin as a fraction of the positive's magnitude."""
    missing = np.isneginf(positive)
    lowest = np.where(missing, 0, positive)
    return np.asarray(missing | (score > lowest - np.abs(lowest) * margin))


CANDIDATES = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
        ("source", pa.string()),
    ]
)
"""What negatives are chosen from. rank counts from 1 within a query and source; score is null where a list has none."""

NEGATIVES = pa.schema(
    [
        *CANDIDATES,
        ("teacher_score", pa.float32()),
        ("verdict", pa.string()),
        ("list", pa.string()),
        ("index", pa.string()),
    ]
)
"""A candidate, what became of it (`VERDICTS`), the fingerprint of the artifact that listed it, and the index
that was searched for it; null where there was none.
"""

SCORES = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("score", pa.float32())])
"""A teacher's scores."""


@dataclass(frozen=True)
class NegativeList:
    """A list that negatives are taken from."""

    name: str  # of a system with its fingerprint, or as a file has it
    list: str  # the artifact's fingerprint
    index: str | None = None  # the index that was searched


@dataclass(frozen=True)
class Choice:
    """How many of the allowed passages of a query are taken, and which."""

    per_query: int  # at most so many of all
    # before that: at most so many from each list, in order; each adds passages that the lists before it did not
    per_source: int | None = None
    how: Literal["random", "top"] = "random"  # a draw by the seed, or the best ranks
    replacement: bool = False  # whether a query with too few allowed passages gets some of them several times
    seed: int = 0


class Stretch(NamedTuple):
    """The candidates of some queries (CANDIDATES), list after list, and facts about each."""

    table: pa.Table
    sources: Sequence[NegativeList]
    query_ids: pa.Array  # sorted
    query: Ints  # position of the candidate's query in query_ids
    source: Ints  # position of its list in sources
    key: Ints  # number of the pair of query and passage
    draw: NDArray[np.uint64]  # a random number: a hash of (seed, query, passage)
    facts: CandidateFacts


def examine(
    table: pa.Table, sources: Sequence[NegativeList], known: KnownRelevant, scores: pa.Table | None, seed: int
) -> Stretch:
    """Collects the facts about candidates (CANDIDATES); every list of a query must be whole.

    Args:
        sources: of all names in the column `source`, in the order in which lists are drawn from.
        scores: a teacher's (SCORES), of these queries or more.
    """
    query_ids = pc.unique(table["query_id"]).sort()
    positives = known.positives(query_ids)
    keys = Keys(query_ids, pc.unique(pa.chunked_array([*table["doc_id"].chunks, *positives["doc_id"].chunks])))
    names = pa.array([source.name for source in sources], pa.string())
    query, source = places(table["query_id"], query_ids), places(table["source"], names)
    key = keys.of(query, table["doc_id"])
    positive_query = numbers(positives["query"])
    positive_key = keys.of(positive_query, positives["doc_id"])
    positive_teacher = np.full(len(query_ids), np.inf)
    with np.errstate(invalid="ignore"):  # NaN, where a positive is not scored
        np.minimum.at(positive_teacher, positive_query, scores_of(positive_key, scores, keys))
    is_positive = np.isin(key, positive_key)
    score = table["score"].cast(pa.float64()).to_numpy()
    positive_count = np.bincount(positive_query, minlength=len(query_ids))
    by_query = mix(np.uint64(seed), hash64(query_ids.to_pylist()))
    by_doc = hash64(keys.doc_ids.to_pylist())
    return Stretch(
        table=table,
        sources=sources,
        query_ids=query_ids,
        query=query,
        source=source,
        key=key,
        draw=mix(by_query[query], by_doc[keys.docs(key)]),
        facts=CandidateFacts(
            rank=numbers(table["rank"]),
            is_positive=is_positive,
            is_near=np.isin(key, keys.of(*known.like(positives))) & ~is_positive,
            score=score,
            positive_score=_lowest(
                query * len(sources) + source, score, is_positive, np.repeat(positive_count, len(sources))
            ),
            teacher=scores_of(key, scores, keys),
            positive_teacher=positive_teacher[query],
        ),
    )


def _lowest(listed: Ints, score: Doubles, is_positive: NDArray[np.bool_], wanted: Ints) -> Doubles:
    """For each row, the lowest score of a positive in its list; -inf if the list lacks one of the `wanted`."""
    lowest = np.full(len(wanted), np.inf)
    with np.errstate(invalid="ignore"):  # NaN, in lists without scores
        np.minimum.at(lowest, listed[is_positive], score[is_positive])
    lacking = np.bincount(listed[is_positive], minlength=len(wanted)) < wanted
    return np.asarray(np.where(lacking, -np.inf, lowest)[listed])


def refuse_unscored(stretch: Stretch, verdict: Codes) -> None:
    """Checks that every candidate has a teacher's score.

    Raises:
        UserError: naming a query and a passage that has none.
    """
    facts = stretch.facts
    fair = ~np.isin(verdict, [CODE["outside_ranks"], CODE["positive"], CODE["near_duplicate"]])
    lacking = np.flatnonzero(fair & (np.isnan(facts.teacher) | np.isnan(facts.positive_teacher)))
    if len(lacking):
        row = stretch.table.slice(int(lacking[0]), 1).to_pylist()[0]
        what = f"passage {row['doc_id']!r}" if np.isnan(facts.teacher[lacking[0]]) else "a relevant passage"
        raise UserError(
            f"filters.teacher_margin: query {row['query_id']!r} has no teacher score for {what} ({len(lacking)} more "
            "like it here); score the judged passages and the candidates, or set stages.*.mine.filters.unscored=refuse"
        )


def draw(stretch: Stretch, verdict: Codes, choice: Choice) -> Ints:
    """Draws negatives from the allowed candidates; returns their rows by query, list and rank.

    A query's negatives do not depend on other queries. A passage that several lists allow is taken from the first.
    """
    allowed = np.flatnonzero(verdict == ALLOWED)
    allowed = allowed[np.argsort(stretch.source[allowed], kind="stable")]
    priority = stretch.draw if choice.how == "random" else stretch.facts.rank.astype(np.uint64)
    if choice.per_source is not None:
        allowed = _from_each(stretch, allowed, priority, choice.per_source)
    _, first = np.unique(stretch.key[allowed], return_index=True)
    fair = allowed[np.sort(first)]
    chosen = _first(fair, stretch.query, priority, choice.per_query)
    if choice.replacement:
        chosen = np.concatenate([chosen, _again(stretch, chosen, choice)])
    return chosen[np.lexsort((stretch.facts.rank[chosen], stretch.source[chosen], stretch.query[chosen]))]


def _from_each(stretch: Stretch, allowed: Ints, priority: NDArray[np.uint64], count: int) -> Ints:
    taken = np.empty(0, np.int64)
    for source in np.unique(stretch.source[allowed]):
        listed = allowed[stretch.source[allowed] == source]
        fresh = listed[~np.isin(stretch.key[listed], stretch.key[taken])]
        taken = np.concatenate([taken, _first(fresh, stretch.query, priority, count)])
    return taken


def _first(rows: Ints, query: Ints, priority: NDArray[np.uint64], count: int) -> Ints:
    """The rows of lowest priority number, `count` of each query."""
    ordered = rows[np.lexsort((priority[rows], query[rows]))]
    groups = query[ordered]
    return np.asarray(ordered[np.arange(len(groups)) - np.searchsorted(groups, groups, "left") < count])


def _again(stretch: Stretch, chosen: Ints, choice: Choice) -> Ints:
    """Rows drawn again, with replacement, from queries that have some but too few."""
    ordered = chosen[np.lexsort((chosen, stretch.query[chosen]))]
    _, first, count = np.unique(stretch.query[ordered], return_index=True, return_counts=True)
    again = [np.empty(0, np.int64)]
    for start, have in zip(first.tolist(), count.tolist(), strict=True):
        numbers_ = mix(stretch.draw[ordered[start]], np.arange(choice.per_query - have, dtype=np.uint64))
        again.append(ordered[start + (numbers_ % np.uint64(have)).astype(np.int64)])
    return np.concatenate(again)


def negatives_table(stretch: Stretch, verdict: Codes, rows: Ints) -> pa.Table:
    """The table of these rows with their verdicts and sources (NEGATIVES)."""
    source = pa.array(stretch.source[rows])
    columns = {
        "teacher_score": pa.array(stretch.facts.teacher[rows].astype(np.float32), from_pandas=True),
        "verdict": pa.array(VERDICTS, pa.string()).take(pa.array(verdict[rows])),
        "list": pa.array([source.list for source in stretch.sources], pa.string()).take(source),
        "index": pa.array([source.index for source in stretch.sources], pa.string()).take(source),
    }
    table = stretch.table.take(pa.array(rows))
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table.cast(NEGATIVES)
