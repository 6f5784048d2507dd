"""What plots and pages draw of a finished sweep: the values of its parameters, lines, surfaces, and the noise band."""

from statistics import fmean
from typing import TypeGuard

from midmask.leaderboard.sweep_result import SweepParameter, SweepPoint, SweepResult, SweepValue


def choices(sweep: SweepResult) -> list[SweepParameter]:
    """Parameters of which the complete points have more than one value, or which some of them lack; a constant that
    some lack adds nothing to its condition.
    """
    kinds = {
        one.path: {str(point.parameters.get(one.path, "absent")) for point in sweep.complete}
        for one in sweep.parameters
    }
    return [one for one in sweep.parameters if len(kinds[one.path]) > 1 and not one.constant]


def band(sweep: SweepResult) -> tuple[float, float] | None:
    """The values that lie within the noise floor of the best, ascending; None where the noise floor is not known."""
    if sweep.noise_floor is None:
        return None
    best = next(sweep.first(point) for point in sweep.complete if point.label == sweep.best)
    noise = sweep.noise_floor.value
    other = best - noise if sweep.objectives[0].mode == "max" else best + noise
    return min(best, other), max(best, other)


def is_numeric(sweep: SweepResult, path: str) -> bool:
    """Whether all complete points that have the parameter have a number of it."""
    found = [point.parameters[path] for point in sweep.complete if path in point.parameters]
    return bool(found) and all(map(_is_number, found))


def numbers(sweep: SweepResult, path: str) -> list[float]:
    """The different numbers of a parameter among the complete points, ascending."""
    values = [point.parameters.get(path) for point in sweep.complete]
    return sorted({float(value) for value in values if _is_number(value)})


def lines_over(sweep: SweepResult, path: str) -> dict[str, list[SweepPoint]]:
    """What else was chosen, in words -> the complete points that share it, by their value of the parameter; those that
    lack it last.
    """
    others = [one for one in choices(sweep) if one.path != path]
    groups: dict[str, list[SweepPoint]] = {}
    for point in sweep.complete:
        found = [one for one in others if one.path in point.parameters]
        label = ", ".join(f"{one.label} {value_text(point.parameters[one.path])}" for one in found)
        groups.setdefault(label, []).append(point)
    return {label: sorted(own, key=lambda point: _order(point.parameters.get(path))) for label, own in groups.items()}


def surface_over(
    sweep: SweepResult, across: str, up: str
) -> tuple[list[SweepValue], list[SweepValue], list[list[float | None]]]:
    """The first objective over two parameters, a mean where other parameters differ too: the values across, those up,
    and a row for each of the latter; None where nothing was tried.
    """
    found = [point for point in sweep.complete if across in point.parameters and up in point.parameters]
    cells: dict[tuple[SweepValue, SweepValue], list[float]] = {}
    for point in found:
        cells.setdefault((point.parameters[across], point.parameters[up]), []).append(sweep.first(point))
    columns, rows = (sorted({point.parameters[path] for point in found}, key=_order) for path in (across, up))
    grid = [[fmean(own) if (own := cells.get((x, y))) else None for x in columns] for y in rows]
    return columns, rows, grid


def value_text(value: SweepValue) -> str:
    """A parameter's value in tables and legends: "none" for None, numbers without needless digits."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(value: SweepValue) -> tuple[bool, bool, float, str]:
    """Sort key: numbers by size, then words, then None."""
    if _is_number(value):
        return False, False, float(value), ""
    return value is None, True, 0.0, str(value)


def _is_number(value: SweepValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
