"""How well queries of each source alone would have ranked the systems: which source resembles what people ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from midmask.benchmark.results import Result
from midmask.choice.agreement import kendall_tau, regret
from midmask.choice.assess import Counterparts
from midmask.choice.contenders import MEASURE
from midmask.choice.verdict import SystemName
from midmask.evaluation.measures import by_query


@dataclass(frozen=True)
class SourceAgreement:
    """queries: of this source that were searched, of the split that has fewer. kendall_tau: of the gains on them with
    the judged values; None where it is not defined. regret: of the system with the largest gain, which is `chosen`.
    """

    source: str
    queries: int
    kendall_tau: float | None
    regret: float
    chosen: str

    def __str__(self) -> str:
        tau = "not defined" if self.kendall_tau is None else f"{self.kendall_tau:.2f}"
        return (
            f"{self.source} alone ({self.queries:,} queries): tau {tau}, would choose {self.chosen}, "
            f"{100 * self.regret:.1f} points below the best"
        )


def agreement_by_source(
    sources: Mapping[str, str],
    made: Mapping[SystemName, Result],
    counterparts: Counterparts,
    judged: Mapping[SystemName, float],
) -> tuple[SourceAgreement, ...]:
    """The sources by name. Gains are plain means of paired differences: nothing is shrunk.

    Args:
        sources: query -> its source. made: system -> its result on made queries. counterparts: what gains are
            counted from. judged: system -> its value on judged queries; the systems that are compared.
    """
    names = list(judged)
    found = []
    for source in sorted(set(sources.values())):
        of_source = {query for query, own in sources.items() if own == source}
        parts = [_differences(made[name], counterparts, of_source) for name in names]
        if all(map(all, parts)):
            gains = [float(sum(map(np.mean, own))) for own in parts]
            queries = min(len(one) for own in parts for one in own)
            found.append(_agreement(source, queries, gains, names, list(judged.values())))
    return tuple(found)


def _differences(own: Result, counterparts: Counterparts, queries: set[str]) -> list[list[float]]:
    """Along a system's path to the baseline, the paired differences on these queries."""
    found = []
    for one, over in counterparts.path(own) or [(own, own)]:
        values, others = by_query(one.per_query, MEASURE), by_query(over.per_query, MEASURE)
        found.append([value - others[query] for query, value in values.items() if query in queries])
    return found


def _agreement(
    source: str, queries: int, gains: Sequence[float], names: Sequence[SystemName], judged: Sequence[float]
) -> SourceAgreement:
    chosen = names[int(np.argmax(gains))]
    return SourceAgreement(source, queries, kendall_tau(gains, judged), regret(gains, judged), " · ".join(chosen))
