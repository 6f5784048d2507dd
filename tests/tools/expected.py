"""The figures of a reproduction page, `docs/reproduce/PRESET.md`, as data, and from a run of its command:

    python -m tests.tools.expected benchmarks/rom/results.parquet [--split dev] [--measure nDCG@10 …]

Prints the table for the page. A figure is a mean over seeds. Its tolerance is what the difference of two such means is
within, for all figures together with a probability of 0.95, if another machine is no more than other seeds: Student's
t, the variance between seeds pooled over the systems of a representation and setting, Bonferroni over the table.

A page has a section per scale, in it a command, the first block of `sh`, and a table of the figures to expect.
Left out are cells that have not learned to search, by the rule of the claims (a tenth of BM25's measure), and figures
whose tolerance exceeds a quarter of them: nothing could fail such an expectation. A sentence names them.
"""

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from midmask.benchmark.results import Results, SystemKey, read_results
from midmask.evaluation.rendering import markdown
from midmask.retrieve.bm25 import BM25
from midmask.store.place import Place
from midmask_papers.ruling import LEAST_OF_BM25

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduce"
SCALES = ("Toy", "Small", "Full")
HEADER = ("system", "collection", "representation", "setting", "on", "expected")
WITHIN, OVER = " ± ", " over "
LEFT_OUT = "Left out: "
"""How the line below a table begins that says which figures the table lacks, and why."""


@dataclass(frozen=True)
class Figure:
    """The mean over the command's seeds, and by how much another machine's may differ from it; none: not known.

    against: empty, or to what the value is a difference: a page has `RR@10 over the best baseline` and `+0.0196` then.
    """

    key: SystemKey
    corpus: str
    split: str
    measure: str
    value: float
    tolerance: float | None
    against: str = ""

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of its row but the last, which several measures share."""
        return (*vars(self.key).values(), f"{self.corpus} {self.split}")

    def __str__(self) -> str:
        """`RR@10 0.3553 ± 0.0100`, without the tolerance if it is not known."""
        over = f"{OVER}{self.against} {self.value:+.4f}" if self.against else f" {self.value:.4f}"
        return f"{self.measure}{over}" + ("" if self.tolerance is None else f"{WITHIN}{self.tolerance:.4f}")


@dataclass(frozen=True)
class Section:
    """One scale of a page."""

    text: str

    @property
    def command(self) -> str:
        """The first block of `sh`."""
        (first, *_) = re.findall(r"^```sh\n(.*?)^```$", self.text, re.M | re.S)
        return first

    @property
    def figures(self) -> list[Figure]:
        lines = [line.strip().strip("|") for line in self.text.splitlines() if line.startswith("|")]
        rows = [tuple(cell.strip() for cell in line.split("|")) for line in lines]
        rows = [row for row in rows if len(row) == len(HEADER) and row != HEADER and "--" not in row[-1]]
        return [_figure(row, text) for row in rows for text in row[-1].split(", ")]

    @property
    def left_out(self) -> str:
        """The line that says which figures the table lacks; empty if there is none."""
        return next((line for line in self.text.splitlines() if line.startswith(LEFT_OUT)), "")


def section(name: str, scale: str) -> Section:
    """The section of a preset's page whose heading begins with the scale."""
    (found,) = re.findall(rf"^## {scale}\b.*?(?=^## |\Z)", (FOLDER / f"{name}.md").read_text("utf-8"), re.M | re.S)
    return Section(found)


def _figure(row: tuple[str, ...], text: str) -> Figure:
    *key, where, _ = row
    corpus, split = where.split()
    text, _, tolerance = text.partition(WITHIN)
    measure, _, value = text.rpartition(" ")
    name, _, against = measure.partition(OVER)
    assert bool(against) == value.startswith(("+", "-")), f"{row}: a difference has a sign and says over what"
    return Figure(SystemKey(*key), corpus, split, name, float(value), float(tolerance) if tolerance else None, against)


def table(kept: Sequence[Figure]) -> str:
    """Markdown: a row for each system and condition, with all its measures."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for figure in kept:
        rows.setdefault(figure.row, []).append(str(figure))
    return markdown(HEADER, [[*row, ", ".join(texts)] for row, texts in rows.items()])


LEVEL = 0.05
USUAL = ("RR@10", "R@100")
WIDEST = 0.25
"""The largest tolerance of an expected figure, as a share of it."""

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
    condition = (measure, key.representation, key.setting)
    all_like = (own for (k, name), own in values.items() if (name, k.representation, k.setting) == condition)
    like = [own for own in all_like if len(own) > 1]
    if not like:
        return FLOOR
    degrees = sum(len(own) - 1 for own in like)
    pooled = sum(float(np.var(own)) * len(own) for own in like) / degrees
    quantile = float(stats.t.ppf(1 - LEVEL / 2 / len(values), degrees))
    return max(FLOOR, quantile * math.sqrt(2 * pooled / len(values[key, measure])))


def expected(found: Sequence[Figure]) -> tuple[list[Figure], str]:
    """The figures to expect, and the sentence that names the systems of those left out; empty if none is."""
    least = {one.measure: LEAST_OF_BM25 * one.value for one in found if one.key.system == BM25}
    below = {one.key for one in found if one.value < least.get(one.measure, math.inf)}
    short = [one for one in found if one.key in below]
    wide = [one for one in found if (one.tolerance or 0) > WIDEST * one.value and one not in short]
    said = []
    for own, why in (
        (short, "of cells that do not reach a tenth of BM25's measure"),
        (wide, "which another machine may change by more than a quarter"),
    ):
        names = ", ".join(f"`{name}`" for name in sorted({one.key.system for one in own}))
        said += [f"{len(own)} of {len(found)} values, {why} ({names})"] if own else []
    kept = [one for one in found if one not in short and one not in wide]
    return kept, f"{LEFT_OUT}{'; '.join(said)}." if said else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--measure", action="append", default=[])
    options = parser.parse_args()
    results, _ = read_results(Place(str(options.results)))
    measures = options.measure or [name for name in USUAL if name in results[0].measures]
    kept, left_out = expected(figures(results, results[0].corpus, options.split, measures))
    print(table(kept), left_out, sep="\n\n")
