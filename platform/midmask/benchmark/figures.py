"""What middle training gains over a baseline in the same setting, with intervals: a table, and a figure of it.

With settings that differ in their labelled queries, it answers when middle training pays.

    python -m midmask.benchmark.figures docs/results/records/pretrained --baseline mlm --measure nDCG@10 \\
        --systems retromae,dupmae --settings "no labels,1k labels,10k labels" --out gains.svg

prints such a table from a folder of records, and draws the same numbers. Several folders, with one setting, answer how
much is enough: a column for the tokens that each folder's middle trainings read.
"""

import argparse
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midmask.benchmark.design import VIEW_NAMES
from midmask.benchmark.records import recorded_results
from midmask.benchmark.results import Results, SystemKey, order_splits, weigh
from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import IntervalEstimate, contrast
from midmask.evaluation.statistics.significance import p_text
from midmask.store.place import Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Of Okabe and Ito (2008), which colour-blind readers tell apart; one a system, the seventh starts again."""

INK = "#010203"
"""What Matplotlib is given for lines and text; `THEME` has the colours that stand in for it."""

THEME = """<style>svg {color: #1f2328} @media (prefers-color-scheme: dark) {svg {color: #e6edf3}}</style>"""


@dataclass(frozen=True)
class Gain:
    """The difference of a system to the baseline in one setting, on one corpus and split with one representation."""

    title: str  # corpus, split, representation
    system: str
    setting: str
    estimate: IntervalEstimate
    tokens: int  # that the middle training read; 0 if no cost was recorded

    def __str__(self) -> str:
        estimate = self.estimate
        return f"{estimate.value:+.4f} [{estimate.low:+.4f}, {estimate.high:+.4f}], {p_text(estimate.p, 'p = ', 'p ')}"


def gains_of(results: Results, baseline: str, measure: str) -> list[Gain]:
    """All gains over the baseline, of every view (corpus and representation)."""
    gains = []
    for title, here in _views(results, measure):
        place = [(here[0].corpus, here[0].split)]
        keys = {result.key: result.costs.pretrain_tokens if result.costs else 0 for result in here}
        base = {key.setting: weigh(key, -1.0, here, place, measure) for key in keys if key.system == baseline}
        for key, tokens in keys.items():
            if key.system != baseline and key.setting in base:
                gain = contrast([weigh(key, 1.0, here, place, measure), base[key.setting]])
                gains.append(Gain(title, _label(key, here), key.setting, gain, tokens))
    return gains


def gains_table(gains: Sequence[Gain]) -> str:
    """Markdown: a row for each system in each view, a column for each setting; empty without gains."""
    if not gains:
        return ""
    cells = {(gain.title, gain.system, gain.setting): str(gain) for gain in gains}
    settings = list(dict.fromkeys(gain.setting for gain in gains))
    rows = [
        [title, system, *(cells.get((title, system, setting), MISSING) for setting in settings)]
        for title, system in dict.fromkeys((gain.title, gain.system) for gain in gains)
    ]
    return markdown(["evaluated on", "system", *settings], rows)


def draw_gains(gains: Sequence[Gain], baseline: str, measure: str) -> str:
    """The same numbers as SVG, a panel for each view, for light pages and dark ones."""
    import matplotlib
    from matplotlib.figure import Figure

    titles = list(dict.fromkeys(gain.title for gain in gains))
    systems = list(dict.fromkeys(gain.system for gain in gains))
    style: dict[Any, str] = {"svg.fonttype": "none", "svg.hashsalt": "gains"}
    style |= dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    written = io.StringIO()
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(3.6 * len(titles) + 0.6, 3.2), layout="constrained", facecolor="none")
        panels = figure.subplots(1, len(titles), squeeze=False)[0]
        for axes, title in zip(panels, titles, strict=True):
            _draw_panel(axes, [gain for gain in gains if gain.title == title], systems)
            axes.set_title(title, fontsize=10)
        panels[0].set_ylabel(f"{measure} less that of {baseline}")
        panels[-1].legend(frameon=False, fontsize=9)
        figure.savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    start = text.index(">", text.index("<svg")) + 1
    return text[:start] + THEME + text[start:].replace(INK, "currentColor")


