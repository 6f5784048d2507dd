"""Hard negatives from ranked lists: a pure function of the lists, the judgements, a teacher's scores and a seed.

Each candidate gets one verdict: it is allowed, or the first rule that refuses it. Negatives are drawn from the allowed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from midmask.core.arrays import Ints
from midmask.core.config import Config
from midmask.core.randomness import hash64, mix
from midmask.errors import UserError
from midmask.mining.known import PAIR, Known

if TYPE_CHECKING:
    import pandas as pd

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


def examine(
    candidates: pa.Table, sources: Sequence[str], known: Known, scores: pa.Table | None, seed: int
) -> "pd.DataFrame":
    """The candidates of some queries and facts about each; every list of a query must be whole.

    Args:
        candidates: as CANDIDATES.
        sources: all names in the column `source`, in the order in which lists are drawn from.
        known: of these queries. scores: a teacher's (SCORES), of these queries or more.

    Returns:
        The columns of CANDIDATES and draw (a random number, the hash of seed, query and passage), is_positive, is_near,
        positive_score (lowest score of the query's positives in the candidate's list; -inf if one is not in it),
        teacher and positive_teacher (lowest teacher score of the query's positives). NaN where a score is not known.
    """
    import pandas as pd  # here: a dry run does without it

    rows = candidates.to_pandas()
    rows["source"] = pd.Categorical(rows["source"], sources, ordered=True)
    rows["score"] = rows["score"].astype(np.float64)
    rows["draw"] = mix(mix(np.uint64(seed), _hashes(rows["query_id"])), _hashes(rows["doc_id"]))
    positives = known.relevant.to_pandas()
    rows["is_positive"] = _are_among(rows, positives)
    rows["is_near"] = _are_among(rows, known.alike.to_pandas()) & ~rows["is_positive"]
    rows["positive_score"] = _lowest_listed(rows, positives)
    scored = (SCORES.empty_table() if scores is None else scores.select(SCORES.names)).to_pandas()
    scored = scored.rename(columns={"score": "teacher"}).astype({"teacher": np.float64})
    rows = rows.merge(scored, "left", PAIR)
    judged = positives.merge(scored, "left", PAIR).fillna({"teacher": -np.inf}).groupby("query_id")["teacher"].min()
    rows["positive_teacher"] = rows["query_id"].map(judged.replace(-np.inf, np.nan))
    return rows.astype(dict.fromkeys(PAIR, "category"))  # numbers are sorted faster than texts


def _hashes(names: "pd.Series[str]") -> NDArray[np.uint64]:
    codes, different = names.factorize()
    hashes: NDArray[np.uint64] = hash64(different.tolist())[codes]
    return hashes


def _are_among(rows: "pd.DataFrame", pairs: "pd.DataFrame") -> "pd.Series[bool]":
    return rows[PAIR].merge(pairs[PAIR], "left", PAIR, indicator="found")["found"] == "both"


def _lowest_listed(rows: "pd.DataFrame", positives: "pd.DataFrame") -> NDArray[np.float64]:
    """For each row, the lowest score of a positive in its list; -inf if the list lacks one of them."""
    listed = rows[rows["is_positive"]].groupby(["query_id", "source"], observed=True)["score"]
    scores = rows[["query_id", "source"]].join(listed.agg(["size", "min"]), ["query_id", "source"])
    expected = rows["query_id"].map(positives.groupby("query_id").size())
    return np.where(scores["size"].fillna(0) < expected, -np.inf, scores["min"])


def verdicts(rows: "pd.DataFrame", rules: FilterConfig, ranks: range) -> Codes:
    """One verdict a candidate, `ALLOWED` where no rule refuses it.

    Args:
        rows: of `examine`. ranks: those that a negative may have.

    Raises:
        UserError: for a score that a rule asks for and that is not there.
    """
    if rules.asks_scores and rows["score"].isna().any():
        raise UserError(
            f"filters: the list {rows['source'][rows['score'].isna()].iloc[0]!r} has no scores, so absolute_margin and "
            "relative_margin cannot be applied; use stages.*.mine.filters.teacher_margin with a teacher's scores"
        )
    refusals = _refusals(rows, rules, ranks)
    codes = np.full(len(rows), ALLOWED)
    for name in reversed(VERDICTS):
        if name in refusals:
            codes[refusals[name]] = CODE[name]
    if rules.teacher_margin is not None:
        _refuse_unscored(rows[(codes == ALLOWED) | (codes > CODE["near_duplicate"])])
    return codes


def _refusals(rows: "pd.DataFrame", rules: FilterConfig, ranks: range) -> "dict[str, pd.Series[bool]]":
    """Rule -> the candidates that it refuses."""
    refusals = {
        "outside_ranks": ~rows["rank"].between(ranks.start, ranks.stop - 1),
        "positive": rows["is_positive"],
        "near_duplicate": rows["is_near"],
    }
    if rules.teacher_margin is not None:
        refusals["teacher_margin"] = rows["teacher"] + rules.teacher_margin > rows["positive_teacher"]
    if rules.asks_scores:
        refusals["positive_not_ranked"] = np.isneginf(rows["positive_score"])
    if rules.absolute_margin is not None:
        refusals["absolute_margin"] = rows["score"] + rules.absolute_margin > rows["positive_score"]
    if rules.relative_margin is not None:
        positive = rows["positive_score"].replace(-np.inf, 0)
        refusals["relative_margin"] = rows["score"] > positive - positive.abs() * rules.relative_margin
    return refusals


def _refuse_unscored(rows: "pd.DataFrame") -> None:
    """Checks that every candidate, and every positive, has a teacher's score.

    Raises:
        UserError: naming a query and a passage that has none.
    """
    lacking = rows[rows["teacher"].isna() | rows["positive_teacher"].isna()]
    if len(lacking):
        row = lacking.iloc[0]
        what = f"passage {row['doc_id']!r}" if np.isnan(row["teacher"]) else "a relevant passage"
        raise UserError(
            f"filters.teacher_margin: query {row['query_id']!r} has no teacher score for {what} ({len(lacking)} like "
            "it here); score the judged passages and the candidates"
        )


def draw(rows: "pd.DataFrame", codes: Codes, per_query: int, choose: Literal["random", "top"]) -> Ints:
    """Draws negatives from the allowed candidates; returns their places by query, list and rank.

    A query's negatives do not depend on other queries. A passage that several lists allow is taken from the first.

    Args:
        rows: of `examine`. codes: their verdicts. per_query: negatives of a query, at most. choose: by the random
            numbers, or the best ranks.
    """
    fair = rows[codes == ALLOWED].sort_values("source", kind="stable").drop_duplicates(PAIR)
    ordered = fair.sort_values(["query_id", "draw" if choose == "random" else "rank"])
    chosen = ordered.groupby("query_id", observed=True).head(per_query)
    places: NDArray[np.int64] = chosen.sort_values(["query_id", "source", "rank"]).index.to_numpy()
    return places


def negatives_table(rows: "pd.DataFrame", codes: Codes, places: Ints) -> pa.Table:
    """The table of these rows with their verdicts (NEGATIVES)."""
    some = rows.iloc[places].rename(columns={"teacher": "teacher_score"})
    some = some.astype(dict.fromkeys([*PAIR, "source"], "str")).assign(verdict=np.array(VERDICTS)[codes[places]])
    return pa.Table.from_pandas(some[NEGATIVES.names], NEGATIVES, preserve_index=False).replace_schema_metadata()
