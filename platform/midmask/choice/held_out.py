"""How well each collection's judged gains are predicted from the records of all other collections."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midmask.choice.agreement import KNOWN, Fit, KindOf, fit_kinds, kendall_tau, one_kind, regret, sum_interval
from midmask.choice.calibration_records import GainRecord
from midmask.choice.verdict import Calibration
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import Variance


@dataclass(frozen=True)
class HeldOutCollection:
    """How a fit on all other collections did on this one, for the queries of one source that one seed made.

    systems: number of gains, the baseline not counted. kendall_tau: of all systems with the baseline, between expected
    and judged gains; None where all are equal. regret: in units of the measure. covered: number of judged gains within
    their stated intervals. covered_with_noise: the same when intervals are widened by the judged gains' own standard
    errors, which stated intervals leave out because they are about all queries that people would ask.
    """

    collection: str
    source: str
    seed: int
    systems: int
    kendall_tau: float | None
    regret: float
    covered: int
    covered_with_noise: int
    fits: Mapping[str, Fit]


def leave_one_out(
    records: Sequence[GainRecord],
    coverage: float,
    kind_of: KindOf = one_kind,
    priors: Mapping[str, Fit] | None = None,
) -> list[HeldOutCollection]:
    """Each collection's judged gains against those that a fit on the records of all other collections expects.

    Sources and seeds of one collection are held out together and reported apart, in the order of the records.
    """
    found = []
    for collection in dict.fromkeys(one.collection for one in records):
        fits = fit_kinds([one for one in records if one.collection != collection], kind_of, priors)
        held = [one for one in records if one.collection == collection]
        for verdict in dict.fromkeys((one.source, one.seed) for one in held):
            found.append(_evaluate(fits, [one for one in held if (one.source, one.seed) == verdict], coverage, kind_of))
    return found


def _evaluate(
    fits: Mapping[str, Fit], records: Sequence[GainRecord], coverage: float, kind_of: KindOf
) -> HeldOutCollection:
    by_label = {one.system: one for one in records}
    expected, judged = [0.0], [0.0]
    covered = [0, 0]
    for one in records:
        parts = [one, *([by_label[one.over]] if one.over else [])]
        fitted = [(fits[kind_of(part)], part.made, Variance(part.made_error**2, KNOWN)) for part in parts]
        judged.append(sum(part.judged for part in parts))
        for number, noise in enumerate((0.0, sum(part.judged_error**2 for part in parts))):
            found = sum_interval(fitted, coverage, noise=noise)
            covered[number] += found.low <= judged[-1] <= found.high
        expected.append(found.value)
    return HeldOutCollection(
        collection=records[0].collection,
        source=records[0].source,
        seed=records[0].seed,
        systems=len(records),
        kendall_tau=kendall_tau(expected, judged),
        regret=regret(expected, judged),
        covered=covered[0],
        covered_with_noise=covered[1],
        fits=fits,
    )


def calibration(results: Sequence[HeldOutCollection], coverage: float, source: str = "") -> Calibration:
    """The figures that a verdict shows. Coverage is of the stated intervals, a share of all gains; tau is the mean over
    the results that have one.

    Args:
        coverage: that the intervals state. source: the command and file that the records come from.

    Raises:
        UserError: if there is no result, or none with a tau.
    """
    taus = [one.kendall_tau for one in results if one.kendall_tau is not None]
    if not taus:
        raise UserError(
            f"calibration: {len(results)} held-out results, none with a ranking of systems; give records of at least "
            "one collection with two systems that differ"
        )
    share = sum(one.covered for one in results) / sum(one.systems for one in results)
    names = tuple(dict.fromkeys(one.collection for one in results))
    return Calibration(names, math.fsum(taus) / len(taus), share, coverage, source)
