"""The end of a sweep: its trials read back from the store, the best held against its baselines, all of it as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from midmask.core.config import fingerprint
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import SeedSpread, seed_spread
from midmask.evaluation.statistics.ranks import on_front
from midmask.evaluation.statistics.significance import Comparison, ComparisonOutcome, compare, noise_floor
from midmask.experiment.changes import apply_changes
from midmask.experiment.graph import Step
from midmask.experiment.report import System, against, per_query
from midmask.retrieve.bm25 import BM25
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.sweep.plan import SPLITS, Entrant, Measured, Sweep, final_evaluation
from midmask.sweep.report import sentences
from midmask.sweep.space import describe_point, labels, mark_of
from midmask.sweep.study import Outcome
from midmask.sweep.sweep_file import (
    ComparedSystem,
    DifferenceToBest,
    DifferenceToFloor,
    NoiseFloor,
    SweepMeasure,
    SweepParameter,
    SweepPoint,
    SweepResult,
)

MODES: Sequence[Literal["max", "min"]] = ("max", "min")
"""Of the measure and of the cost."""

FEW_QUERIES = 50
"""Queries below which no conclusion is drawn."""


@dataclass(frozen=True)
class Trial:
    """A point that was tried; without an evaluation if it was pruned."""

    outcome: Outcome
    label: str
    evaluation: Artifact | None = None
    measured: Measured | None = None


@dataclass(frozen=True)
class Trials:
    """All trials of a sweep, each point once, in the order of asking."""

    sweep: Sweep
    found: Sequence[Outcome]

    @cached_property
    def all(self) -> list[Trial]:
        points: dict[str, Outcome] = {}
        for outcome in self.found:
            label = describe_point(self.sweep.space, outcome.parameters)
            if label not in points or outcome.complete:  # a sampler may ask for a point twice
                points[label] = outcome
        return [self._trial(label, outcome) for label, outcome in points.items()]

    @cached_property
    def complete(self) -> list[Trial]:
        return [trial for trial in self.all if trial.outcome.complete]

    @cached_property
    def best(self) -> Trial:
        """The best by the measure of those that ran to the end.

        Raises:
            UserError: if none did.
        """
        if not self.complete:
            name = self.sweep.space.name
            raise UserError(f"sweep {name}: no trial ran to the end; the log above says why each one failed")
        return max(self.complete, key=lambda trial: trial.outcome.last)

    def front(self) -> set[str]:
        """Labels of the complete trials that no other beats in all objectives."""
        values = [trial.outcome.values for trial in self.complete]
        on_it = on_front(values, MODES[: len(self.sweep.space.objectives)])
        return {trial.label for trial, keep in zip(self.complete, on_it, strict=True) if keep}

    def standings(self, seeds: SeedSpread) -> dict[str, Comparison]:
        """Compares every other complete trial with the best one: label -> comparison by the measure on the dev queries,
        Holm-corrected, with the variance of means over seeds.
        """
        tables = {trial.label: [per_query(trial.evaluation)] for trial in self.complete if trial.evaluation}
        comparisons = compare(tables, baseline=self.best.label, measure=self.sweep.space.measure, seeds=seeds)
        return {row.system: row for row in comparisons}

    def _trial(self, label: str, outcome: Outcome) -> Trial:
        if not outcome.complete:
            return Trial(outcome, label)
        storage = Place(self.sweep.options.storage)
        step = final_evaluation(apply_changes(self.sweep.recipe, outcome.parameters), self.sweep.survey)
        evaluation = load(step.place(storage))
        return Trial(outcome, label, evaluation, Measured.by(step, evaluation, storage))


def systems_of(entrants: Sequence[Entrant], bm25: Mapping[str, Step], storage: Place) -> list[System]:
    """The compared systems in the order of their first mention, BM25 last."""
    evaluations: dict[str, list[Mapping[str, Step]]] = {}
    for entrant in entrants:
        evaluations.setdefault(entrant.label, []).append(entrant.evaluations)
    return [
        System(label, {split: [load(own[split].place(storage)) for own in seeds] for split in SPLITS})
        for label, seeds in (*evaluations.items(), (BM25, [bm25]))
    ]


def conclude(trials: Trials, compared: Sequence[System]) -> SweepResult:
    """The sweep as data.

    Args:
        compared: the best trial first, BM25 last.
    """
    sweep, space, measure = trials.sweep, trials.sweep.space, trials.sweep.space.measure
    seeds = seed_spread([system.values("dev", measure) for system in compared[:-1]])
    standings, front = trials.standings(seeds), trials.front()
    noise = noise_floor(standings.values())
    result = SweepResult(
        name=space.name,
        study=sweep.study,
        fingerprint=sweep.fingerprint,
        recipe=sweep.recipe.name,
        corpus=sweep.recipe.corpus.short_name,
        search=space.search,
        objectives=tuple(
            SweepMeasure(measure=name, mode=mode) for name, mode in zip(space.objectives, MODES, strict=False)
        ),
        parameters=tuple(
            SweepParameter(path=path, label=name, log=one.log, constant=one.is_constant)
            for (path, one), name in zip(space.parameters.items(), labels(space).values(), strict=True)
        ),
        points=tuple(_point(sweep, one, one.label in front, standings.get(one.label)) for one in trials.all),
        best=trials.best.label,
        noise_floor=None
        if noise is None
        else NoiseFloor(value=noise, seed_spread=seeds.spread, seed_degrees=seeds.degrees),
        sentences=(),
        **final_comparison(compared, measure),
    )
    return result.model_copy(update={"sentences": tuple(sentences(result))})


def final_comparison(compared: Sequence[System], measure: str) -> dict[str, Any]:
    """The fields `systems` and `floor`: the compared systems but BM25, each held against the floor, which is the system
    without middle training, or the last of the baselines; BM25 if there is no baseline.
    """
    *systems, bm25 = compared
    last = [bm25, *systems[1:]][-1]
    floor = next((system.label for system in systems if system.label == "none"), last.label)
    rows = {split: against(compared, floor, split, measure) for split in SPLITS}
    told = []
    for system in systems:
        to_floor = {split: own[system.label] for split, own in rows.items() if system.label != floor}
        differences = {
            split: DifferenceToFloor(**{**vars(row), "p": row.p_corrected}, outcome=outcome(row))
            for split, row in to_floor.items()
        }
        means = {split: system.values(split, measure) for split in SPLITS}
        told.append(ComparedSystem(label=system.label, **means, to_floor=differences))
    return {"systems": tuple(told), "floor": floor}


def _point(sweep: Sweep, trial: Trial, on_front: bool, row: Comparison | None) -> SweepPoint:
    space, tried = sweep.space, trial.outcome
    return SweepPoint(
        label=trial.label,
        mark=mark_of(space, tried.parameters),
        parameters=tried.parameters,
        run=fingerprint({"sweep": sweep.fingerprint, "trial": fingerprint(tried.parameters)}),
        complete=tried.complete,
        probes=tuple(tried.measures[number] for number in sorted(tried.measures) if number < len(space.shares)),
        values=dict(zip(space.objectives, tried.values, strict=False)),
        measures=trial.measured.measures if trial.measured else {},
        costs=trial.measured.costs if trial.measured else {},
        front=on_front,
        to_best=DifferenceToBest(**vars(row), distinguishable=row.significant) if row else None,
    )


def outcome(row: Comparison) -> ComparisonOutcome:
    """The outcome of a comparison with the floor."""
    return "undecided" if row.queries < FEW_QUERIES else row.outcome
