"""Tests of paired differences over queries, and corrections for a family of tests.

Tests and corrections have the names of PyTerrier's `Experiment`, which are those of statsmodels' `multipletests`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from midmask.arrays import Doubles
from midmask.errors import unknown
from midmask.evaluation.statistics.intervals import Variance, standard_error
from midmask.randomness.streams import numpy_stream

Test = Literal["t", "wilcoxon", "permutation"]
Correction = Literal["bonferroni", "holm", "holm-sidak", "hs", "fdr_bh"]

RESAMPLES = 9_999
"""Sign patterns drawn where there are too many to enumerate; the smallest p is then 1e-4."""


def _t(difference: Doubles, seed: int) -> float:
    return standard_error([Variance.of_mean(difference)]).p(float(difference.mean()))


def _wilcoxon(difference: Doubles, seed: int) -> float:
    return float(stats.wilcoxon(difference).pvalue)


def _permutation(difference: Doubles, seed: int) -> float:
    # The sign of 0 is nothing to permute: without the zeros, half of them with RR@10, the distribution is the same.
    difference = difference[difference != 0]
    if len(difference) < 2:  # scipy asks for two values; of one, either sign is as far from 0
        return 1.0
    found = stats.permutation_test(
        (difference,),
        lambda values, axis: np.mean(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, (1 << 22) // len(difference)),
        rng=numpy_stream(seed),
    )
    return float(found.pvalue)


TESTS: Mapping[Test, Callable[[Doubles, int], float]] = {"t": _t, "wilcoxon": _wilcoxon, "permutation": _permutation}


def paired_p(difference: Doubles, test: Test, *, seed: int = 0) -> float:
    """Two-sided p of "the paired differences are centred on 0".

    t: paired t-test. wilcoxon: signed-rank test, zeros left out. permutation: sign-flip test of the mean, exact for few
    queries, else from `RESAMPLES` patterns drawn with the seed. Differences that are all zero, or a single query, give
    1.

    Raises:
        UserError: for an unknown test.
    """
    if test not in TESTS:
        raise unknown("test", test, TESTS)
    if len(difference) < 2 or not difference.any():
        return 1.0
    return TESTS[test](difference, seed)


def _bonferroni(p_values: Doubles) -> Doubles:
    return np.minimum(1.0, len(p_values) * p_values)


def _step_down(p_values: Doubles, adjusted: Callable[[Doubles, Doubles], Doubles]) -> Doubles:
    """Each p adjusted for the tests not yet rejected when its turn comes, smallest first, and never below those
    before."""
    order = np.argsort(p_values, kind="stable")
    remaining = np.arange(len(p_values), 0, -1, dtype=np.float64)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(adjusted(p_values[order], remaining)))
    return corrected


def _holm(p_values: Doubles) -> Doubles:
    return _step_down(p_values, lambda p, remaining: p * remaining)


def _holm_sidak(p_values: Doubles) -> Doubles:
    # 1 - (1 - p)^m, without losing a small p to rounding.
    with np.errstate(divide="ignore"):
        return _step_down(p_values, lambda p, remaining: -np.expm1(remaining * np.log1p(-p)))


def _benjamini_hochberg(p_values: Doubles) -> Doubles:
    return np.asarray(stats.false_discovery_control(p_values, method="bh"), dtype=np.float64)


CORRECTIONS: Mapping[Correction, Callable[[Doubles], Doubles]] = {
    "bonferroni": _bonferroni,
    "holm": _holm,
    "holm-sidak": _holm_sidak,
    "hs": _holm_sidak,
    "fdr_bh": _benjamini_hochberg,
}


def correct(p_values: Sequence[float], correction: Correction | None) -> list[float]:
    """Corrected p values of a family of tests, to be compared with the same alpha as that of one test.

    bonferroni: times the number of tests. holm (1979): times the number not yet rejected. holm-sidak (or hs): likewise,
    exact for independent tests. fdr_bh (Benjamini and Hochberg 1995): bounds the expected share of false discoveries
    instead of the probability of any. None: as they are.

    Raises:
        UserError: for an unknown correction.
    """
    check_correction(correction)
    if correction is None or not p_values:
        return list(p_values)
    return [float(p) for p in CORRECTIONS[correction](np.asarray(p_values, dtype=np.float64))]


def check_correction(correction: Correction | None) -> None:
    if correction is not None and correction not in CORRECTIONS:
        known: Iterable[str] = [*CORRECTIONS, "none"]
        raise unknown("correction", correction, known)


def strictest_level(alpha: float, tests: int, correction: Correction | None) -> float:
    """The level that the smallest p of a family of so many tests must fall below: alpha / tests, or Šidák's."""
    if correction is None or tests < 2:
        return alpha
    if correction in ("holm-sidak", "hs"):
        return -math.expm1(math.log1p(-alpha) / tests)
    return alpha / tests
