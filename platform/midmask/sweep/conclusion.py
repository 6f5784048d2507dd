"""The end of a sweep: its trials read back from the store, the best held against its baselines, all of it as data; and
the report of that: the trials as a table, and sentences on what was measured.

Sentences do not claim more than was measured, and each names the split that it is about: trials are chosen on dev, and
the chosen ones reported on test.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from midmask.core.config import fingerprint
from midmask.core.words import MISSING, number_cell
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import SeedSpread, seed_spread
from midmask.evaluation.statistics.ranks import on_front
from midmask.evaluation.statistics.significance import Comparison, ComparisonOutcome, compare, noise_floor
from midmask.experiment.changes import apply_changes
from midmask.experiment.graph import Step
from midmask.experiment.notes import notes
from midmask.experiment.report import System, against, comparison_table, per_query
from midmask.retrieve.bm25 import BM25
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.sweep.plan import SPLITS, Entrant, Measured, Sweep, final_evaluation
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
    value_text,
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
    outcomes: Sequence[Outcome]

    @cached_property
    def all(self) -> list[Trial]:
        points: dict[str, Outcome] = {}
        for outcome in self.outcomes:
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
        System(label, {split: [load(steps[split].place(storage)) for steps in seeds] for split in SPLITS})
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
            SweepParameter(path=path, label=name, log=distribution.log, constant=distribution.is_constant)
            for (path, distribution), name in zip(space.parameters.items(), labels(space).values(), strict=True)
        ),
        points=tuple(_point(sweep, trial, trial.label in front, standings.get(trial.label)) for trial in trials.all),
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
    results = []
    for system in systems:
        to_floor = {split: by_label[system.label] for split, by_label in rows.items() if system.label != floor}
        differences = {
            split: DifferenceToFloor(**{**vars(row), "p": row.p_corrected}, outcome=outcome(row))
            for split, row in to_floor.items()
        }
        means = {split: system.values(split, measure) for split in SPLITS}
        results.append(ComparedSystem(label=system.label, **means, to_floor=differences))
    return {"systems": tuple(results), "floor": floor}


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


OUTCOMES: Mapping[ComparisonOutcome, str] = {
    "better": "is better than",
    "worse": "is worse than",
    "equal": "is within the noise of",
    "undecided": "was measured on too few queries to be told from",
}
"""Outcome of a comparison -> its words in a sentence."""


def full_report(sweep: SweepResult, compared: Sequence[System]) -> str:
    """The verdict in a sentence, the trials, the comparison, and what else follows from them, a sentence each."""
    first, *others = sweep.sentences
    measures = [name for name in compared[-1].evaluations["test"][0].result["measures"] if name != sweep.measure]
    parts = [
        first,
        f"Trials on {sweep.corpus} dev ({len(sweep.points)}):",
        trials_table(sweep),
        f"Comparison on {sweep.corpus} (chosen on dev; test is reported once, for these systems alone):",
        comparison_table(compared, sweep.floor, sweep.measure, measures),
        notes({f"{entry.label}, {split}": done[0] for entry in compared for split, done in entry.evaluations.items()}),
        *others,
    ]
    return "\n\n".join(parts)


def summary(sweep: SweepResult, compared: Sequence[System]) -> str:
    """The verdict on test in a sentence, and the comparison by the measure alone."""
    table = comparison_table(compared, sweep.floor, sweep.measure)
    return f"{winner_sentence(sweep, ['test'])}\n\n{table}"


def trials_table(sweep: SweepResult) -> str:
    """A Markdown table with a row per trial in the order of asking: its parameters, measurements, comparison with the
    best, and end.
    """
    parameters = [choice for choice in sweep.parameters if not choice.constant]
    objectives = [objective.measure for objective in sweep.objectives]
    probes = range(max((len(point.probes) for point in sweep.points), default=0))
    headers = [*(choice.label for choice in parameters), *(f"probe {number + 1}" for number in probes), *objectives]
    rows = []
    for point in sweep.points:
        tried, row = point.parameters, point.to_best
        cells = [value_text(tried[choice.path]) if choice.path in tried else MISSING for choice in parameters]
        cells += [f"{point.probes[number]:.4f}" if number < len(point.probes) else MISSING for number in probes]
        cells += [number_cell(point.values.get(sweep.measure), ".4f")]
        cells += [number_cell(point.values.get(sweep.cost), ".5g")] if sweep.cost else []
        cells += [_signed(row.difference), number_cell(row.p_corrected, ".2g")] if row else [MISSING, MISSING]
        rows.append([*cells, _end(sweep, point)])
    return markdown([*headers, "to the best", "p (Holm)", "end"], rows)


def _end(sweep: SweepResult, point: SweepPoint) -> str:
    """How a trial ended, whether it is on the front, and the name that the space gives to it."""
    front = "on the front" if sweep.cost and point.front else None
    return ", ".join(filter(None, ("complete" if point.complete else "pruned", front, point.mark)))


def sentences(sweep: SweepResult) -> Iterator[str]:
    """The conclusions of the sweep, the most important first."""
    yield winner_sentence(sweep)
    if sweep.cost:
        front = sum(point.front for point in sweep.complete)
        yield f"{front} of {len(sweep.complete)} points are on the front of {sweep.measure} and {sweep.cost} on dev."
    if sweep.noise_floor:
        yield noise_sentence(sweep)


def winner_sentence(sweep: SweepResult, splits: Sequence[str] = ("test", "dev")) -> str:
    """Whether the winner is better than the floor on test, where it is reported, and on dev, where it was chosen; with
    the estimate, interval and p on these splits.
    """
    winner, floor = sweep.systems[0], sweep.floor
    on_test, on_dev = (OUTCOMES[winner.to_floor[split].outcome] for split in ("test", "dev"))
    if on_test == on_dev:
        headline = f"{winner.label} {on_test} {floor}, on test and on dev."
    else:
        headline = (
            f"On test, {winner.label} {on_test} {floor}; on dev, where it was chosen, it {on_dev} it. "
            "The result on test is the unbiased one."
        )
    figures = "; ".join(f"{split} {_figures(winner.means[split], winner.to_floor[split])}" for split in splits)
    seeds = f"{len(winner.test)} fine-tuning seed{'s' if len(winner.test) > 1 else ''}"
    tests = f"paired t-tests over queries, {seeds}, {_family(len(sweep.systems))}"  # with BM25, without the floor
    return f"{headline} {sweep.measure} and difference to {floor}: {figures} ({tests})."


def _figures(mean: float, row: DifferenceToFloor) -> str:
    interval = f"[95% interval {_signed(row.low)}, {_signed(row.high)}]"
    return f"{mean:.4f}, {_signed(row.difference)} {interval}, p = {row.p:.2g}, {row.queries} queries"


def _signed(value: float | None) -> str:
    return number_cell(value, "+.4f")


def _family(count: int) -> str:
    return f"Holm over {count} comparisons" if count > 1 else "one comparison"


def noise_sentence(sweep: SweepResult) -> str:
    """The noise floor, its sources, and how many trials are within it."""
    noise = sweep.noise_floor
    assert noise is not None
    others = [point.to_best for point in sweep.complete if point.to_best]
    alike = sum(not row.distinguishable for row in others)
    spread = "no repeated fine-tuning, so that what the seed does is not in it"
    if noise.seed_degrees:
        degrees = f"{noise.seed_degrees} degrees of freedom"
        spread = f"a standard deviation of {noise.seed_spread:.4f} over fine-tuning seeds ({degrees})"
    which = f"{alike} of the other {len(others)} complete trials" if len(others) > 1 else "The other trial"
    swallowed = f"{which} cannot be told from the best" if alike else "Every other trial is significantly worse"
    return (
        f"Noise floor: a difference of {noise.value:.4f} between two trials is found with a probability of 0.8 "
        f"(queries paired, {spread}; {_family(len(others))}). {swallowed} on dev."
    )
