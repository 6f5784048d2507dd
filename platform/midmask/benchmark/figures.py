"""What middle training gains over a baseline in the same setting, as a table of numbers with their intervals.

With settings that differ in their labelled queries, it answers when middle training pays.

    python -m midmask.benchmark.figures docs/results/records/pretrained --baseline mlm --measure nDCG@10 \\
        --systems retromae,dupmae --settings "no labels,1k labels,10k labels"

prints such a table from a folder of records.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from midmask.benchmark.design import VIEW_NAMES
from midmask.benchmark.records import recorded_results
from midmask.benchmark.results import Results, SystemKey, order_splits, weigh
from midmask.core.words import MISSING
from midmask.errors import UserError, unknown
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import contrast
from midmask.evaluation.statistics.significance import p_text
from midmask.store.place import Place


def gains_table(results: Results, baseline: str, measure: str) -> str:
    """Markdown: a row for each system on each corpus, a column for each setting of the baseline; empty where the
    baseline was measured in fewer than two settings.
    """
    settings: dict[str, None] = {}
    rows: list[tuple[str, str, dict[str, str]]] = []
    for title, here in _views(results, measure):
        base = {result.key.setting: result.key for result in here.where(system=baseline)}
        gains: dict[str, dict[str, str]] = {}
        for key in dict.fromkeys(result.key for result in here):
            if key.system != baseline and key.setting in base:
                gains.setdefault(_label(key, here), {})[key.setting] = _gain(key, base[key.setting], here, measure)
        if len(base) > 1:
            settings |= dict.fromkeys(base)
            rows += [(title, system, own) for system, own in gains.items()]
    if not rows:
        return ""
    cells = [[title, system, *(own.get(name, MISSING) for name in settings)] for title, system, own in rows]
    return markdown(["evaluated on", "system", *settings], cells)


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


def _gain(key: SystemKey, base: SystemKey, here: Results, measure: str) -> str:
    """The gain of a system over another one on the one corpus and split of these results."""
    place = [(here[0].corpus, here[0].split)]
    gain = contrast([weigh(of, sign, here, place, measure) for sign, of in ((1.0, key), (-1.0, base))])
    return f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}], {p_text(gain.p, 'p = ', 'p ')}"


def _label(key: SystemKey, here: Results) -> str:
    """The system, and what its middle training read where rows differ in it."""
    several = len(here.where(system=key.system).names("collection")) > 1
    return f"{key.system} ({key.collection})" if several else key.system


def gains(results: Results, baseline: str | None, measure: str) -> str:
    """The table with a sentence on what is in it; empty without a baseline in two settings."""
    table = gains_table(results, baseline, measure) if baseline else ""
    if not table:
        return ""
    middle = len({result.pretrain_seed for result in results} - {None})
    run = f"{middle} middle trainings of each method" if middle > 1 else "each middle training was run once"
    return (
        f"{measure} less that of `{baseline}` in the same setting, with its 95% interval over queries and fine-tuning "
        f"seeds; {run}.\n\n{table}"
    )


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
    return gains_table(Results(selected), baseline, measure)


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
