"""What the trials of a sweep are expected to compute, for its progress."""

import math
from collections.abc import Iterator

from midmask.experiment.plan import rungs
from midmask.experiment.step import Step
from midmask.sweep.measurement import final_evaluations, probe
from midmask.sweep.plan import Sweep, trial_recipes
from midmask.sweep.search import pruning


def expected_trials(sweep: Sweep) -> Iterator[Step]:
    """The measurements of all trials at all rungs, and the middle trainings before them, which go on from each other.

    Where trials are pruned, one of `reduction` goes on from each rung. More do, since ASHA does not wait for the others
    before it decides: the first at a rung always goes on.
    """
    space, recipes = sweep.space, trial_recipes(sweep)
    halving = pruning(space, ())
    for number, share in enumerate(space.shares):
        going = math.ceil(len(recipes) / halving.reduction**number) if halving else len(recipes)
        for recipe in recipes[:going]:
            if share == space.shares[-1]:
                yield from final_evaluations(recipe, space, sweep.survey)
            else:
                yield probe(recipe, share, space, sweep.survey)
            trained = rungs(recipe, space.shares[: number + 1], sweep.survey)[-1].pretrained
            if trained is not None:
                yield trained
