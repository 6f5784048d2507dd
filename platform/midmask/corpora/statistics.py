"""Lengths and question share of a collection's texts, counted as they stream by."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

QUESTION_WORDS = frozenset(
    "what who whom whose which when where why how is are was were do does did can could should would will has have may "
    "what's who's how's where's".split()
)


def is_question(text: str) -> bool:
    """Does the text end with a question mark, or begin with a question word?"""
    stripped = text.rstrip()
    if stripped.endswith("?"):
        return True
    first = stripped[:40].split(maxsplit=1)
    return bool(first) and first[0].lower().rstrip(",") in QUESTION_WORDS


class TextStatistics:
    """Word counts (split at white space) and questions of a stream of texts, in memory that does not grow with it."""

    def __init__(self) -> None:
        self._lengths: Counter[int] = Counter()
        self._questions = 0
        self.titled = 0

    def add(self, table: pa.Table) -> None:
        """Counts the rows of a block by its columns `words`, `question` and, if it has one, `title`."""
        self._lengths.update(table.column("words").to_pylist())
        self._questions += sum(table.column("question").to_pylist())
        if "title" in table.column_names:
            self.titled += pc.sum(pc.not_equal(table.column("title"), "")).as_py() or 0

    def watch(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables as they are."""
        for table in tables:
            self.add(table)
            yield table

    def summary(self) -> dict[str, Any]:
        """count, question_share, and words: mean, median, p90, max (median and p90 by nearest rank)."""
        count = self._lengths.total()
        if not count:
            return {"count": 0, "question_share": 0.0, "words": {"mean": 0.0, "median": 0, "p90": 0, "max": 0}}
        words = {
            "mean": sum(length * number for length, number in self._lengths.items()) / count,
            "median": self._percentile(50),
            "p90": self._percentile(90),
            "max": max(self._lengths),
        }
        return {"count": count, "question_share": self._questions / count, "words": words}

    def _percentile(self, percent: int) -> int:
        lengths = sorted(self._lengths)
        reached = np.cumsum([self._lengths[length] for length in lengths])
        return lengths[int(np.searchsorted(100 * reached, percent * self._lengths.total()))]


def statistics_table(statistics: Mapping[str, Any]) -> str:
    """The contents of statistics.json as a table for people."""
    lines = [f"{'':<10}{'count':>10}  {'words: mean':>11}  {'median':>6}  {'p90':>6}  {'max':>6}  {'questions':>9}"]
    for name in ("passages", "queries"):
        part = statistics[name]
        words = part["words"]
        lines.append(
            f"{name:<10}{part['count']:>10,}  {words['mean']:>11.1f}  {words['median']:>6}  {words['p90']:>6}  "
            f"{words['max']:>6}  {part['question_share']:>9.1%}"
        )
    for split, part in statistics["splits"].items():
        made = "  (split made here)" if split in statistics["splits_made_here"] else ""
        judged = f"{part['answered']:>10,} with answers" if "answered" in part else ""
        lines.append(f"{split:<10}{part['queries']:>10,} queries  {part['judgements']:>10,} judgements{judged}{made}")
    if not statistics["splits"]:
        lines.append("no queries and no judgements: text only")
    lines.append(f"titles: {statistics['titled']:,} of {statistics['passages']['count']:,} passages have one")
    own = statistics["self_matches"]
    if own["pairs"]:
        lines.append(f"{own['pairs']:,} passages are a query itself (by {own['rule']}) and are not retrieved by it")
    if missing := statistics.get("missing_passages", {}).get("judgements"):
        lines.append(describe_missing(missing))
    return "\n".join(lines)


def describe_missing(judgements: int) -> str:
    """A sentence about judgements of passages that the collection lacks."""
    return (
        f"{judgements:,} judgements name passages that the collection lacks; the relevant ones count as passages that "
        "no search can find, and no training uses them"
    )
