"""The final comparison: systems × fine-tuning seeds under one protocol, side by side on the cluster."""

from collections.abc import Sequence
from dataclasses import replace

from midmask.app.compute import compute
from midmask.app.observer import TrackedSystem
from midmask.app.tracked_job import TrackedJob
from midmask.sweep.entrants import SPLITS, Entrant


def compare(entrants: Sequence[Entrant], job: TrackedJob, phase: str) -> None:
    """Evaluates every entrant on every split, and tracks it as a system. A step that several need is computed once.

    Args:
        phase: of the job's progress.

    Raises:
        RayError: of the first step that fails.
    """
    targets = [step for one in entrants for step in one.evaluations.values()]
    systems = [
        TrackedSystem(f"{one.label}, seed {one.seed}", one.recipe, one.evaluations, main=SPLITS[-1]) for one in entrants
    ]
    job = replace(job, use=replace(job.use, alone=job.use.side_by_side == 1))  # there are no trials any more
    # Of what is finished only the evaluations: trainings are in the runs of their trials.
    compute(job, systems, targets, phase=phase, has_run=lambda kind: kind.trains, finished=targets)
