"""Figures of a benchmark: the spread between systems, and the scores by the collection of the middle training.

Figure 1 of SIGIR'23: the spread by the strength of the fine-tuning. By collection: the main finding of Lassance et al.
(SIGIR 2023), a panel per corpus and representation, with no middle training as the level to pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from midmask.benchmark.results import Results
from midmask.core.words import MISSING
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import deviation
from midmask_papers.published import NONE, home, order_splits, published
from midmask_papers.tables import VIEWS

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

BLUE, ORANGE = "#0072B2", "#E69F00"
"""Of Okabe and Ito (2008), which colour-blind readers tell apart."""

COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Of the same, one a system; the seventh starts again."""

COLUMN_INCHES = 3.35
"""The width of a column in two-column papers."""


class HasTitle(Protocol):
    """A panel of a figure."""

    @property
    def title(self) -> str: ...


Titled = TypeVar("Titled", bound=HasTitle)


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
        axes.set_title(VIEWS.get(representation, representation), fontsize=8, loc="left")
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
        series = [(-0.15, tuple(entry.means.values()), BLUE, "ours", True)]
        if entry.printed:
            series.append((0.15, entry.printed, ORANGE, "Lassance et al. 2023", False))
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


def draw_panels(items: Sequence[Titled], path: Path, draw: "Callable[[Axes, Titled], None]", scale: str) -> None:
    """A figure of panels below one another, each drawn by `draw`, with one legend for all of them.

    Args:
        scale: label of every panel's vertical axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_INCHES, 0.8 + 1.8 * len(items)), dpi=300, layout="constrained")
    for row, panel in enumerate(items):
        axes = figure.add_subplot(len(items), 1, row + 1)
        draw(axes, panel)
        axes.set_title(panel.title, fontsize=8, loc="left")
        axes.set_ylabel(scale, fontsize=6)
    named = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named, fontsize=6, frameon=False, loc="outside lower center", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def quiet(axes: "Axes") -> None:
    """Small numbers, faint lines behind the points, and no frame where nothing is read off."""
    axes.tick_params(axis="y", labelsize=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.3, alpha=0.5)


Seeds = tuple[float, ...]
"""A measure's means over queries, one a seed."""


@dataclass(frozen=True)
class Panel:
    """The results of one corpus, representation and setting, for one panel of the figure."""

    corpus: str
    split: str
    representation: str
    setting: str
    # System -> collection -> its seeds, of the systems that were trained on two collections or more
    values: dict[str, dict[str, Seeds]]
    levels: dict[str, Seeds]  # "none" and "bm25" -> their seeds; empty where they were not measured

    @property
    def collections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.values.values() for name in row))

    @property
    def title(self) -> str:
        return f"{self.corpus} {self.split}, {VIEWS.get(self.representation, self.representation)}, {self.setting}"


def panels(results: Results, measure: str = "RR@10") -> list[Panel]:
    """Where two collections or more can be compared; each corpus on test, or on its other split if there is none."""
    items = []
    where = dict.fromkeys((result.corpus, result.key.representation, result.key.setting) for result in results)
    for corpus, representation, setting in where:
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        here = results.where(corpus=corpus, split=split)
        group = here.where(representation=representation, setting=setting)
        trained = {name: _by_collection(group.where(system=name), measure) for name in group.names("system")}
        values = {name: row for name, row in trained.items() if len(row) > 1}
        levels = {
            "none": _seeds(group.where(system="none"), measure),
            "bm25": _seeds(here.where(system="bm25"), measure),
        }
        if values:
            items.append(Panel(corpus, split, representation, setting, values, levels))
    return items


def _by_collection(results: Results, measure: str) -> dict[str, Seeds]:
    rows = {name: _seeds(results.where(collection=name), measure) for name in results.names("collection")}
    return {name: seeds for name, seeds in rows.items() if seeds}


def _seeds(results: Results, measure: str) -> Seeds:
    return tuple(result.measures[measure] for result in results if measure in result.measures)


def collections_table(items: Sequence[Panel]) -> str:
    """A row per panel and system: mean over seeds by collection, ± the standard deviation of the seeds."""
    collections = list(dict.fromkeys(name for panel in items for name in panel.collections))
    rows = []
    for panel in items:
        levels = [_render_seeds(seeds) for seeds in panel.levels.values()]
        for system, row in panel.values.items():
            rows.append([panel.title, system, *levels, *(_render_seeds(row.get(name, ())) for name in collections)])
    return markdown(["evaluated on", "system", "no middle training", "BM25", *collections], rows)


def _render_seeds(seeds: Seeds) -> str:
    if not seeds:
        return MISSING
    spread = f" ± {deviation(seeds):.4f}" if len(seeds) > 1 else ""
    return f"{np.mean(seeds):.4f}{spread}"


def collections_figure(results: Results, path: Path, measure: str = "RR@10") -> str:
    """Draws the systems by the collection of their middle training, and returns the numbers as a Markdown table; draws
    nothing and returns an empty text where no system was trained on two collections.
    """
    items = panels(results, measure)
    if not items:
        return ""
    draw_panels(items, path, _draw_collections, measure)
    return f"{measure}, mean over seeds ± their standard deviation.\n\n{collections_table(items)}"


def _draw_collections(axes: "Axes", panel: Panel) -> None:
    """A line a system through its means; whiskers reach from the lowest seed to the highest."""
    places = {name: place for place, name in enumerate(panel.collections)}
    for number, (system, row) in enumerate(panel.values.items()):
        at = [places[name] + 0.08 * (number - (len(panel.values) - 1) / 2) for name in row]
        means = np.array([np.mean(seeds) for seeds in row.values()])
        ends = np.array([[min(seeds), max(seeds)] for seeds in row.values()]).T
        reach = np.abs(ends - means)
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(at, means, yerr=reach, fmt="o-", color=colour, markersize=3, linewidth=1, capsize=2, label=system)
    if none := panel.levels["none"]:
        axes.axhline(float(np.mean(none)), color="#666666", linewidth=0.8, linestyle="--", label="no middle training")
    axes.set_xticks(list(places.values()), list(places), fontsize=6)
    axes.margins(x=0.12)
    axes.set_ylim(bottom=0)
    quiet(axes)
