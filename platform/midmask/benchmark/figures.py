"""Figures of a benchmark with the numbers they show: gains by fine-tuning, or by tokens; scores by what was read.

Gains: the difference to the baseline in the same setting, with its interval; with settings that differ in their
labelled queries, it answers when middle training pays, and over the tokens of middle training how much is enough.

    python -m midmask.benchmark.figures docs/results/records/pretrained --baseline mlm --measure nDCG@10 \\
        --systems retromae,dupmae --settings "no labels,1k labels,10k labels"

prints the numbers of such a figure, as Markdown, from a folder of records. By collection: the main finding of Lassance
et al. (SIGIR 2023), a panel per corpus and representation, with no middle training as the level to pass.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from midmask.benchmark.design import variant
from midmask.benchmark.records import recorded_results
from midmask.benchmark.results import Results, SystemKey, order_splits, weigh
from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import contrast, deviation
from midmask.evaluation.statistics.significance import p_text
from midmask.store.place import Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VIEW_NAMES = {"dense": "dense", "splade": "SPLADE", "hybrid": "hybrid", "lexical": "lexical"}

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Of Okabe and Ito (2008), which colour-blind readers tell apart; one a system, the seventh starts again."""

COLUMN_INCHES = 3.35
"""The width of a column in two-column papers."""


@dataclass(frozen=True)
class PanelPoint:
    """A system's value under one condition: the ends of its whiskers, and its text in a table."""

    value: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Panel:
    """Systems by setting, or by what their middle training read, on one corpus with one representation."""

    title: str  # corpus, split, representation; and setting
    conditions: tuple[str, ...]  # in the benchmark's order
    rows: dict[str, dict[str, PanelPoint]]  # system -> condition -> its point
    levels: dict[str, PanelPoint | None]  # without a condition; None: not measured


def draw_panels(panels: Sequence[Panel], path: Path, draw: "Callable[[Axes, Panel], None]", scale: str) -> None:
    """A figure of panels below one another, each drawn by `draw`, with one legend for all of them.

    Args:
        scale: label of every panel's vertical axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_INCHES, 0.8 + 1.8 * len(panels)), dpi=300, layout="constrained")
    for row, panel in enumerate(panels, 1):
        axes = figure.add_subplot(len(panels), 1, row)
        draw(axes, panel)
        axes.set_title(panel.title, fontsize=8, loc="left")
        axes.set_ylabel(scale, fontsize=6)
    named = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named, fontsize=6, frameon=False, loc="outside lower center", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_points(axes: "Axes", panel: Panel, style: str, size: int) -> None:
    """A colour a system, with whiskers."""
    places = {name: place for place, name in enumerate(panel.conditions)}
    for number, (system, row) in enumerate(panel.rows.items()):
        at = [places[name] + 0.08 * (number - (len(panel.rows) - 1) / 2) for name in row]
        values = np.array([point.value for point in row.values()])
        reach = np.abs(np.array([[point.low, point.high] for point in row.values()]).T - values)
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(at, values, reach, fmt=style, color=colour, markersize=size, linewidth=1, capsize=2, label=system)
    axes.margins(x=0.12)


def quiet(axes: "Axes") -> None:
    """Small numbers, faint lines behind the points, and no frame where nothing is read off."""
    axes.tick_params(axis="y", labelsize=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.3, alpha=0.5)


def panel_table(panels: Sequence[Panel]) -> str:
    """A row per panel and system: the levels, and the system's points by condition."""
    levels = list(dict.fromkeys(name for panel in panels for name in panel.levels))
    conditions = list(dict.fromkeys(name for panel in panels for name in panel.conditions))
    rows = []
    for panel in panels:
        for system, row in panel.rows.items():
            points = [*map(panel.levels.get, levels), *map(row.get, conditions)]
            rows.append([panel.title, system, *(MISSING if point is None else point.text for point in points)])
    return markdown(["evaluated on", "system", *levels, *conditions], rows)


def _parts(results: Results, measure: str, *fields: str) -> Iterator[tuple[str, Results]]:
    """(title of its panel, results with the measure) by corpus and these fields of their keys; each corpus on test, or
    on its other split if there is none.
    """
    measured = Results(result for result in results if measure in result.measures)
    for corpus in results.names("corpus"):
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        here = measured.where(corpus=corpus, split=split)
        for names in dict.fromkeys(tuple(getattr(result.key, field) for field in fields) for result in here):
            title = ", ".join([f"{corpus} {split}", *(VIEW_NAMES.get(name, name) for name in names)])
            yield title, here.where(**dict(zip(fields, names, strict=True)))


def gain_panels(results: Results, baseline: str, measure: str) -> list[Panel]:
    """The gains over the baseline, where it was measured in two settings or more."""
    panels = []
    for title, here in _parts(results, measure, "representation"):
        base = {result.key.setting: result.key for result in here.where(system=baseline)}
        gains: dict[str, dict[str, PanelPoint]] = {}
        for key in dict.fromkeys(result.key for result in here):
            if key.system != baseline and key.is_encoder and key.setting in base:
                gains.setdefault(_label(key, here), {})[key.setting] = _gain(key, base[key.setting], here, measure)
        if len(base) > 1 and gains:
            panels.append(Panel(title, tuple(base), gains, {}))
    return panels


def _gain(key: SystemKey, base: SystemKey, here: Results, measure: str) -> PanelPoint:
    """The gain of a system over another one on the one corpus and split of these results."""
    place = [(here[0].corpus, here[0].split)]
    gain = contrast([weigh(of, sign, here, place, measure) for sign, of in ((1.0, key), (-1.0, base))])
    text = f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}], {p_text(gain.p, 'p = ', 'p ')}"
    return PanelPoint(gain.value, gain.low, gain.high, text)


