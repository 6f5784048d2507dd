"""The trials of a sweep: Ray Tune runs them, Optuna chooses them, a scheduler ends the poor ones at rungs."""

from collections.abc import Sequence
from functools import partial

import optuna

from midmask.backend.resources import Resources
from midmask.backend.tune import EarlyEnd, Halving, TrialSearch, run_trials
from midmask.errors import UserError
from midmask.identity import fingerprint
from midmask.sweep.points import ParameterPoint
from midmask.sweep.space import Space
from midmask.sweep.study import Outcome, Remaining, outcomes, sampler, suggest
from midmask.sweep.trial import TrialContext, run_trial


def search(context: TrialContext, study: optuna.Study, left: Remaining, use: Resources, seed: int) -> list[Outcome]:
    """Runs what is left of a study, and returns all its finished trials.

    A trial that fails is reported and left out; the sweep goes on.
    """
    space = context.space
    if left.count:
        wanted = TrialSearch(
            study=study.study_name,
            storage=study._storage,
            sampler=sampler(space, seed + len(study.trials)),  # resumed: not the first points over again
            suggest=partial(suggest, space),
            modes=[one.mode for one in space.targets],
            points=left.points,
        )
        halving = pruning(space, outcomes(study, space))

        def tell(point: ParameterPoint, how: EarlyEnd) -> None:
            context.channel.push(fingerprint(point), [{"event": "early end", "how": how}])

        run_trials(partial(run_trial, context), wanted, left.count, use, halving, context.storage, tell)
    return outcomes(study, space)


def pruning(space: Space, before: Sequence[Outcome]) -> Halving | None:
    """ASHA on the retrieval measure of the probes; nothing is pruned of several objectives, for which it has no order,
    or where the space says so.

    Args:
        before: trials that an earlier process has finished.
    """
    if len(space.shares) == 1 or not space.rungs.prune:
        return None
    measures = [outcome.measures for outcome in before]
    return Halving(space.targets[0].mode, len(space.shares), space.rungs.reduction, measures)


def best(found: list[Outcome], space: Space) -> Outcome:
    """The best of the trials that ran to the end, by the first objective.

    Raises:
        UserError: if none did.
    """
    complete = [outcome for outcome in found if outcome.complete]
    if not complete:
        raise UserError(f"sweep {space.name}: no trial ran to the end; the log above says why each one failed")
    sign = 1 if space.targets[0].mode == "max" else -1
    return max(complete, key=lambda outcome: sign * outcome.last)
