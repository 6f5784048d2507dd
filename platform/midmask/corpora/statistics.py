"""Lengths of a collection's texts, counted as they stream by."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class TextStatistics:
    """Word counts (split at white space) of a stream of texts; four bytes a text are held."""

    def __init__(self) -> None:
        self._lengths = [np.zeros(0, np.int32)]
        self.titled = 0

    def add(self, table: pa.Table) -> None:
        """Counts the rows of a block by its column `text` and, if it has one, `title`."""
        self._lengths.append(np.array([len(text.split()) for text in table.column("text").to_pylist()], np.int32))
        if "title" in table.column_names:
            self.titled += pc.sum(pc.not_equal(table.column("title"), "")).as_py() or 0

    def watch(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables as they are."""
        for table in tables:
            self.add(table)
            yield table

    def summary(self) -> dict[str, Any]:
        """count, and words: mean, median, p90, max (median and p90 by nearest rank)."""
        lengths = np.concatenate(self._lengths)
        if not len(lengths):
            return {"count": 0, "words": {"mean": 0.0, "median": 0, "p90": 0, "max": 0}}
        median, p90, most = (int(one) for one in np.percentile(lengths, [50, 90, 100], method="inverted_cdf"))
        words = {"mean": int(lengths.sum()) / len(lengths), "median": median, "p90": p90, "max": most}
        return {"count": len(lengths), "words": words}


def statistics_table(statistics: Mapping[str, Any]) -> str:
    """The contents of statistics.json as a table for people."""
    lines = [f"{'':<10}{'count':>10}  {'words: mean':>11}  {'median':>6}  {'p90':>6}  {'max':>6}"]
    for name in ("passages", "queries"):
        part = statistics[name]
        words = part["words"]
        lines.append(
            f"{name:<10}{part['count']:>10,}  {words['mean']:>11.1f}  {words['median']:>6}  {words['p90']:>6}  "
            f"{words['max']:>6}"
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