LENGTHS = 3
"""Different numbers of tokens that a curve has at least."""


def curve_panels(results: Results, baseline: str, measure: str) -> list[Panel]:
    """The gains over the baseline by the tokens of middle training, of recipes that were trained for `LENGTHS`
    different numbers of them.
    """
    panels = []
    for title, here in _parts(results, measure, "representation", "setting"):
        base = next((result.key for result in here.where(system=baseline)), None)
        tokens = {result.key: result.costs.pretrain_tokens for result in here if result.costs is not None}
        gains: dict[str, dict[int, PanelPoint]] = {}
        for key, count in tokens.items():
            if base is not None and count:
                gains.setdefault(variant(key.system)[0], {})[count] = _gain(key, base, here, measure)
        if curves := {recipe: points for recipe, points in gains.items() if len(points) >= LENGTHS}:
            counts = sorted({count for points in curves.values() for count in points})
            rows = {recipe: {_millions(n): points[n] for n in sorted(points)} for recipe, points in curves.items()}
            panels.append(Panel(title, tuple(dict.fromkeys(map(_millions, counts))), rows, {}))
    return panels


def _millions(tokens: int) -> str:
    return f"{float(f'{tokens:.2g}') / 1e6:g} M"


def _label(key: SystemKey, here: Results) -> str:
    """The system, and what its middle training read where rows differ in it."""
    several = len(here.where(system=key.system).names("collection")) > 1
    return f"{key.system} ({key.collection})" if several else key.system


def curve_figure(results: Results, path: Path, baseline: str | None, measure: str) -> str:
    """Draws the gains by tokens of middle training and returns the numbers as a Markdown table; draws nothing and
    returns an empty text where no recipe was trained for several lengths.
    """
    panels = curve_panels(results, baseline, measure) if baseline else []
    return _gains_of(panels, results, path, measure, f"of `{baseline}`, by tokens of middle training,")


def gains_figure(results: Results, path: Path, baseline: str | None, measure: str) -> str:
    """Draws the gains by setting and returns the numbers as a Markdown table; draws nothing and returns an empty text
    without a baseline in two settings.
    """
    panels = gain_panels(results, baseline, measure) if baseline else []
    return _gains_of(panels, results, path, measure, f"of `{baseline}` in the same setting,")


def _gains_of(panels: Sequence[Panel], results: Results, path: Path, measure: str, whose: str) -> str:
    """Draws the panels, if there are any, and writes their table below what was gained over `whose` measure."""
    if not panels:
        return ""
    draw_panels(panels, path, _draw_gains, f"{measure}, gain")
    middle = len({result.pretrain_seed for result in results} - {None})
    run = f"{middle} middle trainings of each method" if middle > 1 else "each middle training was run once"
    return (
        f"{measure} less that {whose} with its 95% interval over queries and fine-tuning seeds; {run}.\n\n"
        f"{panel_table(panels)}"
    )


def _draw_gains(axes: "Axes", panel: Panel) -> None:
    """The baseline is the line at 0. No line joins settings: they have no order."""
    axes.axhline(0, color="#666666", linewidth=0.8, linestyle="--")
    _draw_points(axes, panel, "o", 4)
    axes.set_xticks(range(len(panel.conditions)), [fill(name, 12) for name in panel.conditions], fontsize=6)
    quiet(axes)


UNTRAINED = "no middle training"


def collection_panels(results: Results, measure: str = "RR@10") -> list[Panel]:
    """The systems that were trained on two collections or more, by collection."""
    panels = []
    for title, group in _parts(results, measure, "representation", "setting"):
        trained = {name: _by_collection(group.where(system=name), measure) for name in group.names("system")}
        if rows := {name: row for name, row in trained.items() if len(row) > 1}:
            bm25 = results.where(system="bm25", corpus=group[0].corpus, split=group[0].split)
            levels = {UNTRAINED: _over_seeds(group.where(system="none"), measure), "BM25": _over_seeds(bm25, measure)}
            collections = tuple(dict.fromkeys(name for row in rows.values() for name in row))
            panels.append(Panel(title, collections, rows, levels))
    return panels


def _by_collection(results: Results, measure: str) -> dict[str, PanelPoint]:
    points = {name: _over_seeds(results.where(collection=name), measure) for name in results.names("collection")}
    return {name: point for name, point in points.items() if point is not None}


def _over_seeds(results: Results, measure: str) -> PanelPoint | None:
    """The mean over seeds, ± their standard deviation; whiskers reach from the lowest seed to the highest."""
    seeds = [result.measures[measure] for result in results if measure in result.measures]
    if not seeds:
        return None
    spread = f" ± {deviation(seeds):.4f}" if len(seeds) > 1 else ""
    return PanelPoint(float(np.mean(seeds)), min(seeds), max(seeds), f"{np.mean(seeds):.4f}{spread}")


def collections_figure(results: Results, path: Path, measure: str = "RR@10") -> str:
    """Draws the systems by the collection of their middle training, and returns the numbers as a Markdown table; draws
    nothing and returns an empty text where no system was trained on two collections.
    """
    panels = collection_panels(results, measure)
    if not panels:
        return ""
    draw_panels(panels, path, _draw_collections, measure)
    return f"{measure}, mean over seeds ± their standard deviation.\n\n{panel_table(panels)}"


def _draw_collections(axes: "Axes", panel: Panel) -> None:
    """A line a system through its means."""
    _draw_points(axes, panel, "o-", 3)
    if none := panel.levels[UNTRAINED]:
        axes.axhline(none.value, color="#666666", linewidth=0.8, linestyle="--", label=UNTRAINED)
    axes.set_xticks(range(len(panel.conditions)), panel.conditions, fontsize=6)
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
    return panel_table(gain_panels(Results(selected), baseline, measure))


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
