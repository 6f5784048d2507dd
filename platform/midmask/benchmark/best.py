"""The best system of a benchmark, for the end of the job's output."""

from collections.abc import Mapping
from statistics import mean

from midmask.artifact import Place
from midmask.benchmark.cells import BenchmarkCell
from midmask.benchmark.collect import collect
from midmask.benchmark.layout import Layout
from midmask.benchmark.results import SystemKey
from midmask.experiment.evaluated import model_step


def best_of(layout: Layout, storage: Place) -> tuple[str, Place | None]:
    """A sentence on the best system by the benchmark's measure, on the first collection; and the folder of its model
    with the first seed, None if nothing was measured, or if it has none here.
    """
    wanted = layout.benchmark.measure
    first = layout.cells[0].main
    scores: dict[SystemKey, list[float]] = {}
    for result in collect(layout.cells, storage, layout.recorded).where(corpus=first[0], split=first[1]):
        if wanted in result.measures and not result.further:
            scores.setdefault(result.key, []).append(result.measures[wanted])
    if not scores:
        return f"No cell was measured on {' '.join(first)}.", None
    best = max(scores, key=lambda key: mean(scores[key]))
    cell = next(one for one in layout.cells if one.key == best and not one.further)
    sentence = (
        f"By {wanted} on {' '.join(first)}, the best of {len(scores)} systems is {_label(best)} with "
        f"{mean(scores[best]):.4f}{_seeds(len(scores[best]))}; the tables say what can be told apart."
    )
    return sentence, _model(cell, storage, layout.recorded)


def _label(key: SystemKey) -> str:
    """BM25 is its own representation, which is said once."""
    parts = dict.fromkeys((key.system, key.representation, key.setting))
    return " ".join(part for part in parts if part not in ("none", ""))


def _seeds(count: int) -> str:
    return f" ({count} seeds)" if count > 1 else ""


def _model(cell: BenchmarkCell, storage: Place, recorded: Mapping[str, object]) -> Place | None:
    """None for BM25, and for a cell whose numbers come from a record of elsewhere."""
    step = None if cell.name in recorded else model_step(cell.evaluations[cell.main])
    return None if step is None else step.place(storage) / "model"
