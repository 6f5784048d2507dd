"""Whether a cheap probe (a share of the pre-training, a short fine-tuning, few queries) ranks trials as the whole run
does. A probe is only as good as its measured rank correlation to what it stands for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from midmask.cluster.study import Outcome

FEWEST = 5
"""Trials below which a rank correlation has no interval."""


@dataclass(frozen=True)
class Proxy:
    """One rung's probes against the final values of the same trials.

    tau: Kendall's tau-b; low, high: its 95% interval (`interval`); none where there are too few trials, or all are
    equal.
    """

    share: float
    trials: int
    tau: float | None
    low: float | None
    high: float | None

    @property
    def is_shown_to_rank(self) -> bool:
        """Whether the interval is above 0: only then may the probe stand for the run."""
        return self.low is not None and self.low > 0


def proxies(found: Sequence[Outcome], shares: Sequence[float]) -> list[Proxy]:
    """One per rung before the last, over the trials that ran to the end. Where poor ones were pruned at rungs, these
    are the survivors of that very ranking, so what is said of it is no fair sample; `rungs.prune: false` gives one.
    """
    ended = [outcome for outcome in found if outcome.complete]
    return [_proxy(share, number, ended) for number, share in enumerate(shares[:-1], start=1)]


def _proxy(share: float, number: int, ended: Sequence[Outcome]) -> Proxy:
    pairs = [(outcome.measures[number], outcome.last) for outcome in ended]
    tau = float(stats.kendalltau(*zip(*pairs, strict=True)).statistic) if len(pairs) > 1 else math.nan
    if math.isnan(tau):
        return Proxy(share, len(pairs), None, None, None)
    return Proxy(share, len(pairs), tau, *(interval(tau, len(pairs)) or (None, None)))


def interval(tau: float, count: int) -> tuple[float, float] | None:
    """The 95% interval of a Kendall tau by Fisher's transform, var(z) = 0.437 / (n - 4) (Fieller, Hartley and Pearson
    1957, Biometrika 44, p. 470); none for fewer than `FEWEST` trials. Perfect agreement, whose transform is infinite,
    counts as half a pair less than perfect.
    """
    if count < FEWEST:
        return None
    half = float(stats.norm.ppf(0.975)) * math.sqrt(0.437 / (count - 4))
    most = 1 - 1 / math.comb(count, 2)
    centre = math.atanh(max(-most, min(most, tau)))
    return math.tanh(centre - half), math.tanh(centre + half)
