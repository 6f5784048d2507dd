"""Hard negatives from ranked lists: a pure function of the lists, the judgements, a teacher's scores and a seed.

Each candidate gets one verdict: it is allowed, or the first rule that refuses it. Negatives are drawn from the allowed.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

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
    "teacher_margin",
    "positive_not_ranked",
    "absolute_margin",
    "relative_margin",
)
"""What can become of a candidate; all but the first two are refusals, in the order in which they are asked.

not_drawn: a fair negative that was not needed, or is chosen from another list. positive: judged relevant, in any split.
near_duplicate: of a positive. positive_not_ranked: a margin is wanted, and a positive is not in the list.
"""
CODE = {name: np.uint8(code) for code, name in enumerate(VERDICTS)}
ALLOWED = CODE["not_drawn"]


class FilterConfig(Config):
    """Which candidates are too likely to be relevant to be negatives."""

    WITHDRAWN = (("unscored", "error"), ("max_score", None), ("min_score", None))

    near_duplicates: float = Field(
        0.8, ge=0.5, le=1, description="similarity to a positive from which a passage is refused; 1: only copies"
    )
    teacher_margin: float | None = Field(
        None, description="least difference between the teacher's scores of a positive and its negative; none: no limit"
    )
    absolute_margin: float | None = Field(
        None, description="least difference between the scores of a positive and its negative; none: no limit"
    )
    relative_margin: float | None = Field(
        None, description="least difference as a share of the positive's score, such as 0.05; none: no limit"
    )

    @property
    def asks_scores(self) -> bool:
        """Whether a filter uses the lists' own scores."""
        return self.absolute_margin is not None or self.relative_margin is not None


class CandidateFacts(NamedTuple):
    """Facts about each candidate, one number or boolean a row; NaN where a score is not known."""

    rank: Ints
    is_positive: Bools
    is_near: Bools
    score: Doubles
    positive_score: Doubles  # lowest score of the query's positives in the candidate's list; -inf if one is not in it
    teacher: Doubles
    positive_teacher: Doubles  # lowest teacher score of the query's positives; NaN if one has none


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

NEGATIVES = pa.schema([*CANDIDATES, ("teacher_score", pa.float32()), ("verdict", pa.string())])
"""A candidate, and what became of it (`VERDICTS`)."""

SCORES = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("score", pa.float32())])
"""A teacher's scores."""


class Stretch(NamedTuple):
    """The candidates of some queries (CANDIDATES), list after list, and facts about each."""

    table: pa.Table
    query_ids: pa.Array  # sorted
    query: Ints  # position of the candidate's query in query_ids
    source: Ints  # position of its list among all lists
    key: Ints  # number of the pair of query and passage
    draw: NDArray[np.uint64]  # a random number: a hash of (seed, query, passage)
    facts: CandidateFacts


def examine(
    table: pa.Table, sources: Sequence[str], known: KnownRelevant, scores: pa.Table | None, seed: int
) -> Stretch:
    """Collects the facts about candidates (CANDIDATES); every list of a query must be whole.

    Args:
        sources: all names in the column `source`, in the order in which lists are drawn from.
        scores: a teacher's (SCORES), of these queries or more.
    """
    query_ids = pc.unique(table["query_id"]).sort()
    positives = known.positives(query_ids)
    keys = Keys(query_ids, pc.unique(pa.chunked_array([*table["doc_id"].chunks, *positives["doc_id"].chunks])))
    query, source = places(table["query_id"], query_ids), places(table["source"], pa.array(sources, pa.string()))
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


def verdicts(stretch: Stretch, rules: FilterConfig, ranks: range) -> Codes:
    """One verdict a candidate, `ALLOWED` where no rule refuses it.

    Args:
        ranks: those that a negative may have.

    Raises:
        UserError: for a score that a rule asks for and that is not there.
    """
    facts = stretch.facts
    if rules.asks_scores and np.isnan(facts.score).any():
        row = _first_row(stretch, np.isnan(facts.score))
        raise UserError(
            f"filters: the list {row['source']!r} has no scores, so absolute_margin and relative_margin cannot be "
            "applied; use stages.*.mine.filters.teacher_margin with a teacher's scores"
        )
    codes = np.full(len(facts.rank), ALLOWED)
    refusals = _refusals(facts, rules, ranks)
    for name in reversed(VERDICTS):
        if name in refusals:
            codes[refusals[name]] = CODE[name]
    if rules.teacher_margin is not None:
        _refuse_unscored(stretch, codes)
    return codes


