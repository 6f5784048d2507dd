"""What happens to steps, as one stream of events: from this process, from tasks of a cluster and from a sweep's trials.

An observer is a function of one event, called from one thread; all events of a step come between its `Begun` and its
`Ended` or `Failed`. It changes no result. Events are plain values that can be sent to another process.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from midmask.errors import UserError
from midmask.experiment.graph import Step
from midmask.store.artifact import Artifact


@dataclass(frozen=True)
class Begun:
    """The step starts."""

    step: Step


@dataclass(frozen=True)
class Logged:
    """A training has done `at` of its optimiser steps. Without values it only tells how far it is."""

    step: Step
    at: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Ended:
    """The step is computed; `cached`: it was finished before."""

    step: Step
    artifact: Artifact
    cached: bool = False


@dataclass(frozen=True)
class Failed:
    """The step has failed; `lost` are the steps that cannot be computed without it, itself included."""

    step: Step
    error: Exception
    lost: Sequence[Step]


StepEvent = Begun | Logged | Ended | Failed
Observer = Callable[[StepEvent], None]


def unobserved(event: StepEvent) -> None:
    """Observes nothing."""


class TimeIsUp(UserError):
    """A step had not ended when the time of its graph was up; started again, it goes on."""


def until_time_is_up(observer: Observer, until: float) -> Observer:
    """Passes events on, and ends a training of this process at its next report once time is up.

    Args:
        until: of `time.monotonic`.
    """

    def observe(event: StepEvent) -> None:
        observer(event)
        if isinstance(event, Logged) and time.monotonic() >= until:
            step = event.step
            raise TimeIsUp(f"{step.name}: the time was up after step {event.at:,} of {step.optimiser_steps:,}")

    return observe
