"""Steps of a small plan, what they are expected to take, and a clock that a test turns."""

from collections.abc import Sequence

from midmask.experiment.plan import plan
from midmask.experiment.step import Step
from midmask.recipes import RECIPES

STEPS = list(plan(RECIPES["mlm"]()).evaluation(RECIPES["mlm"]().evaluation).upstream())


class Turned:
    """A clock that stands still until it is turned."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def of(kind: str) -> Step:
    return next(step for step in STEPS if step.name == kind)


def ten_seconds_each(steps: Sequence[Step]) -> dict[str, float]:
    return {step.fingerprint: 9.5 for step in steps}
