"""Which of the queries that were found again are kept: not too easy ones, each source its share."""

import math
from collections.abc import Iterable, Mapping, Sequence

from midmask.queries.candidates import Candidate
from midmask.queries.config import JUDGE, TRAIN, QueriesConfig
from midmask.queries.roles import Roles

NOT_FOUND = "its passage is not found again"
TOO_EASY = "too easy for BM25"
NOT_DRAWN = "enough queries"

CUT = 10
"""Rank up to which a found passage counts in RR@10."""


def drop_unfound(candidates: Iterable[Candidate], depth: int) -> bool:
    """Drops those whose passage is not within these ranks, nor found by the encoder; whether there was one."""
    lost = [one for one in candidates if not one.by_encoder and (one.rank is None or one.rank > depth)]
    for one in lost:
        one.reason = NOT_FOUND
    return bool(lost)


def reciprocal_rank(one: Candidate) -> float:
    """RR@10 of BM25."""
    return 1 / one.rank if one.rank is not None and one.rank <= CUT else 0.0


def thin(candidates: Sequence[Candidate], target: float, slack: float = 0.0) -> bool:
    """Drops the easiest queries of each source until BM25's mean RR@10 on the rest is at most `target`; whether it
    dropped any. Easiest are those of the best rank, of these those that share most with their passage. A lower target
    drops all that a higher one drops. Weak labels stay: BM25 chose them.

    Args:
        slack: a mean that is above the target by no more is let be.
    """
    dropped = False
    for source in sorted({one.source for one in candidates if not one.is_weak}):
        own = [one for one in candidates if one.source == source]
        own.sort(key=lambda one: (-reciprocal_rank(one), -(one.overlap or 0.0), one.query_id))
        whole, left = math.fsum(map(reciprocal_rank, own)), len(own)
        if whole <= (target + slack) * left:
            continue
        for one in own:
            if whole <= target * left or reciprocal_rank(one) <= target:
                break
            one.reason, dropped = TOO_EASY, True
            whole, left = whole - reciprocal_rank(one), left - 1
    return dropped


def draw_shares(candidates: Sequence[Candidate], roles: Roles, config: QueriesConfig) -> None:
    """Keeps as many as are wanted to train and to judge, of each source its share."""
    for splits in ((TRAIN,), JUDGE):
        own = [one for one in candidates if one.split in splits]
        _draw(own, roles.of(splits[0]), sum(map(config.wanted, splits)))


def _draw(candidates: Sequence[Candidate], weights: Mapping[str, float], total: int) -> None:
    """Keeps at most `total`, each source its share by weight; drops the others in the order of their places."""
    of: dict[str, list[Candidate]] = {source: [] for source in weights}
    for one in sorted(candidates, key=lambda one: (one.draw_key, one.query_id)):
        of[one.source].append(one)
    counts = shares(weights, {source: len(own) for source, own in of.items()}, total)
    for source, own in of.items():
        for one in own[counts[source] :]:
            one.reason = NOT_DRAWN


def shares(weights: Mapping[str, float], available: Mapping[str, int], total: int) -> dict[str, int]:
    """How many queries each source gives: its weight's share of `total`; what a source lacks is divided among the
    others by their weights. Remainders go to the largest fractions, ties by name.
    """
    counts: dict[str, int] = {}
    left = min(total, sum(available.values()))
    open_ = dict(weights)
    while open_:
        whole = sum(open_.values())
        short = [source for source, weight in open_.items() if available[source] <= left * weight / whole]
        if not short:
            exact = {source: left * weight / whole for source, weight in open_.items()}
            counts |= {source: int(value) for source, value in exact.items()}
            rest = left - sum(counts[source] for source in exact)
            for source in sorted(exact, key=lambda source: (counts[source] - exact[source], source))[:rest]:
                counts[source] += 1
            return counts
        for source in short:
            counts[source] = available[source]
            del open_[source]
        left -= sum(available[source] for source in short)
    return counts
