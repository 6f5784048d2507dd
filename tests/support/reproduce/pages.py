"""Reproduction pages, `docs/reproduce/PRESET.md`, as data: a section per scale, in it a command and the figures.

A section's first block of `sh` is what is typed, from the project's folder. A table with the columns of HEADER holds
the figures to expect; a section without one has not been run yet, which the page says.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from midmask.benchmark.results import SystemKey

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reproduce"

SCALES = ("Toy", "Small", "Full")

HEADER = ("system", "collection", "representation", "setting", "corpus", "split", "measure", "expected", "±")

UNKNOWN = "—"

LEFT_OUT = "Left out: "
"""How the line below a table begins that says which figures the table lacks, and why."""

OVER = " over "


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

    def cells(self) -> list[str]:
        """In the order of HEADER."""
        tolerance = UNKNOWN if self.tolerance is None else f"{self.tolerance:.4f}"
        measure, value = self.measure, f"{self.value:.4f}"
        if self.against:
            measure, value = f"{measure}{OVER}{self.against}", f"{self.value:+.4f}"
        return [*vars(self.key).values(), self.corpus, self.split, measure, value, tolerance]


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
        rows = [_cells(line) for line in self.text.splitlines() if line.startswith("|")]
        return [_figure(row) for row in rows if len(row) == len(HEADER) and row != HEADER and "--" not in row[-1]]

    @property
    def left_out(self) -> str:
        """The line that says which figures the table lacks; empty if there is none."""
        return next((line for line in self.text.splitlines() if line.startswith(LEFT_OUT)), "")


def section(name: str, scale: str) -> Section:
    """The section of a preset's page whose heading begins with the scale."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {scale}\b.*?(?=^## |\Z)", text, re.M | re.S)
    return Section(found)


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def _figure(row: tuple[str, ...]) -> Figure:
    *key, corpus, split, measure, value, tolerance = row
    known = None if tolerance == UNKNOWN else float(tolerance)
    name, _, against = measure.partition(OVER)
    if bool(against) != value.startswith(("+", "-")):
        raise ValueError(f"{' | '.join(row)}: a difference has a sign and says over what; a value has neither")
    return Figure(SystemKey(*key), corpus, split, name, float(value), known, against)
