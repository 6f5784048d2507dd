"""A finished sweep as it tells of itself: `sweep.json`, an artifact of its parent run, as `cluster.summary` writes it.

Sweeps of before have none, and those that run have none yet: `surfaces` makes what can be made of their trials.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeGuard

from midmask.errors import UserError
from midmask.tracking import artifact_file

NAME = "sweep.json"
FORMAT = 1

SweepValue = float | str | bool | None


@dataclass(frozen=True)
class SweepTarget:
    measure: str
    mode: Literal["max", "min"]


@dataclass(frozen=True)
class Parameter:
    """path: dotted; constant: there is nothing to choose; log: it is searched on a logarithmic scale."""

    path: str
    label: str
    log: bool
    constant: bool


@dataclass(frozen=True)
class SweepPoint:
    """One point that was tried.

    mark: a name that the space gives it. run: fingerprint of its tracked run. parameters: by path, without those that
    do not exist there. probes: the first objective at each rung that it reached before the last. values: objectives, by
    name, none for a pruned point. seeds: of the first objective, one per fine-tuning seed. distinguishable: from the
    best, None for the best itself and for pruned points.
    """

    label: str
    brief: str
    mark: str
    run: str
    parameters: Mapping[str, SweepValue]
    complete: bool
    probes: tuple[float, ...]
    values: Mapping[str, float]
    seeds: tuple[float, ...]
    front: bool
    distinguishable: bool | None


@dataclass(frozen=True)
class Difference:
    """A system less the floor, on the queries of one split. low, high: infinite for a single query. p: as Holm corrects
    it.
    """

    difference: float
    low: float
    high: float
    p: float
    outcome: Literal["better", "worse", "equal", "undecided"]
    queries: int


@dataclass(frozen=True)
class Compared:
    """A system of the final comparison. means: split -> first objective, over its seeds. to_floor: split -> difference;
    empty for the floor itself, and in files of older versions.
    """

    label: str
    means: Mapping[str, float]
    to_floor: Mapping[str, Difference]


@dataclass(frozen=True)
class SweepFile:
    """noise_floor: a difference between two points that is found with a probability of 0.8, None if it is not known.
    shares: path -> share of the importance, the largest first, empty where trials are too few; evaluator: by what, from
    how many trials. systems: the final comparison, the best point first. floor: label of the system that the others are
    held against, empty in files of older versions.
    """

    name: str
    recipe: str
    corpus: str
    split: str
    objectives: tuple[SweepTarget, ...]
    parameters: tuple[Parameter, ...]
    points: tuple[SweepPoint, ...]
    best: str
    noise_floor: float | None
    shares: Mapping[str, float]
    evaluator: str
    trials: int
    sentences: tuple[str, ...]
    systems: tuple[Compared, ...]
    floor: str

    @property
    def complete(self) -> list[SweepPoint]:
        return [point for point in self.points if point.complete]

    @property
    def choices(self) -> list[Parameter]:
        """Parameters of which the complete points have more than one value, or which some of them lack; a constant that
        some lack tells nothing that its condition does not.
        """
        found = self.complete
        kinds = {
            one.path: {str(point.parameters.get(one.path, "absent")) for point in found} for one in self.parameters
        }
        return [one for one in self.parameters if len(kinds[one.path]) > 1 and not one.constant]

    def first(self, point: SweepPoint) -> float:
        """The objective that decides."""
        return point.values[self.objectives[0].measure]

    def band(self) -> tuple[float, float] | None:
        """The values that lie within the noise floor of the best, ascending."""
        if self.noise_floor is None:
            return None
        best = next(self.first(point) for point in self.complete if point.label == self.best)
        other = best - self.noise_floor if self.objectives[0].mode == "max" else best + self.noise_floor
        return min(best, other), max(best, other)


def read_sweep(uri: str, run_id: str, cache: Path) -> SweepFile | None:
    """The sweep of a parent run, None if the run has no such file.

    Args:
        cache: folder for what lies on another machine.

    Raises:
        UserError: if the store does not answer, or the file is of another format.
    """
    path = artifact_file(uri, run_id, NAME, cache)
    return None if path is None else sweep_of(json.loads(path.read_text()))


def sweep_of(told: Mapping[str, Any]) -> SweepFile:
    """From the file's content.

    Raises:
        UserError: for another format.
    """
    if told.get("format") != FORMAT:
        raise UserError(
            f"{NAME} has format {told.get('format')}; this version reads {FORMAT}, so update one of the two"
        )
    importance = told["importance"] or {"shares": {}, "evaluator": "", "trials": 0}
    floor = told["noise_floor"]
    return SweepFile(
        name=told["name"],
        recipe=told["recipe"],
        corpus=told["corpus"],
        split=told["split"],
        objectives=tuple(SweepTarget(one["measure"], one["mode"]) for one in told["objectives"]),
        parameters=tuple(
            Parameter(one["path"], one["label"], bool(one["log"]), bool(one["constant"])) for one in told["parameters"]
        ),
        points=tuple(map(_point, told["points"])),
        best=told["best"],
        noise_floor=floor["value"] if floor else None,
        shares=dict(sorted(importance["shares"].items(), key=lambda item: -item[1])),
        evaluator=importance["evaluator"],
        trials=importance["trials"],
        sentences=tuple(told["sentences"]),
        systems=tuple(map(_compared, told["systems"])),
        floor=told.get("floor", ""),
    )


def is_numeric(sweep: SweepFile, path: str) -> bool:
    """Whether all complete points that have the parameter have a number of it."""
    found = [point.parameters[path] for point in sweep.complete if path in point.parameters]
    return bool(found) and all(map(_is_number, found))


def numbers(sweep: SweepFile, path: str) -> list[float]:
    """The different numbers of a parameter among the complete points, ascending."""
    values = [point.parameters.get(path) for point in sweep.complete]
    return sorted({float(value) for value in values if _is_number(value)})


def lines_over(sweep: SweepFile, path: str) -> dict[str, list[SweepPoint]]:
    """What else was chosen, in words -> the complete points that share it, by their value of the parameter; those that
    lack it last.
    """
    groups: dict[str, list[SweepPoint]] = {}
    for point in sweep.complete:
        groups.setdefault(_others(sweep, point, {path}), []).append(point)
    return {label: sorted(own, key=lambda point: _ordered(point.parameters.get(path))) for label, own in groups.items()}


def surface_over(
    sweep: SweepFile, across: str, up: str
) -> tuple[list[SweepValue], list[SweepValue], list[list[float | None]]]:
    """The first objective over two parameters, a mean where other parameters differ too: the values across, those up,
    and a row for each of the latter; None where nothing was tried.
    """
    found = [point for point in sweep.complete if across in point.parameters and up in point.parameters]
    cells: dict[tuple[SweepValue, SweepValue], list[float]] = {}
    for point in found:
        cells.setdefault((point.parameters[across], point.parameters[up]), []).append(sweep.first(point))
    columns, rows = (_distinct([point.parameters[path] for point in found]) for path in (across, up))
    grid = [[fmean(own) if (own := cells.get((x, y))) else None for x in columns] for y in rows]
    return columns, rows, grid


def _point(told: Mapping[str, Any]) -> SweepPoint:
    return SweepPoint(
        label=told["label"],
        brief=told["brief"],
        mark=told["mark"] or "",
        run=told["run"],
        parameters=told["parameters"],
        complete=told["complete"],
        probes=tuple(told["probes"]),
        values=told["values"],
        seeds=tuple(told["seeds"]),
        front=told["front"],
        distinguishable=told["to_best"]["distinguishable"] if told["to_best"] else None,
    )


def _compared(told: Mapping[str, Any]) -> Compared:
    to_floor = {split: _difference(own) for split, own in told.get("to_floor", {}).items()}
    return Compared(told["label"], {split: fmean(told[split]) for split in ("dev", "test")}, to_floor)


def _difference(told: Mapping[str, Any]) -> Difference:
    low, high = (end if told[name] is None else told[name] for name, end in (("low", -math.inf), ("high", math.inf)))
    return Difference(**{**told, "low": low, "high": high})


def _others(sweep: SweepFile, point: SweepPoint, left_out: set[str]) -> str:
    own = [one for one in sweep.choices if one.path not in left_out and one.path in point.parameters]
    return ", ".join(f"{one.label} {shown(point.parameters[one.path])}" for one in own)


def shown(value: SweepValue) -> str:
    """A value as it is read: none for no value, numbers without needless digits."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _distinct(values: Sequence[SweepValue]) -> list[SweepValue]:
    return sorted(dict.fromkeys(values), key=_ordered)


def _ordered(value: SweepValue) -> tuple[bool, bool, float, str]:
    """Numbers by size, then words, then nothing."""
    if _is_number(value):
        return False, False, float(value), ""
    return value is None, True, 0.0, str(value)


def _is_number(value: SweepValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
