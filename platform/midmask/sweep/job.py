"""The job of a sweep: reads the space and the flags, prints the plan or the report."""

import logging
from argparse import Namespace
from pathlib import Path

from midmask.app.driver import ending, model_product, scale_notes, tell_cost
from midmask.app.job import Options
from midmask.core.config import override
from midmask.experiment.evaluations import refuse_missing_splits
from midmask.sweep.plan import describe, expected_steps, sweep_for
from midmask.sweep.space import load_space

log = logging.getLogger(__name__)


def sweep(options: Options, flags: Namespace, path: Path) -> None:
    """The whole of a sweep job: reads the space, applies the flags, runs, prints."""
    space = load_space(path)
    given = {name: getattr(flags, name) for name in ("search", "trials") if getattr(flags, name) is not None}
    one = sweep_for(options, override(space, given))
    refuse_missing_splits(expected_steps(one))
    if options.dry_run:
        print(describe(one))
        tell_cost(expected_steps(one), options, side_by_side=True)
        return
    for note in scale_notes(one.recipe, options):
        log.warning("%s", note)
    from midmask.sweep.run import run_sweep  # here, so that a dry run waits for neither Ray nor MLflow

    report, model = run_sweep(one)
    print(ending(options, report, (), model_product(model)))
