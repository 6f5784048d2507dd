"""Sweeps: which runs are one, and the finished trials of each as points of its surface."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from midmask.leaderboard.rows import measured, param
from midmask.tracking import TrackedRow

ENCODER_RATIO = "objective.encoder_mask_ratio"
DECODER_RATIO = "objective.decoder_mask_ratio"

STEP = "midmask.step"


@dataclass(frozen=True)
class Point:
    """One finished trial of a sweep: its two mask ratios and the measure it reached."""

    encoder_ratio: float
    decoder_ratio: float
    value: float
    run_id: str


def sweeps(runs: Sequence[TrackedRow]) -> list[TrackedRow]:
    """Parent runs of sweeps, in the order of the runs: those that say so, and those of trials."""
    parents = {run.parent_id for run in runs if run.tags.get(STEP) == "trial"}
    return [run for run in runs if run.status != "cached" and (run.tags.get(STEP) == "sweep" or run.run_id in parents)]


def sweep_surface(runs: Sequence[TrackedRow], parent_id: str, corpus: str, split: str, measure: str) -> list[Point]:
    """A sweep's finished trials, ordered by ratios. A cached trial counts with the values of the run it links."""
    points = []
    for run in resolve_cached(runs):
        encoder, decoder = _ratio(run, ENCODER_RATIO), _ratio(run, DECODER_RATIO)
        value = measured(run).get((corpus, split), {}).get(measure)
        if run.parent_id == parent_id and run.status == "finished" and None not in (encoder, decoder, value):
            points.append(Point(encoder, decoder, value, run.run_id))  # type: ignore[arg-type]
    return sorted(points, key=lambda point: (point.encoder_ratio, point.decoder_ratio))


def resolve_cached(runs: Sequence[TrackedRow]) -> list[TrackedRow]:
    """Replaces each cached run by the finished run that it links to; keeps the cached run's parent."""
    by_id = {run.run_id: run for run in runs}
    found = []
    for run in runs:
        source = by_id.get(run.tags.get("midmask.cached_run", ""))
        found.append(replace(source, parent_id=run.parent_id) if run.status == "cached" and source else run)
    return found


def _ratio(run: TrackedRow, name: str) -> float | None:
    try:
        return float(param(run, name))
    except ValueError:
        return None
