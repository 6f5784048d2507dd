"""The points of a search space: which parameters a point has, all points of a grid, and whether the recipe takes them.

A point is a mapping of dotted paths to values. It has exactly the parameters whose conditions hold in it, so that an
impossible point cannot be written down; two points that differ in nothing that counts are one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from midmask.errors import UserError
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.schema import Recipe
from midmask.randomness.streams import python_stream
from midmask.sweep.space import Distribution, ParameterValue, Space

ParameterPoint = dict[str, ParameterValue]

MOST = 2000
"""Corners of a space that are tried on the recipe (about a millisecond each); of more, so many are drawn."""


def is_active(distribution: Distribution, point: Mapping[str, ParameterValue]) -> bool:
    """Whether a parameter exists in a point whose parameters above it are known."""
    return all(path in point and point[path] in wanted for path, wanted in distribution.when.items())


def complete(space: Space, choose: Callable[[str, Distribution], ParameterValue]) -> ParameterPoint:
    """The point whose active parameters are chosen one by one, from the first."""
    point: ParameterPoint = {}
    for path, distribution in space.parameters.items():
        if is_active(distribution, point):
            point[path] = choose(path, distribution)
    return point


def grid(space: Space) -> list[ParameterPoint]:
    """All points of the grid, each once, the last parameter running fastest."""
    return list(_product(space, lambda distribution: distribution.values))


def budget(space: Space) -> int:
    """How many trials a sweep runs."""
    return len(grid(space)) if space.search == "grid" else space.trials


def _product(space: Space, values: Callable[[Distribution], Sequence[ParameterValue]]) -> Iterator[ParameterPoint]:
    paths = list(space.parameters)

    def grown(point: ParameterPoint, number: int) -> Iterator[ParameterPoint]:
        if number == len(paths):
            yield point
            return
        path, distribution = paths[number], space.parameters[paths[number]]
        if not is_active(distribution, point):
            yield from grown(point, number + 1)
            return
        for value in values(distribution):
            yield from grown({**point, path: value}, number + 1)

    return grown({}, 0)


def check(space: Space, recipe: Recipe) -> None:
    """Tries the corners of the space on the recipe, before anything starts: every combination of extremes that the
    conditions leave, or `MOST` of them.

    Raises:
        UserError: for a path that the recipe lacks, naming the nearest; a value that it or its backbone refuses; values
            that exclude each other, where a condition is missing; a mark that is no point of the space.
    """
    refused: list[tuple[ParameterPoint, UserError]] = []
    accepted: set[tuple[str, str]] = set()
    for point in _corners(space):
        try:
            apply_changes(recipe, point).check()
            accepted |= {(path, repr(value)) for path, value in point.items()}
        except UserError as error:
            refused.append((point, error))
    for point, reason in refused:
        if any((path, repr(value)) not in accepted for path, value in point.items()):
            raise reason
    if refused:
        point, reason = refused[0]
        raise UserError(
            f"{describe_point(space, point)}: these values exclude each other ({reason}). Give one of the parameters a "
            "condition: when: {PATH: VALUE}"
        )
    for name, values in space.marks.items():
        if not any(is_marked(values, point) for point in _corners(space)) and not _has_ranges(space):
            raise UserError(f"marks.{name}: no point of the space has {values}; add the values to its parameters")


def _has_ranges(space: Space) -> bool:
    return any(distribution.low is not None for distribution in space.parameters.values())


def _corners(space: Space) -> Iterator[ParameterPoint]:
    extremes = {path: distribution.extremes() for path, distribution in space.parameters.items()}
    if math.prod(map(len, extremes.values())) <= MOST:
        yield from _product(space, Distribution.extremes)
        return
    rng = python_stream(0)
    for _ in range(MOST):
        yield complete(space, lambda path, _: rng.choice(extremes[path]))


def is_marked(values: Mapping[str, ParameterValue], point: Mapping[str, ParameterValue]) -> bool:
    """Whether a point is the one that a mark means: it has all its values."""
    return all(path in point and point[path] == value for path, value in values.items())


def mark_of(space: Space, point: Mapping[str, ParameterValue]) -> str | None:
    """The name under which plots and tables know a point, if it has one."""
    return next((name for name, values in space.marks.items() if is_marked(values, point)), None)


def labels(space: Space) -> dict[str, str]:
    """Path -> a short name: its label, else its end in words, with as many of its parents as tell it from others."""
    found: dict[str, str] = {}
    for path, distribution in space.parameters.items():
        others = [other for other in space.parameters if other != path]
        parts = path.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        own = next(end for end in ends if not any(f".{other}".endswith(f".{end}") for other in others))
        found[path] = distribution.label or own.replace("_", " ")
    return found


def format_value(value: object) -> str:
    """A value for people: `0.3`, `none`, `basic`."""
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def describe_point(space: Space, point: Mapping[str, ParameterValue]) -> str:
    """`encoder mask ratio 0.3, decoder mask ratio 0.5`; what cannot be otherwise is left out."""
    names = labels(space)
    free = {path: value for path, value in point.items() if not space.parameters[path].is_constant}
    return ", ".join(f"{names[path]} {format_value(value)}" for path, value in free.items())


def briefly(space: Space, point: Mapping[str, ParameterValue]) -> str:
    """`0.3/0.5`, as papers write it; a mark's name where there is one."""
    free = [value for path, value in point.items() if not space.parameters[path].is_constant]
    return mark_of(space, point) or "/".join(map(format_value, free))
