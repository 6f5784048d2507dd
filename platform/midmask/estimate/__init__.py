"""What a plan costs before it is paid for: tokens, FLOPs, memory, storage and hours on a cluster shape.

steps ─► volumes (how much there is to read) ─► charges (what each step costs) ─► plan (the sum) ─► rendering, refusals
"""

from collections.abc import Iterable, Mapping

from midmask.artifact import Place
from midmask.estimate.devices import Shape, shape_named
from midmask.estimate.plan import Estimate, estimate
from midmask.estimate.refusals import refuse_impossible
from midmask.estimate.rendering import as_text
from midmask.recipes.step import Step


def estimate_text(
    targets: Mapping[str, Step] | Iterable[Step],
    storage: Place,
    shape: Shape | None = None,
    *,
    workers: int | None = None,
    side_by_side: bool = False,
) -> str:
    """The estimate of a plan as --dry-run prints it.

    Args:
        shape: of the cluster; none: this machine, by what finished trainings in the storage made of it.
        workers, side_by_side: as in `estimate`.

    Raises:
        UserError: with the sum, if the plan could never run there.
    """
    steps = targets.values() if isinstance(targets, Mapping) else targets
    plan = estimate(steps, storage, shape, workers=workers, side_by_side=side_by_side)
    refuse_impossible(plan)
    return as_text(plan)


__all__ = ["Estimate", "Shape", "as_text", "estimate", "estimate_text", "refuse_impossible", "shape_named"]
