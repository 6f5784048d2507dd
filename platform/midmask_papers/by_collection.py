"""Figure of the scores by the collection of the middle training: the main finding of Lassance et al. (SIGIR 2023), a
panel per corpus and representation, with no middle training as the level to pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from midmask.benchmark.results import Results
from midmask.evaluation.rendering import MISSING, markdown
from midmask.evaluation.statistics.seeds import deviation
from midmask_papers.figures import COLOURS, draw_panels, quiet
from midmask_papers.matching import order_splits
from midmask_papers.paper_tables import VIEWS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Seeds = tuple[float, ...]
"""A measure's means over queries, one a seed."""


@dataclass(frozen=True)
class Panel:
    """One corpus, representation and setting.

    values: system -> collection -> its seeds, of the systems that were trained on two collections or more.
    levels: none and bm25 -> their seeds; empty where they were not measured.
    """

    corpus: str
    split: str
    representation: str
    setting: str
    values: dict[str, dict[str, Seeds]]
    levels: dict[str, Seeds]

    @property
    def collections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.values.values() for name in row))

    @property
    def title(self) -> str:
        return f"{self.corpus} {self.split}, {VIEWS.get(self.representation, self.representation)}, {self.setting}"


def panels(results: Results, measure: str = "RR@10") -> list[Panel]:
    """Where two collections or more can be compared; each corpus on test, or on its other split if there is none."""
    found = []
    where = dict.fromkeys((one.corpus, one.key.representation, one.key.setting) for one in results)
    for corpus, representation, setting in where:
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        here = results.where(corpus=corpus, split=split)
        own = here.where(representation=representation, setting=setting)
        trained = {name: _by_collection(own.where(system=name), measure) for name in own.names("system")}
        values = {name: row for name, row in trained.items() if len(row) > 1}
        levels = {"none": _seeds(own.where(system="none"), measure), "bm25": _seeds(here.where(system="bm25"), measure)}
        if values:
            found.append(Panel(corpus, split, representation, setting, values, levels))
    return found


def _by_collection(results: Results, measure: str) -> dict[str, Seeds]:
    rows = {name: _seeds(results.where(collection=name), measure) for name in results.names("collection")}
    return {name: seeds for name, seeds in rows.items() if seeds}


def _seeds(results: Results, measure: str) -> Seeds:
    return tuple(one.measures[measure] for one in results if measure in one.measures)


def collections_table(found: Sequence[Panel]) -> str:
    """A row per panel and system: mean over seeds by collection, ± the standard deviation of the seeds."""
    collections = list(dict.fromkeys(name for panel in found for name in panel.collections))
    rows = []
    for panel in found:
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
    found = panels(results, measure)
    if not found:
        return ""
    draw_panels(found, path, _draw, measure)
    return f"{measure}, mean over seeds ± their standard deviation.\n\n{collections_table(found)}"


def _draw(axes: "Axes", panel: Panel) -> None:
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
