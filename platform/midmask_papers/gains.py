"""Figure of what middle training gains under each fine-tuning: the difference to the baseline in the same setting, with
its interval. With settings that differ in their labelled queries, it answers when middle training pays.

    python -m midmask_papers.gains docs/results/records/pretrained --baseline mlm --measure nDCG@10 \\
        --systems retromae,dupmae --settings "no labels,1k labels,10k labels"

prints the numbers of such a figure, as Markdown, from a folder of records.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from midmask.benchmark.design import BM25
from midmask.benchmark.records import read_records
from midmask.benchmark.results import Results, SystemKey
from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import IntervalEstimate
from midmask.store.place import Place
from midmask_papers.figures import COLOURS, draw_panels, quiet
from midmask_papers.published import Match, Term, order_splits
from midmask_papers.tables import VIEWS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class GainPanel:
    """The gains on one corpus with one representation, for one panel of the figure."""

    corpus: str
    split: str
    representation: str
    settings: tuple[str, ...]  # in the benchmark's order
    gains: dict[str, dict[str, IntervalEstimate]]  # system -> setting -> its gain

    @property
    def title(self) -> str:
        return f"{self.corpus} {self.split}, {VIEWS.get(self.representation, self.representation)}"


def gain_panels(results: Results, baseline: str, measure: str) -> list[GainPanel]:
    """Where the baseline was measured in two settings or more; each corpus on test, or on its other split if there is
    none.
    """
    items = []
    for corpus, representation in dict.fromkeys((result.corpus, result.key.representation) for result in results):
        split = order_splits(results.where(corpus=corpus).names("split"))[0]
        found_here = results.where(corpus=corpus, split=split, representation=representation)
        here = Results(result for result in found_here if measure in result.measures)
        base = {result.key.setting: result.key for result in here.where(system=baseline)}
        gains: dict[str, dict[str, IntervalEstimate]] = {}
        for key in dict.fromkeys(result.key for result in here):
            if key.system not in (baseline, BM25) and key.setting in base:
                row = gains.setdefault(_name(key, here), {})
                row[key.setting] = _gain(key, base[key.setting], (corpus, split), results, measure)
        if len(base) > 1 and gains:
            items.append(GainPanel(corpus, split, representation, tuple(base), gains))
    return items


def _name(key: SystemKey, here: Results) -> str:
    """The system, and what its middle training read where rows differ in it."""
    several = len(here.where(system=key.system).names("collection")) > 1
    return f"{key.system} ({key.collection})" if several else key.system


def _gain(key: SystemKey, base: SystemKey, place: tuple[str, str], results: Results, measure: str) -> IntervalEstimate:
    return Match((Term(1.0, key), Term(-1.0, base)), (place,)).estimate(results, measure)


def gains_table(items: Sequence[GainPanel]) -> str:
    """A row per panel and system: the gain by setting, with its 95% interval."""
    settings = list(dict.fromkeys(name for panel in items for name in panel.settings))
    rows = [
        [panel.title, system, *(_render(row.get(name)) for name in settings)]
        for panel in items
        for system, row in panel.gains.items()
    ]
    return markdown(["evaluated on", "system", *settings], rows)


def _render(gain: IntervalEstimate | None) -> str:
    return MISSING if gain is None else f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"


def gains_of_records(folder: Path, baseline: str, systems: Sequence[str], settings: Sequence[str], measure: str) -> str:
    """The table of gains of these systems over the baseline, from all seeds in a folder of records; columns are the
    settings, in this order.

    Raises:
        UserError: for a system or a setting without a record, or a file that is none.
    """
    results = Results(result for record in read_records(Place(str(folder))).values() for result in record.results)
    for field, names in (("system", (baseline, *systems)), ("setting", settings)):
        for name in names:
            if name not in results.names(field):
                raise unknown(f"{field} in {folder}", name, results.names(field))
    selected = [
        result
        for name in settings
        for result in results.where(setting=name)
        if result.key.system in (baseline, *systems)
    ]
    return gains_table(gain_panels(Results(selected), baseline, measure))


def gains_figure(results: Results, path: Path, baseline: str | None, measure: str) -> str:
    """Draws the gains by setting and returns the numbers as a Markdown table; draws nothing and returns an empty text
    without a baseline in two settings.
    """
    items = gain_panels(results, baseline, measure) if baseline else []
    if not items:
        return ""
    draw_panels(items, path, _draw, f"{measure}, gain over {baseline}")
    return (
        f"{measure} less that of `{baseline}` in the same setting, with its 95% interval over queries and "
        f"fine-tuning seeds; each middle training was run once.\n\n{gains_table(items)}"
    )


def _draw(axes: "Axes", panel: GainPanel) -> None:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name in ("baseline", "systems", "settings", "measure"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    try:
        print(
            gains_of_records(
                given.folder, given.baseline, given.systems.split(","), given.settings.split(","), given.measure
            )
        )
    except UserError as error:
        print(f"gains: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
