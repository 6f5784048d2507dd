"""Figures of a benchmark with the numbers they show: the gains by fine-tuning, the scores by what was read.

Gains: the difference to the baseline in the same setting, with its interval; with settings that differ in their
labelled queries, it answers when middle training pays.

    python -m midmask.benchmark.figures docs/results/records/pretrained --baseline mlm --measure nDCG@10 \\
        --systems retromae,dupmae --settings "no labels,1k labels,10k labels"

prints the numbers of such a figure, as Markdown, from a folder of records. By collection: the main finding of Lassance
et al. (SIGIR 2023), a panel per corpus and representation, with no middle training as the level to pass.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from midmask.benchmark.records import recorded_results
from midmask.benchmark.results import Results, SystemKey, order_splits, weigh
from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import IntervalEstimate, contrast, deviation
from midmask.store.place import Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VIEW_NAMES = {"dense": "dense", "splade": "SPLADE", "hybrid": "hybrid", "lexical": "lexical"}

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Of Okabe and Ito (2008), which colour-blind readers tell apart; one a system, the seventh starts again."""

COLUMN_INCHES = 3.35
"""The width of a column in two-column papers."""


Panel = TypeVar("Panel")


def draw_panels(items: Mapping[str, Panel], path: Path, draw: "Callable[[Axes, Panel], None]", scale: str) -> None:
    """A figure of panels below one another, each drawn by `draw`, with one legend for all of them.

    Args:
        items: title -> panel. scale: label of every panel's vertical axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_INCHES, 0.8 + 1.8 * len(items)), dpi=300, layout="constrained")
    for row, (title, panel) in enumerate(items.items(), 1):
        axes = figure.add_subplot(len(items), 1, row)
        draw(axes, panel)
        axes.set_title(title, fontsize=8, loc="left")
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


@dataclass(frozen=True)
class GainPanel:
    """The gains on one corpus with one representation."""

    corpus: str
    split: str
    representation: str
    settings: tuple[str, ...]  # in the benchmark's order
    gains: dict[str, dict[str, IntervalEstimate]]  # system -> setting -> its gain

    @property
    def title(self) -> str:
        return f"{self.corpus} {self.split}, {VIEW_NAMES.get(self.representation, self.representation)}"


def gain_panels(results: Results, baseline: str, measure: str) -> list[GainPanel]:
    """Where the baseline was measured in two settings or more; each corpus on test, or on its other split if there is
    none.
    """
    items = []
    for corpus, representation in dict.fromkeys((result.corpus, result.key.representation) for result in results):
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        measured = results.where(corpus=corpus, split=split, representation=representation)
        here = Results(result for result in measured if measure in result.measures)
        base = {result.key.setting: result.key for result in here.where(system=baseline)}
        gains: dict[str, dict[str, IntervalEstimate]] = {}
        for key in dict.fromkeys(result.key for result in here):
            if key.system != baseline and key.is_encoder and key.setting in base:
                terms = ((1.0, key), (-1.0, base[key.setting]))
                gain = contrast([weigh(of, sign, results, [(corpus, split)], measure) for sign, of in terms])
                gains.setdefault(_label(key, here), {})[key.setting] = gain
        if len(base) > 1 and gains:
            items.append(GainPanel(corpus, split, representation, tuple(base), gains))
    return items


def _label(key: SystemKey, here: Results) -> str:
    """The system, and what its middle training read where rows differ in it."""
    several = len(here.where(system=key.system).names("collection")) > 1
    return f"{key.system} ({key.collection})" if several else key.system


def gains_table(items: Sequence[GainPanel]) -> str:
    """A row per panel and system: the gain by setting, with its 95% interval."""
    settings = list(dict.fromkeys(name for panel in items for name in panel.settings))
    rows = [
        [panel.title, system, *(_render_gain(row.get(name)) for name in settings)]
        for panel in items
        for system, row in panel.gains.items()
    ]
    return markdown(["evaluated on", "system", *settings], rows)


def _render_gain(gain: IntervalEstimate | None) -> str:
    return MISSING if gain is None else f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"


def gains_figure(results: Results, path: Path, baseline: str | None, measure: str) -> str:
    """Draws the gains by setting and returns the numbers as a Markdown table; draws nothing and returns an empty text
    without a baseline in two settings.
    """
    items = gain_panels(results, baseline, measure) if baseline else []
    if not items:
        return ""
    draw_panels({panel.title: panel for panel in items}, path, _draw_gains, f"{measure}, gain over {baseline}")
    return (
        f"{measure} less that of `{baseline}` in the same setting, with its 95% interval over queries and "
        f"fine-tuning seeds; each middle training was run once.\n\n{gains_table(items)}"
    )


def _draw_gains(axes: "Axes", panel: GainPanel) -> None:
    """A colour a system, with whiskers for the intervals; the baseline is the line at 0. No line joins settings:
    they have no order.
    """
    places = {name: place for place, name in enumerate(panel.settings)}
    axes.axhline(0, color="#666666", linewidth=0.8, linestyle="--")
    for number, (system, row) in enumerate(panel.gains.items()):
        at = [places[name] + 0.08 * (number - (len(panel.gains) - 1) / 2) for name in row]
        values = [gain.value for gain in row.values()]
        reach = [[gain.value - gain.low for gain in row.values()], [gain.high - gain.value for gain in row.values()]]
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(at, values, yerr=reach, fmt="o", color=colour, markersize=4, linewidth=1, capsize=2, label=system)
    axes.set_xticks(list(places.values()), [fill(name, 12) for name in places], fontsize=6)
    axes.margins(x=0.12)
    quiet(axes)


Seeds = tuple[float, ...]
"""A measure's means over queries, one a seed."""


