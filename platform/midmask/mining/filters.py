"""Why a passage of a ranked list may not be a negative: one verdict for each candidate, the first rule that refuses it.

Score rules mean what sentence-transformers' `mine_hard_negatives` means by their names, with p the lowest score of the
query's positives (the hardest one) and s the candidate's: refused where s > max_score, s < min_score,
s + absolute_margin > p, or s > p - |p| relative_margin. A positive that is not in the list scores below all that is: p
is then -inf, and a margin refuses every candidate. `teacher_margin` is an absolute margin on the teacher's scores: 3 on
cross-encoder logits in the recipe of msmarco-hard-negatives.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from midmask.arrays import Doubles, Ints
from midmask.identity import Config

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
        wanted = (self.max_score, self.min_score, self.absolute_margin, self.relative_margin)
        return any(value is not None for value in wanted)


class CandidateFacts(NamedTuple):
    """Facts about each candidate, one number or boolean a row; NaN where a score is not known.

    positive_score: the lowest score of the query's positives in the candidate's list; -inf if one is not in it.
    positive_teacher: the lowest teacher score of the query's positives; NaN if one has none.
    """

    rank: Ints
    is_positive: Bools
    is_near: Bools
    score: Doubles
    positive_score: Doubles
    teacher: Doubles
    positive_teacher: Doubles


def verdicts(facts: CandidateFacts, rules: FilterConfig, ranks: range) -> Codes:
    """One verdict a candidate, `ALLOWED` where no rule refuses it; `ranks`: those that a negative may have."""
    refusals = {
        "outside_ranks": (facts.rank < ranks.start) | (facts.rank >= ranks.stop),
        "positive": facts.is_positive,
        "near_duplicate": facts.is_near,
        **_by_teacher(facts, rules),
        **_by_score(facts, rules),
    }
    found = np.full(len(facts.rank), ALLOWED)
    for name in reversed(VERDICTS):
        if name in refusals:
            found[refusals[name]] = CODE[name]
    return found


def _by_teacher(facts: CandidateFacts, rules: FilterConfig) -> dict[str, Bools]:
    if rules.teacher_margin is None:
        return {}
    return {
        "positive_unscored": np.isnan(facts.positive_teacher),
        "unscored": np.isnan(facts.teacher),
        "teacher_margin": beyond_absolute(facts.teacher, facts.positive_teacher, rules.teacher_margin),
    }


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
    """As `beyond_absolute`, with the margin as a share of the positive's magnitude."""
    missing = np.isneginf(positive)
    lowest = np.where(missing, 0, positive)
    return np.asarray(missing | (score > lowest - np.abs(lowest) * margin))