def _refusals(facts: CandidateFacts, rules: FilterConfig, ranks: range) -> dict[str, Bools]:
    """Rule -> the candidates that it refuses."""
    refusals = {
        "outside_ranks": (facts.rank < ranks.start) | (facts.rank >= ranks.stop),
        "positive": facts.is_positive,
        "near_duplicate": facts.is_near,
    }
    if rules.teacher_margin is not None:
        refusals["teacher_margin"] = facts.teacher + rules.teacher_margin > facts.positive_teacher
    if rules.asks_scores:
        refusals["positive_not_ranked"] = np.isneginf(facts.positive_score)
    if rules.absolute_margin is not None:
        refusals["absolute_margin"] = facts.score + rules.absolute_margin > facts.positive_score
    if rules.relative_margin is not None:
        positive = np.where(np.isneginf(facts.positive_score), 0, facts.positive_score)
        refusals["relative_margin"] = facts.score > positive - np.abs(positive) * rules.relative_margin
    return refusals


def _refuse_unscored(stretch: Stretch, codes: Codes) -> None:
    """Checks that every candidate, and every positive, has a teacher's score.

    Raises:
        UserError: naming a query and a passage that has none.
    """
    facts = stretch.facts
    fair = ~np.isin(codes, [CODE["outside_ranks"], CODE["positive"], CODE["near_duplicate"]])
    lacking = fair & (np.isnan(facts.teacher) | np.isnan(facts.positive_teacher))
    if lacking.any():
        row = _first_row(stretch, lacking)
        what = f"passage {row['doc_id']!r}" if np.isnan(facts.teacher[lacking][0]) else "a relevant passage"
        raise UserError(
            f"filters.teacher_margin: query {row['query_id']!r} has no teacher score for {what} ({lacking.sum()} like "
            "it here); score the judged passages and the candidates"
        )


def _first_row(stretch: Stretch, marked: Bools) -> dict[str, Any]:
    row: dict[str, Any] = stretch.table.slice(int(marked.argmax()), 1).to_pylist()[0]
    return row


def draw(stretch: Stretch, codes: Codes, per_query: int, choose: Literal["random", "top"]) -> Ints:
    """Draws negatives from the allowed candidates; returns their rows by query, list and rank.

    A query's negatives do not depend on other queries. A passage that several lists allow is taken from the first.

    Args:
        codes: the candidates' verdicts. per_query: negatives of a query, at most. choose: by the random numbers, or the
            best ranks.
    """
    allowed = np.flatnonzero(codes == ALLOWED)
    allowed = allowed[np.argsort(stretch.source[allowed], kind="stable")]
    _, first = np.unique(stretch.key[allowed], return_index=True)
    priority = stretch.draw if choose == "random" else stretch.facts.rank.astype(np.uint64)
    chosen = _first(allowed[np.sort(first)], stretch.query, priority, per_query)
    return chosen[np.lexsort((stretch.facts.rank[chosen], stretch.source[chosen], stretch.query[chosen]))]


def _first(rows: Ints, query: Ints, priority: NDArray[np.uint64], count: int) -> Ints:
    """The rows of lowest priority number, `count` of each query."""
    ordered = rows[np.lexsort((priority[rows], query[rows]))]
    groups = query[ordered]
    return np.asarray(ordered[np.arange(len(groups)) - np.searchsorted(groups, groups, "left") < count])


def negatives_table(stretch: Stretch, codes: Codes, rows: Ints) -> pa.Table:
    """The table of these rows with their verdicts (NEGATIVES)."""
    table = stretch.table.take(pa.array(rows))
    teacher_score = pa.array(stretch.facts.teacher[rows].astype(np.float32), from_pandas=True)
    verdict = pa.array(VERDICTS, pa.string()).take(pa.array(codes[rows]))
    return table.append_column("teacher_score", teacher_score).append_column("verdict", verdict).cast(NEGATIVES)
