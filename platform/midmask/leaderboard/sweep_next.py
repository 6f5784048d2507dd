"""What a finished sweep suggests to try next: rules over its own numbers, each with its reason."""

from collections.abc import Iterator

from midmask.leaderboard.sweep_axes import choices, is_numeric, numbers, value_text
from midmask.leaderboard.sweep_result import SweepPoint, SweepResult

TIME = "train_seconds"
"""A trial's cost that is known in every sweep."""

UNIMPORTANT, IMPORTANT = 0.05, 0.5
"""Shares of the importance below which a parameter may be fixed, and from which on trials are best spent on it."""


def suggestions(sweep: SweepResult) -> list[str]:
    """Sentences, the most pressing first; empty if no rule applies."""
    return [*_edges(sweep), *_alike(sweep), *_importance(sweep), *_rungs(sweep)]


def _edges(sweep: SweepResult) -> Iterator[str]:
    """The best value of a number is the smallest or the largest that was tried: what lies beyond is not known."""
    best = next(point for point in sweep.complete if point.label == sweep.best)
    for one in choices(sweep):
        tried = numbers(sweep, one.path)
        value = best.parameters.get(one.path)
        if not is_numeric(sweep, one.path) or len(tried) < 2 or value not in (tried[0], tried[-1]):
            continue
        side, beyond, end = ("smallest", "smaller", one.low) if value == tried[0] else ("largest", "larger", one.high)
        inside = f" (the space goes to {end:g})" if end is not None and end != value else ""
        told = f"{one.label}: the best value, {value_text(value)}, is the {side} that was tried"
        yield f"{told}; try {beyond} ones{inside}."


def _alike(sweep: SweepResult) -> Iterator[str]:
    """Points that cannot be told from the best: choose among them by cost, or measure more."""
    alike = [point for point in sweep.complete if point.distinguishable is False]
    if not alike:
        return
    others = len(sweep.complete) - 1
    none_can = f"None of the other {others} points can" if others > 1 else "The other point cannot"
    told = none_can if len(alike) == others else f"{len(alike)} of the other {others} points cannot"
    yield f"{told} be told from the best: repeat with more seeds, or judge more queries, before their order counts."
    cheapest = _cheapest(sweep, alike)
    if cheapest is not None:
        yield cheapest


def _cheapest(sweep: SweepResult, alike: list[SweepPoint]) -> str | None:
    """The cheapest of the points that are as good as the best, by the second objective, else by training time."""
    best = next(point for point in sweep.complete if point.label == sweep.best)
    second = [one.measure for one in sweep.objectives[1:] if one.mode == "min"]
    name = second[0] if second else TIME
    known = {
        point.label: cost for point in (best, *alike) if (cost := {**point.costs, **point.values}.get(name)) is not None
    }
    if best.label not in known or min(known.values()) >= known[best.label]:
        return None
    label = min(known, key=lambda one: known[one])
    share = 1 - known[label] / known[best.label]
    what = "training time" if name == TIME else name.replace("_", " ")
    return f"{label} is one of them and has {share:.0%} less {what} than the best."


def _importance(sweep: SweepResult) -> Iterator[str]:
    if sweep.importance is None:
        return
    labels = {one.path: one.label for one in sweep.parameters}
    for path, share in sweep.importance.shares.items():
        if share >= IMPORTANT:
            yield f"{labels.get(path, path)} has {share:.0%} of the importance: search it alone, more finely."
    fixed = [labels.get(path, path) for path, share in sweep.importance.shares.items() if share < UNIMPORTANT]
    if fixed:
        yield f"{', '.join(fixed)}: below {UNIMPORTANT:.0%} of the importance; fix it, and spend the trials elsewhere."


def _rungs(sweep: SweepResult) -> Iterator[str]:
    """Whether trials may be pruned earlier, or should not have been."""
    pruned = len(sweep.points) - len(sweep.complete)
    ranking = [proxy.share for proxy in sweep.proxies if proxy.shown_to_rank]
    if ranking and not pruned:
        yield f"Probes at {min(ranking):.0%} of the pre-training rank trials as the end does: prune there."
    if pruned and sweep.proxies and not ranking:
        yield f"{pruned} trials were pruned by probes that are not shown to rank them: try them without pruning."
