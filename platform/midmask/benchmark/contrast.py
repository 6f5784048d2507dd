"""Weighted sums of systems' means (a difference, a difference of differences, a mean of several), with an interval over
both seeds and queries.

A mean is an average over fine-tuning seeds and over queries, both drawn from many, and every seed meets every query.
The variance of a contrast of weights w is taken apart accordingly:

    queries     per corpus, the variance of  sum_k w_k · (mean over seeds of system k's value of the query), over Q:
                systems are paired by query, as in a paired t-test. What a seed does to a query is in it
    seeds       per system, w_k² · (variance of the seeds' means less what seeds do to single queries), over S: what
                training again changes on all queries. Seeds of two systems are not paired, since the same number stands
                for different random choices in different models

Their sum has the degrees of freedom of Welch and Satterthwaite, so that few seeds that differ much widen the interval
by as much as t with two degrees of freedom does. A two-way bootstrap would be the other choice; with three seeds it is
too narrow, since it draws from three values as if they were all there are (tests/benchmark/test_contrast.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from midmask.benchmark.results import Results, SystemKey
from midmask.evaluate.inference import POWER
from midmask.evaluate.measures import by_query

LEVEL = 0.05
"""Of the intervals: they cover 95%."""

DETERMINISTIC = ("bm25",)
"""Systems without a seed to differ by."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """One system of a contrast, its weight, and the value that a paper prints for it; none: it prints none."""

    weight: float
    key: SystemKey
    published: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A contrast as measured.

    low, high: the interval. detectable: the smallest true value that such an interval excludes 0 for, with a
    probability of 0.8. queries: in all corpora together. seeds: of the system that has fewest. floor: whether there is
    any repeated system to tell how much seeds differ; without one, the interval is over queries alone.
    """

    value: float
    low: float
    high: float
    detectable: float
    queries: int = 0
    seeds: int = 1
    floor: bool = True


@dataclass(frozen=True)
class Variance:
    """An estimated variance and its degrees of freedom."""

    value: float
    freedom: float


def interval(value: float, variances: Sequence[Variance], level: float = LEVEL) -> Estimate:
    """The interval of an estimate whose variance is the sum of these, which were estimated independently."""
    total = math.fsum(one.value for one in variances)
    if total == 0:
        return Estimate(value, value, value, 0.0)
    if math.isinf(total):
        return Estimate(value, -math.inf, math.inf, math.inf)
    freedom = total**2 / math.fsum(one.value**2 / one.freedom for one in variances if one.value)
    error, quantile = math.sqrt(total), float(stats.t.ppf(1 - level / 2, freedom))
    detectable = (quantile + float(stats.t.ppf(POWER, freedom))) * error
    return Estimate(value, value - quantile * error, value + quantile * error, detectable)


@dataclass(frozen=True)
class Sample:
    """A system on one corpus: values_SQ, by seeds and by query ids, both ascending."""

    seeds: tuple[int, ...]
    queries: tuple[str, ...]
    values_SQ: Values


def estimate(
    terms: Sequence[Term], results: Results, corpora: Sequence[tuple[str, str]], measure: str, level: float = LEVEL
) -> Estimate:
    """The contrast on the mean over these (corpus, split), each weighing the same.

    Seeds of a system that was run once are taken to differ as those of the contrast's other systems do.

    Raises:
        ValueError: if a system lacks a corpus, its seeds differ between corpora, or its queries from the others'.
    """
    samples = [[sample(results, term.key, place, measure) for place in corpora] for term in terms]
    over_queries = [_over_queries(terms, [own[n] for own in samples], len(corpora)) for n in range(len(corpora))]
    seeds = [_seeds(term, own) for term, own in zip(terms, samples, strict=True)]
    value = math.fsum(term.weight * own.mean for term, own in zip(terms, seeds, strict=True))
    drawn = [own.count for term, own in zip(terms, seeds, strict=True) if term.key.system not in DETERMINISTIC]
    return replace(
        interval(value, [*over_queries, *_over_seeds(terms, seeds)], level),
        queries=sum(len(one.queries) for one in samples[0]),
        seeds=min(drawn, default=1),
        floor=not drawn or max(drawn) > 1,
    )


def _over_queries(terms: Sequence[Term], samples: Sequence[Sample], corpora: int) -> Variance:
    """Of one corpus' share of a mean over so many."""
    if any(one.queries != samples[0].queries for one in samples):
        raise ValueError(f"systems were measured on different queries: {', '.join(term.key.system for term in terms)}")
    difference_Q = np.sum(
        [term.weight * one.values_SQ.mean(0) for term, one in zip(terms, samples, strict=True)], axis=0
    )
    count = len(difference_Q)
    if count < 2:
        return Variance(math.inf, 1)
    return Variance(float(difference_Q.var(ddof=1)) / count / corpora**2, count - 1)


@dataclass(frozen=True)
class _Seeds:
    """A system's mean, how many seeds it has, and the variance between them: of their means over all queries there
    could be. 0 for a single seed.
    """

    mean: float
    count: int
    variance: float


def _seeds(term: Term, samples: Sequence[Sample]) -> _Seeds:
    if any(one.seeds != samples[0].seeds for one in samples):
        raise ValueError(f"{term.key} was not measured with the same seeds on all corpora")
    means_S = np.mean([one.values_SQ.mean(1) for one in samples], axis=0)
    if len(means_S) < 2:
        return _Seeds(float(means_S.mean()), 1, 0.0)
    single = math.fsum(_residual(one.values_SQ) for one in samples) / len(samples) ** 2
    return _Seeds(float(means_S.mean()), len(means_S), max(0.0, float(means_S.var(ddof=1)) - single))


def _residual(values_SQ: Values) -> float:
    """What seeds do to single queries, as the variance that it gives a seed's mean."""
    seeds, queries = values_SQ.shape
    if queries < 2:
        return 0.0
    rest_SQ = values_SQ - values_SQ.mean(0) - values_SQ.mean(1, keepdims=True) + values_SQ.mean()
    return float((rest_SQ**2).sum() / ((seeds - 1) * (queries - 1) * queries))


def _over_seeds(terms: Sequence[Term], seeds: Sequence[_Seeds]) -> list[Variance]:
    freedom = sum(own.count - 1 for own in seeds)
    if not freedom:
        return []
    pooled = math.fsum(own.variance * (own.count - 1) for own in seeds) / freedom
    return [
        Variance(term.weight**2 * own.variance / own.count, own.count - 1)
        if own.count > 1
        else Variance(term.weight**2 * pooled, freedom)
        for term, own in zip(terms, seeds, strict=True)
        if term.key.system not in DETERMINISTIC
    ]


def sample(results: Results, key: SystemKey, place: tuple[str, str], measure: str) -> Sample:
    """A system's values on a (corpus, split).

    Raises:
        ValueError: if there is no result, or its seeds were measured on different queries.
    """
    here = (result for result in results if result.key == key and (result.corpus, result.split) == place)
    found = sorted(here, key=lambda result: result.seed)
    if not found:
        raise ValueError(f"no result of {key} on {place[0]} {place[1]}")
    rows: list[Mapping[str, float]] = [by_query(result.per_query, measure) for result in found]
    queries = tuple(sorted(rows[0]))
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError(f"seeds of {key} on {place[0]} {place[1]} were measured on different queries")
    values_SQ = np.array([[row[query] for query in queries] for row in rows])
    return Sample(tuple(result.seed for result in found), queries, values_SQ)
