"""What --dry-run says of the cost of a job, after its steps."""

from collections.abc import Iterable

from midmask.app.job import Options
from midmask.artifact import Place
from midmask.estimate import as_text, estimate, refuse_impossible, shape_named
from midmask.experiment.step import Step


def tell_cost(targets: Iterable[Step], options: Options, *, side_by_side: bool = False) -> None:
    """Prints what is still to be paid for these steps and all that they need, on `--on` or this machine.

    Args:
        side_by_side: whether several trainings run at once, as in sweeps and benchmarks.

    Raises:
        UserError: for an unknown shape; with the sum, if the plan could never run there.
    """
    shape = None if options.on is None else shape_named(options.on)
    own = {"workers": options.workers, "per_training": options.workers_per_training}
    plan = estimate(targets, Place(options.storage), shape, **own, side_by_side=side_by_side)
    print(f"\n{as_text(plan)}")
    refuse_impossible(plan)
