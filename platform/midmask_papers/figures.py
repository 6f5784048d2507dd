"""Figure 1 of SIGIR'23: the spread between systems by the strength of the fine-tuning, ours beside theirs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from midmask.benchmark.design import NONE
from midmask.benchmark.figures import COLOURS, COLUMN_INCHES, VIEW_NAMES, quiet
from midmask.benchmark.results import Results, home, order_splits
from midmask.core.words import MISSING
from midmask.evaluation.rendering import markdown
from midmask_papers.published import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRENGTH = {
    "sigir23_1neg": "1 negative",
    "sigir23_32neg": "32 negatives",
    "sigir23_1neg_distil": "1 negative, distilled",
    "sigir23_32neg_distil": "32 negatives, distilled",
}
"""Settings from the weakest fine-tuning to the strongest, as SIGIR'23 orders them, and their names in the figure."""

TABLES = dict(zip(STRENGTH, "1234", strict=True))

OURS, THEIRS = COLOURS[:2]


@dataclass(frozen=True)
class Spread:
    """Systems under one setting: name -> mean over seeds and queries, and what SIGIR'23 prints for its own."""

    representation: str
    setting: str
    means: dict[str, float]
    printed: tuple[float, ...]

    @property
    def width(self) -> float:
        """The highest less the lowest; 0 for a single system."""
        return max(self.means.values()) - min(self.means.values())


def spreads(results: Results, measure: str = "RR@10") -> list[Spread]:
    """Per representation and setting, weakest fine-tuning first: SIGIR'23's settings, or all where fewer than two of
    these were measured; and the systems that all of them have, since others would widen some alone. Representations
    with a single setting are left out.
    """
    here = results.where(corpus=home(results)) if results else results
    split = next(iter(order_splits(here.names("split"))), None)
    items = []
    for representation in here.names("representation"):
        group = here.where(representation=representation, split=split)
        present = [name for name in group.names("setting") if name != NONE]
        ordered = [name for name in STRENGTH if name in present]
        settings = ordered if len(ordered) > 1 else present
        rows = {setting: _means(group.where(setting=setting), measure) for setting in settings}
        shared = set.intersection(*(set(row) for row in rows.values())) if rows else set()
        if len(settings) > 1 and shared:
            for setting, row in rows.items():
                means = {name: value for name, value in row.items() if name in shared}
                items.append(Spread(representation, setting, means, _printed_values(representation, setting, measure)))
    return items


def _means(results: Results, measure: str) -> dict[str, float]:
    """System (collection) -> its mean."""
    values: dict[str, list[float]] = {}
    for result in results:
        if measure in result.measures:
            values.setdefault(f"{result.key.system} ({result.key.collection})", []).append(result.measures[measure])
    return {name: float(np.mean(scores)) for name, scores in values.items()}


def _printed_values(representation: str, setting: str, measure: str) -> tuple[float, ...]:
    if setting not in TABLES:
        return ()
    return tuple(
        number.value
        for number in published("sigir23", TABLES[setting])
        if (number.representation, number.measure) == (representation, measure) and not number.note
    )


def spread_table(items: Sequence[Spread]) -> str:
    """The figure's numbers: lowest, highest and spread, ours and as published; unstable published runs left out."""
    rows = []
    for entry in items:
        low, high = (choose(entry.means, key=lambda name: entry.means[name]) for choose in (min, max))
        printed = f"{100 * (max(entry.printed) - min(entry.printed)):.1f}" if entry.printed else MISSING
        ends = [f"{name} {100 * entry.means[name]:.1f}" for name in (low, high)]
        rows.append(
            [entry.representation, entry.setting, str(len(entry.means)), *ends, f"{100 * entry.width:.1f}", printed]
        )
    return markdown(["representation", "setting", "systems", "lowest", "highest", "spread", "published"], rows)


def spread_figure(results: Results, path: Path, measure: str = "RR@10") -> str:
    """Draws the spread between systems by the strength of fine-tuning, a panel a representation, and returns its
    numbers as a Markdown table; draws nothing and returns an empty text where no two settings were measured.
    """
    items = spreads(results, measure)
    if not items:
        return ""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(entry.representation for entry in items))
    figure = Figure(figsize=(COLUMN_INCHES, 0.6 + 1.9 * len(panels)), dpi=300, layout="constrained")
    for row, representation in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, row + 1)
        _draw_spreads(axes, [entry for entry in items if entry.representation == representation])
        axes.set_title(VIEW_NAMES.get(representation, representation), fontsize=8, loc="left")
        axes.set_ylabel(f"{measure} (%) from the systems' mean", fontsize=6)
        if row == 0 and any(entry.printed for entry in items):
            axes.legend(fontsize=6, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return spread_table(items)


def _draw_spreads(axes: "Axes", items: Sequence[Spread]) -> None:
    """Every system a point, as far from the mean of all as it is, so that a toy's spread can be seen beside a paper's;
    their span a line with its length on top; published points hollow.
    """
    for place, entry in enumerate(items):
        series = [(-0.15, tuple(entry.means.values()), OURS, "ours", True)]
        if entry.printed:
            series.append((0.15, entry.printed, THEIRS, "Lassance et al. 2023", False))
        for shift, values, colour, name, filled in series:
            points = [100 * (value - float(np.mean(values))) for value in values]
            at = place + shift
            axes.plot([at, at], [min(points), max(points)], color=colour, linewidth=1)
            face = colour if filled else "white"
            label = name if place == 0 else None
            axes.plot([at] * len(points), points, "o", color=colour, markerfacecolor=face, markersize=3, label=label)
            axes.annotate(
                f"{max(points) - min(points):.1f}",
                (at, max(points)),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=6,
                color="#333333",
            )
    names = [STRENGTH.get(entry.setting, entry.setting).replace(", ", ",\n") for entry in items]
    axes.set_xticks(range(len(items)), names, fontsize=6)
    axes.margins(x=0.08, y=0.18)
    quiet(axes)