def _draw_panel(axes: "Axes", gains: Sequence[Gain], systems: Sequence[str]) -> None:
    """Points with whiskers, one colour a system, side by side above their setting; a line at no gain."""
    settings = list(dict.fromkeys(gain.setting for gain in gains))
    axes.set_facecolor("none")
    axes.axhline(0, color=INK, linewidth=0.8)
    for number, system in enumerate(systems):
        system_gains = [gain for gain in gains if gain.system == system]
        places = [settings.index(gain.setting) + 0.12 * (number - (len(systems) - 1) / 2) for gain in system_gains]
        whiskers = [
            [gain.estimate.value - gain.estimate.low for gain in system_gains],
            [gain.estimate.high - gain.estimate.value for gain in system_gains],
        ]
        values, colour = [gain.estimate.value for gain in system_gains], COLOURS[number % len(COLOURS)]
        axes.errorbar(places, values, whiskers, fmt="o", markersize=4, capsize=3, color=colour, label=system)
    axes.set_xticks(range(len(settings)), settings)
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _views(results: Results, measure: str) -> Iterator[tuple[str, Results]]:
    """(title, results with the measure) by corpus and representation; each corpus on test, or on its other split if
    there is none.
    """
    measured = Results(result for result in results if measure in result.measures)
    for corpus in results.names("corpus"):
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        here = measured.where(corpus=corpus, split=split)
        for name in here.names("representation"):
            yield f"{corpus} {split}, {VIEW_NAMES.get(name, name)}", here.where(representation=name)


def _label(key: SystemKey, here: Results) -> str:
    """The system, and what its middle training read where rows differ in it."""
    several = len(here.where(system=key.system).names("collection")) > 1
    return f"{key.system} ({key.collection})" if several else key.system


def gains(results: Results, baseline: str | None, measure: str) -> str:
    """The table with a sentence on what is in it; empty without a baseline."""
    table = gains_table(gains_of(results, baseline, measure)) if baseline else ""
    if not table:
        return ""
    middle = len({result.pretrain_seed for result in results} - {None})
    run = f"{middle} middle trainings of each method" if middle > 1 else "each middle training was run once"
    return (
        f"{measure} less that of `{baseline}` in the same setting, with its 95% interval over queries and fine-tuning "
        f"seeds; {run}.\n\n{table}"
    )


def gains_of_records(
    folder: Path, baseline: str, systems: Sequence[str], settings: Sequence[str], measure: str
) -> list[Gain]:
    """The gains of these systems over the baseline, from all seeds in a folder of records, in the order of the
    settings.

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
    return gains_of(Results(selected), baseline, measure)


def by_tokens(gains: Sequence[Gain]) -> list[Gain]:
    """Gains of middle trainings of several lengths, with the tokens that each read as its setting, fewest first."""
    in_order = sorted(gains, key=lambda gain: gain.tokens)
    return [replace(gain, setting=f"{gain.tokens / 1e6:.1f} M tokens") for gain in in_order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    for name in ("baseline", "systems", "settings", "measure"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", type=Path, metavar="FILE.svg", help="also draw them there")
    flags = parser.parse_args()
    if len(flags.folders) > 1 and "," in flags.settings:
        parser.error(f"--settings {flags.settings}: give one, whose gains several folders show by tokens")
    try:
        names = flags.systems.split(","), flags.settings.split(",")
        read = (gains_of_records(folder, flags.baseline, *names, flags.measure) for folder in flags.folders)
        recorded = list(chain.from_iterable(read))
        recorded = by_tokens(recorded) if len(flags.folders) > 1 else recorded
        print(gains_table(recorded))
        if flags.out:
            flags.out.write_text(draw_gains(recorded, flags.baseline, flags.measure), "utf-8")
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
