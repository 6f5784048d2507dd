"""The result of a finished sweep, `sweep.json`, from its conclusion.

Of the fields of a comparison, `vars(row)`, a part keeps those that it has.
"""

from midmask.experiment.report import System
from midmask.identity import fingerprint
from midmask.leaderboard.sweep_result import (
    ComparedSystem,
    DifferenceToBest,
    DifferenceToFloor,
    NoiseFloor,
    SweepParameter,
    SweepPoint,
    SweepProxy,
    SweepResult,
    SweepTarget,
)
from midmask.sweep.conclusion import Conclusion
from midmask.sweep.points import briefly, labels, mark_of
from midmask.sweep.space import Space
from midmask.sweep.trials import Trial
from midmask.sweep.verdict import outcome


def build_result(end: Conclusion, *, study: str, sweep: str) -> SweepResult:
    """The sweep as data.

    Args:
        study: name of its Optuna study.
        sweep: the sweep's fingerprint.
    """
    trials, space = end.trials, end.trials.space
    return SweepResult(
        name=space.name,
        study=study,
        fingerprint=sweep,
        recipe=trials.recipe.name,
        corpus=trials.recipe.corpus.short_name,
        split="dev",
        search=space.search,
        objectives=tuple(SweepTarget(measure=one.measure, mode=one.mode) for one in space.targets),
        parameters=_parameters(space),
        points=tuple(_point(end, trial, sweep) for trial in trials.all),
        best=trials.best.label,
        noise_floor=_noise_floor(end),
        importance=end.importance,
        proxies=tuple(
            SweepProxy(share=share, trials=one.count, shown_to_rank=one.is_positive, **vars(one))
            for share, one in end.proxies.items()
        ),
        systems=tuple(_system(system, end) for system in end.systems),
        floor=end.floor.label,
        sentences=tuple(end.sentences),
    )


def _parameters(space: Space) -> tuple[SweepParameter, ...]:
    names = labels(space)
    return tuple(
        SweepParameter(**{**one.model_dump(), "label": names[path]}, path=path, constant=one.is_constant)
        for path, one in space.parameters.items()
    )


def _point(end: Conclusion, trial: Trial, sweep: str) -> SweepPoint:
    space, row, tried = end.trials.space, end.standings.get(trial.label), trial.outcome
    names = [objective.measure for objective in space.targets]
    return SweepPoint(
        label=trial.label,
        brief=briefly(space, tried.parameters),
        mark=mark_of(space, tried.parameters),
        parameters=tried.parameters,
        run=fingerprint({"sweep": sweep, "trial": fingerprint(tried.parameters)}),
        complete=trial.is_complete,
        probes=tuple(tried.measures[number] for number in sorted(tried.measures) if number < len(space.shares)),
        values=dict(zip(names, tried.values, strict=False)),
        measures=trial.measured.measures if trial.measured else {},
        costs=trial.measured.costs if trial.measured else {},
        seeds=tuple(one.result["measures"][names[0]] for one in trial.evaluations),
        front=trial.label in end.trials.front,
        to_best=DifferenceToBest(**vars(row), distinguishable=row.significant) if row else None,
    )


def _noise_floor(end: Conclusion) -> NoiseFloor | None:
    if end.noise_floor is None:
        return None
    seeds, repeats = end.seeds, len(end.trials.space.trial_seeds) or 1
    return NoiseFloor(value=end.noise_floor, seed_spread=seeds.spread, seed_degrees=seeds.degrees, repeats=repeats)


def _system(system: System, end: Conclusion) -> ComparedSystem:
    values = {
        split: tuple(one.result["measures"][end.measure] for one in found)
        for split, found in system.evaluations.items()
    }
    to_floor = {
        split: DifferenceToFloor(**{**vars(row), "p": row.p_corrected}, outcome=outcome(row))
        for split, rows in end.against_floor.items()
        if (row := rows.get(system.label))
    }
    return ComparedSystem(label=system.label, dev=values["dev"], test=values["test"], to_floor=to_floor)
