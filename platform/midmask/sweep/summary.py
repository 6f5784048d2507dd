"""A finished sweep as data: `sweep.json`, an artifact of the sweep's parent run and of the sweep itself, from which
plots and the dashboard's Sweep page are drawn without asking any step again.

    format           1
    name, study, fingerprint, recipe, corpus, search
    split            always "dev": what trials are chosen on
    objectives       [{measure, mode}], the first decides; mode "max" or "min"
    parameters       [{path, label, values, low, high, log, when, constant}], in the order of the space; when: {path:
                     [values]}, the condition under which the parameter exists; constant: there is nothing to choose
    points           one per point tried, in the order of asking:
      label            "decoding=basic decoder_layers=2"; unique; brief: "basic/2"
      mark             its name among the marks ("CLS:768"), or null
      parameters       {path: value}, without those that do not exist there
      run              `midmask.fingerprint` of the trial's tracked run, below the parent
      complete         whether it ran to the end; else it was pruned at a rung
      probes           [value of the first objective], one per rung that it reached before the last
      values           {measure or cost: value} of the objectives; {} if pruned
      measures, costs  all that its evaluation told, by name; costs as in `recipes.costs.Costs`
      seeds            [value of the first objective], one per fine-tuning seed
      front            whether it is on the Pareto front of the complete points (one objective: whether it is the best)
      to_best          {difference, p, p_corrected, detectable, distinguishable}: this point less the best
                       over queries and seeds; null for the best itself and for pruned ones
    best             label of the best point by the first objective
    noise_floor      {value, seed_spread, seed_degrees, repeats}: a difference between two points that is found with a
                     probability of 0.8, or null for a single point
    importance       {evaluator, trials, quantile, shares: {path: share}}, or null where trials are too few
    proxies          [{share, trials, tau, low, high, shown_to_rank}], one per rung; null: not known
    systems          [{label, dev: [value per seed], test: [value per seed], to_floor}]: the final comparison, by the
                     first objective; to_floor: {split: {difference, low, high, p, outcome, queries}}, p as Holm
                     corrects it, outcome: better, worse, equal or undecided; {} for the floor itself
    floor            label of the system that the others are held against
    sentences        what the report says, in words

Numbers are finite; null stands for what is not known.
"""

import math
from dataclasses import asdict
from typing import Any

from midmask.evaluation.statistics.intervals import RankCorrelation
from midmask.evaluation.statistics.significance import Comparison
from midmask.experiment.report import System
from midmask.identity import fingerprint
from midmask.sweep.conclusion import Conclusion
from midmask.sweep.points import briefly, labels, mark_of
from midmask.sweep.space import Space
from midmask.sweep.trials import Trial
from midmask.sweep.verdict import outcome

FORMAT = 1
NAME = "sweep.json"


def summary(end: Conclusion, *, study: str, sweep: str) -> dict[str, Any]:
    """The sweep as plain data.

    Args:
        sweep: the sweep's fingerprint.
    """
    trials, space = end.trials, end.trials.space
    return {
        "format": FORMAT,
        "name": space.name,
        "study": study,
        "fingerprint": sweep,
        "recipe": trials.recipe.name,
        "corpus": trials.recipe.corpus.short_name,
        "split": "dev",
        "search": space.search,
        "objectives": [objective.model_dump(mode="json") for objective in space.targets],
        "parameters": _parameters(space),
        "points": [_point(end, trial, sweep) for trial in trials.all],
        "best": trials.best.label,
        "noise_floor": _noise_floor(end),
        "importance": {"evaluator": "PED-ANOVA", **asdict(end.importance)} if end.importance else None,
        "proxies": [
            {
                "share": share,
                "trials": one.count,
                **_values(one, "tau", "low", "high"),
                "shown_to_rank": one.is_positive,
            }
            for share, one in end.proxies.items()
        ],
        "systems": [_system(system, end) for system in end.systems],
        "floor": end.floor.label,
        "sentences": end.sentences,
    }


def _parameters(space: Space) -> list[dict[str, Any]]:
    names = labels(space)
    return [
        {
            "path": path,
            "label": names[path],
            **distribution.model_dump(mode="json", include={"values", "low", "high", "log", "when"}),
            "constant": distribution.is_constant,
        }
        for path, distribution in space.parameters.items()
    ]


def _point(end: Conclusion, trial: Trial, sweep: str) -> dict[str, Any]:
    space, standing = end.trials.space, end.standings.get(trial.label)
    outcome, objectives = trial.outcome, [objective.measure for objective in space.targets]
    return {
        "label": trial.label,
        "brief": briefly(space, outcome.parameters),
        "mark": mark_of(space, outcome.parameters),
        "parameters": outcome.parameters,
        "run": fingerprint({"sweep": sweep, "trial": fingerprint(outcome.parameters)}),
        "complete": trial.is_complete,
        "probes": [outcome.measures[number] for number in sorted(outcome.measures) if number < len(space.shares)],
        "values": dict(zip(objectives, outcome.values, strict=False)),
        "measures": trial.measured.measures if trial.measured else {},
        "costs": trial.measured.costs if trial.measured else {},
        "seeds": [one.result["measures"][objectives[0]] for one in trial.evaluations],
        "front": trial.label in end.trials.front,
        "to_best": _to_best(standing) if standing else None,
    }


def _to_best(row: Comparison) -> dict[str, Any]:
    return {**_values(row, "difference", "p", "p_corrected", "detectable"), "distinguishable": row.significant}


def _noise_floor(end: Conclusion) -> dict[str, Any] | None:
    if end.noise_floor is None:
        return None
    return {
        "value": end.noise_floor,
        "seed_spread": end.seeds.spread,
        "seed_degrees": end.seeds.degrees,
        "repeats": len(end.trials.space.trial_seeds) or 1,
    }


def _system(system: System, end: Conclusion) -> dict[str, Any]:
    values = {
        split: [one.result["measures"][end.measure] for one in found] for split, found in system.evaluations.items()
    }
    rows = {split: own[system.label] for split, own in end.against_floor.items() if system.label in own}
    return {"label": system.label, **values, "to_floor": {split: _to_floor(row) for split, row in rows.items()}}


def _to_floor(row: Comparison) -> dict[str, Any]:
    found = _values(row, "difference", "low", "high")
    return {**found, "p": row.p_corrected, "outcome": outcome(row), "queries": row.queries}


def _values(found: Comparison | RankCorrelation, *names: str) -> dict[str, float | None]:
    """These fields; null for an infinite one, as JSON has no infinity: a single query has an interval without ends."""
    values = {name: getattr(found, name) for name in names}
    return {name: None if value is None or math.isinf(value) else value for name, value in values.items()}
