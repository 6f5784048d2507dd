"""The figures of a reproduction page from a run of its command:

    python -m tests.reproduce.expected benchmarks/rom/results.parquet [--split dev] [--measure nDCG@10 …]

Prints the table for the page. A figure is a mean over seeds. Its tolerance is what the difference of two such means is
within, for all figures together with a probability of 0.95, if another machine is no more than other seeds: Student's
t, the variance between seeds pooled over the systems of a representation and setting, Bonferroni over the table.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from midmask.artifact import Place
from midmask.benchmark.results import Results, SystemKey, read_results
from midmask.evaluation.rendering import markdown
from tests.support.reproduce.pages import HEADER, Figure

LEVEL = 0.05

USUAL = ("RR@10", "R@100")

FLOOR = 0.001
"""The least tolerance: a query more or less at another rank, of some hundreds."""


def figures(results: Results, corpus: str, split: str, measures: list[str]) -> list[Figure]:
    """A figure per system, condition and measure; BM25, which has no seeds, with the least tolerance."""
    here = results.where(corpus=corpus, split=split)
    values: dict[tuple[SystemKey, str], list[float]] = {}
    for result in here:
        for measure in measures:
            values.setdefault((result.key, measure), []).append(result.measures[measure])
    return [
        Figure(key, corpus, split, measure, float(np.mean(own)), _tolerance(key, measure, values))
        for (key, measure), own in values.items()
    ]


def _tolerance(key: SystemKey, measure: str, values: dict[tuple[SystemKey, str], list[float]]) -> float:
    like = [
        own
        for (other, name), own in values.items()
        if name == measure
        and (other.representation, other.setting) == (key.representation, key.setting)
        and len(own) > 1
    ]
    if not like:
        return FLOOR
    degrees = sum(len(own) - 1 for own in like)
    pooled = sum(float(np.var(own)) * len(own) for own in like) / degrees
    quantile = float(stats.t.ppf(1 - LEVEL / 2 / len(values), degrees))
    return max(FLOOR, quantile * math.sqrt(2 * pooled / len(values[key, measure])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--measure", action="append", default=[])
    options = parser.parse_args()
    results, _ = read_results(Place(str(options.results)))
    measures = options.measure or [name for name in USUAL if name in results[0].measures]
    found = figures(results, results[0].corpus, options.split, measures)
    print(markdown(HEADER, [figure.cells() for figure in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