@dataclass(frozen=True)
class CollectionPanel:
    """The results of one corpus, representation and setting."""

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
        view = VIEW_NAMES.get(self.representation, self.representation)
        return f"{self.corpus} {self.split}, {view}, {self.setting}"


def collection_panels(results: Results, measure: str = "RR@10") -> list[CollectionPanel]:
    """Where two collections or more can be compared; each corpus on test, or on its other split if there is none."""
    items = []
    where = dict.fromkeys((result.corpus, result.key.representation, result.key.setting) for result in results)
    for corpus, representation, setting in where:
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        here = results.where(corpus=corpus, split=split)
        group = here.where(representation=representation, setting=setting)
        trained = {name: _by_collection(group.where(system=name), measure) for name in group.names("system")}
        if values := {name: row for name, row in trained.items() if len(row) > 1}:
            none, bm25 = (_seeds(rows, measure) for rows in (group.where(system="none"), here.where(system="bm25")))
            levels = {"none": none, "bm25": bm25}
            items.append(CollectionPanel(corpus, split, representation, setting, values, levels))
    return items


def _by_collection(results: Results, measure: str) -> dict[str, Seeds]:
    rows = {name: _seeds(results.where(collection=name), measure) for name in results.names("collection")}
    return {name: seeds for name, seeds in rows.items() if seeds}


def _seeds(results: Results, measure: str) -> Seeds:
    return tuple(result.measures[measure] for result in results if measure in result.measures)


def collections_table(items: Sequence[CollectionPanel]) -> str:
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
    items = collection_panels(results, measure)
    if not items:
        return ""
    draw_panels({panel.title: panel for panel in items}, path, _draw_collections, measure)
    return f"{measure}, mean over seeds ± their standard deviation.\n\n{collections_table(items)}"


def _draw_collections(axes: "Axes", panel: CollectionPanel) -> None:
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


def gains_of_records(folder: Path, baseline: str, systems: Sequence[str], settings: Sequence[str], measure: str) -> str:
    """The table of gains of these systems over the baseline, from all seeds in a folder of records; columns are the
    settings, in this order.

    Raises:
        UserError: for a system or a setting without a record, or a file that is none.
    """
    results = recorded_results(Place(str(folder)))
    for field, names in (("system", (baseline, *systems)), ("setting", settings)):
        for name in names:
            if name not in results.names(field):
                raise unknown(f"{field} in {folder}", name, results.names(field))
    in_order = (result for name in settings for result in results.where(setting=name))
    selected = [result for result in in_order if result.key.system in (baseline, *systems)]
    return gains_table(gain_panels(Results(selected), baseline, measure))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name in ("baseline", "systems", "settings", "measure"):
        parser.add_argument(f"--{name}", required=True)
    flags = parser.parse_args()
    try:
        names = flags.systems.split(","), flags.settings.split(",")
        print(gains_of_records(flags.folder, flags.baseline, *names, flags.measure))
    except UserError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
