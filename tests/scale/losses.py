"""What a cluster can lose while a job runs, and how it comes back."""

import bisect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.scale.bed import HEAD, Cluster

OUTAGE_S = 60.0
"""How long a store does not answer."""

AWAY_S = (5.0, 100.0)
"""Between these, how long a worker node is away: shorter and longer than a training takes to go on without it."""

KINDS = ("worker", "both workers", "storage", "tracking", "tracking killed", "database", "head")

LETHAL = ("head",)
"""Losses that end the job's driver."""


@dataclass(frozen=True)
class Loss:
    """step: number of the step, in the order in which steps start. after: seconds from its start. away: seconds until
    what is lost is back. pick: between 0 and 1, chooses among several of a kind.
    """

    number: int
    kind: str
    step: int
    after: float
    away: float
    pick: float


@dataclass(frozen=True)
class Timeline:
    """Of an undisturbed run: the seconds at which each step started, in order, and its end."""

    starts: Sequence[float]
    total: float


def draw(timeline: Timeline, count: int, seed: str) -> list[Loss]:
    """Losses in the order of their moments, each kind about as often. Half of the moments are drawn over the time of an
    undisturbed run, much of which trainings take, the others over its steps, so that short ones are hit too.
    """
    chance = random.Random(seed)
    rounds = -(-count // len(KINDS))
    kinds = [kind for _ in range(rounds) for kind in chance.sample(KINDS, len(KINDS))][:count]
    ends = [*timeline.starts[1:], timeline.total]
    moments = []
    for number in range(count):
        if number % 2:
            step = chance.randrange(len(ends))
            moments.append((step, chance.uniform(0, ends[step] - timeline.starts[step])))
        else:
            at = chance.uniform(timeline.starts[0], timeline.total)
            step = bisect.bisect_right(timeline.starts, at) - 1
            moments.append((step, at - timeline.starts[step]))
    return [
        Loss(number, kind, step, round(after, 2), round(_away(kind, chance), 1), chance.random())
        for number, (kind, (step, after)) in enumerate(zip(kinds, sorted(moments), strict=True))
    ]


def _away(kind: str, chance: random.Random) -> float:
    return chance.uniform(*AWAY_S) if "worker" in kind or kind == "head" else OUTAGE_S


def strike(there: Cluster, loss: Loss) -> Callable[[], None]:
    """The cluster loses what the loss says; what is returned gives it back."""
    workers = [name for name in there.nodes if name != HEAD]
    if loss.kind == "worker":
        return _lose(there, [workers[int(loss.pick * len(workers))]])
    if loss.kind == "both workers":
        return _lose(there, workers)
    if loss.kind == "head":  # without a head, Ray's other nodes end by themselves
        return _lose(there, [HEAD, *workers])
    name, verbs = {
        "storage": ("storage", ("stop", "continue")),
        "tracking": ("tracking", ("stop", "continue")),
        "tracking killed": ("tracking", ("kill", "start")),
        "database": ("database", ("stop", "continue")),
    }[loss.kind]
    there.tell(f"{verbs[0]} {name}")
    return lambda: there.tell(f"{verbs[1]} {name}")


def _lose(there: Cluster, names: Sequence[str]) -> Callable[[], None]:
    for name in names:
        there.lose(name)

    def replace() -> None:
        for name in names:
            there.add(name)

    return replace
