"""Tracked runs -> rows: what a leaderboard shows, as plain data. Pages, tables and tests share it; nothing is drawn.

A run that carries measures is a system that was evaluated: one row per run, corpus and split. Cached runs repeat
another run and make no row. Runs that have not finished are listed apart, never ranked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import ir_measures

from midmask.tracking import TrackedRow, is_measure, measure_of, ui_address

FAVOURITES = ("nDCG@10", "RR@10", "R@10", "R@100", "R@1000", "AP@1000")
"""Measures in the order in which this field's tables print them; others follow by name."""

ENCODER_RATIO = "objective.encoder_mask_ratio"
DECODER_RATIO = "objective.decoder_mask_ratio"


@dataclass(frozen=True)
class Row:
    """One evaluated system on one split.

    `measures` maps ir-measures names to values in [0, 1], `params` dotted paths to texts.
    `trial` tells a sweep's trial from a system that was evaluated for itself.
    """

    name: str
    recipe: str
    objective: str
    corpus: str
    split: str
    seed: str
    measures: dict[str, float]
    trial: bool
    split_made_here: bool
    fingerprint: str
    run_id: str
    experiment_id: str
    parent_id: str | None
    started: datetime
    params: dict[str, str]


@dataclass(frozen=True)
class Point:
    """One finished trial of a sweep: its two mask ratios and the measure it reached."""

    encoder_ratio: float
    decoder_ratio: float
    value: float
    run_id: str


def rows(runs: Iterable[TrackedRow]) -> list[Row]:
    """One row per finished run, corpus and split that has measures, in the order of the runs."""
    return [
        _row(run, corpus, split, measures)
        for run in runs
        if run.status == "finished"
        for (corpus, split), measures in _measured(run).items()
    ]


def unfinished(runs: Iterable[TrackedRow]) -> list[TrackedRow]:
    """Runs that are being written, failed or were killed. A pruned trial is none: it ended as its sweep wanted."""
    return [run for run in runs if run.status not in ("finished", "cached", "pruned")]


def sweeps(runs: Sequence[TrackedRow]) -> list[TrackedRow]:
    """Parent runs, newest first, whose nested runs differ in a mask ratio."""
    parents = {run.parent_id for run in runs if _ratio(run, ENCODER_RATIO) is not None}
    parents |= {run.parent_id for run in _follow(runs) if _ratio(run, ENCODER_RATIO) is not None}
    return [run for run in runs if run.run_id in parents and run.status != "cached"]


def sweep_surface(runs: Sequence[TrackedRow], parent_id: str, corpus: str, split: str, measure: str) -> list[Point]:
    """A sweep's finished trials, ordered by ratios. A cached trial counts with the values of the run it links."""
    points = []
    for run in _follow(runs):
        encoder, decoder = _ratio(run, ENCODER_RATIO), _ratio(run, DECODER_RATIO)
        value = _measured(run).get((corpus, split), {}).get(measure)
        if run.parent_id == parent_id and run.status == "finished" and None not in (encoder, decoder, value):
            points.append(Point(encoder, decoder, value, run.run_id))  # type: ignore[arg-type]
    return sorted(points, key=lambda point: (point.encoder_ratio, point.decoder_ratio))


def measure_names(found: Iterable[Row]) -> list[str]:
    """Every measure of these rows, the field's favourites first."""
    names = {name for row in found for name in row.measures}
    return [name for name in FAVOURITES if name in names] + sorted(names - set(FAVOURITES))


def best(found: Iterable[Row]) -> dict[tuple[str, str, str], float]:
    """(corpus, split, measure) -> the highest value: only systems on the same questions are compared."""
    highest: dict[tuple[str, str, str], float] = {}
    for row in found:
        for name, value in row.measures.items():
            key = (row.corpus, row.split, name)
            highest[key] = max(value, highest.get(key, value))
    return highest


def run_link(uri: str, run: Row | TrackedRow, ui: str | None = None) -> str:
    """The address of a run in MLflow's own pages."""
    return f"{ui_address(uri, ui)}/#/experiments/{run.experiment_id}/runs/{run.run_id}"


def _row(run: TrackedRow, corpus: str, split: str, measures: dict[str, float]) -> Row:
    tag = {key.removeprefix("midmask."): value for key, value in run.tags.items() if key.startswith("midmask.")}
    return Row(
        name=run.name,
        recipe=tag.get("recipe", ""),
        objective=tag.get("objective", ""),
        corpus=corpus,
        split=split,
        seed=_seed(run),
        measures=measures,
        trial=tag.get("step") == "trial",
        split_made_here=tag.get("split_made_here", "").lower() == "true",
        fingerprint=tag.get("fingerprint", ""),
        run_id=run.run_id,
        experiment_id=run.experiment_id,
        parent_id=run.parent_id,
        started=run.started,
        params=run.params,
    )


def _measured(run: TrackedRow) -> dict[tuple[str, str], dict[str, float]]:
    """(corpus, split) -> measure -> value. A key of three segments whose last is no measure is another metric."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for key, value in run.metrics.items():
        if is_measure(key):
            corpus, split, measure = measure_of(key)
            if _exists(measure):
                found.setdefault((corpus, split), {})[measure] = value
    return found


def _exists(measure: str) -> bool:
    try:
        ir_measures.parse_measure(measure)
    except (NameError, ValueError, SyntaxError, TypeError):
        return False
    return True


def _follow(runs: Sequence[TrackedRow]) -> list[TrackedRow]:
    """The runs, each cached one replaced by what it links, at the place where it hangs."""
    by_id = {run.run_id: run for run in runs}
    followed = []
    for run in runs:
        source = by_id.get(run.tags.get("midmask.cached_run", ""))
        followed.append(_moved(source, run.parent_id) if run.status == "cached" and source else run)
    return followed


def _moved(run: TrackedRow, parent_id: str | None) -> TrackedRow:
    return TrackedRow(**{**vars(run), "parent_id": parent_id})


def _seed(run: TrackedRow) -> str:
    """The last fine-tuning stage's seed, the one that repeated runs of a system differ in; else the run's own."""
    stages = sorted(path for path in run.params if path.startswith("stages.") and path.endswith(".train.seed"))
    return run.params[stages[-1]] if stages else _param(run, "seed")


def _param(run: TrackedRow, name: str) -> str:
    """The value at the shortest dotted path that ends in `name`, empty if there is none."""
    paths = [path for path in run.params if f".{path}".endswith(f".{name}")]
    return run.params[min(paths, key=len)] if paths else ""


def _ratio(run: TrackedRow, name: str) -> float | None:
    try:
        return float(_param(run, name))
    except ValueError:
        return None
