"""Wins and losses by kinds of queries: how long they are, how many passages are relevant to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from midmask.artifact import Place
from midmask.leaderboard.passages import evaluated, grades, query_texts
from midmask.leaderboard.queries import EQUAL, Pairing

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
