"""What the trainings of a benchmark have read of the texts that it evaluates: a table, and warnings."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from midmask.benchmark.layout import Layout
from midmask.core.words import MISSING
from midmask.evaluation.overlap import READ_SHARE, SAMPLE, WORDS
from midmask.evaluation.rendering import markdown, markdown_text
from midmask.experiment.events import Ended, StepEvent
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.store.artifact import load
from midmask.store.place import Place

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
"""What one stage has read of one split, as `find_overlaps` returns it."""

HEADINGS = {"queries": "queries read", "relevant": "relevant passages read", "passages": "all passages read"}

WARNED = 0.01
"""Share of a split's queries, or of their relevant passages, above which there is a warning."""

ABOUT = (
    f"A text was read if more than {READ_SHARE:.0%} of its runs of {WORDS} words are in the training's texts: passages "
    "of a middle training; of a fine-tuning, train queries for queries, the passages relevant to them for passages. "
    f"About {SAMPLE:,} passages stand for all of a larger collection. A middle training on the collection that is "
    "searched reads its passages, as it would in use."
)


def warnings_of(rows: Iterable[Row]) -> list[str]:
    """Lines on texts that should be new to a training and are not: what is evaluated, but for the passages that are
    searched where a stage is trained on them, and what queries quote of these.
    """
    return [
        f"Warning: {row['corpus']} {row['split']}: {row['stage']} on {row['read']} reads {_share(row[part])} {name}, "
        "or near copies of them; results may be too high there. Remove the copies, or evaluate on other queries."
        for row in rows
        for part, name in (("queries", "queries"), ("relevant", "relevant passages"))
        if row[part][0] > WARNED * row[part][1]
        and (not row["transductive"] or (part, row["stage"]) == ("queries", "fine-tuning"))
    ]


def log_warnings(event: StepEvent) -> None:
    """An observer: logs the warnings of each step `overlap` that has ended."""
    if isinstance(event, Ended) and event.step.name == "overlap":
        for line in warnings_of(event.artifact.result["overlaps"]):
            log.warning("%s", line.removeprefix("Warning: "))


def collect_overlaps(layout: Layout, storage: Place) -> list[Row]:
    """The rows of all stages of the cells, each once, from the storage or from records."""
    rows: dict[str, Row] = {}
    for cell in layout.cells:
        finished = [step for step in cell.overlaps if step.is_finished(storage)]
        computed = [row for step in finished for row in load(step.place(storage)).result["overlaps"]]
        rows |= {json.dumps(row): row for row in computed or layout.recorded_overlaps.get(cell.name, ())}
    return list(rows.values())


def describe_overlaps(rows: Sequence[Row]) -> str:
    """Markdown: a table with a line for each stage and evaluated split, and how it was counted."""
    cells = [
        [
            *map(markdown_text, (f"{row['stage']} on {row['read']}", f"{row['corpus']} {row['split']}")),
            *(_share(row[part]) for part in HEADINGS),
        ]
        for row in rows
    ]
    return f"{markdown(['training', 'evaluated on', *HEADINGS.values()], cells)}\n\n{ABOUT}"


def _share(counts: tuple[int, int]) -> str:
    """`0.4% of 4,878`."""
    read, texts = counts
    return f"{read / texts:.1%} of {texts:,}" if texts else MISSING


def compute_overlaps(layout: Layout, storage: Place) -> str:
    """Computes the overlaps of a benchmark in this process, and no training: their table and the warnings, as text."""
    runner = Runner(storage, LOCAL)
    for cell in layout.cells:
        for step in cell.overlaps:
            runner.compute(step)
    rows = collect_overlaps(layout, storage)
    return "\n\n".join([describe_overlaps(rows), *warnings_of(rows)])
