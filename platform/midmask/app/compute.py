"""The one way in which a job computes steps: on the cluster, tracked, with progress."""

import math
from collections.abc import Callable, Iterable, Sequence

from midmask.app.tracked_job import GraphObserver, GraphProgress, TrackedJob, TrackedSystem
from midmask.backend.executor import execute
from midmask.experiment.costs import StepTimes
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import StepKind
from midmask.experiment.run import Observer, report_finished
from midmask.store.artifact import load
from midmask.store.place import Place


def compute(
    job: TrackedJob,
    systems: Sequence[TrackedSystem],
    targets: Iterable[Step],
    *,
    phase: str | None = None,
    has_run: Callable[[StepKind], bool] = lambda kind: True,
    finished: Iterable[Step] | None = None,
    watch: Callable[[Observer], Observer] = lambda observer: observer,
    keep_going: bool = False,
    until: float = math.inf,
) -> dict[str, str]:
    """Computes what the storage lacks of the targets, tracks it in runs nested in the job's, and links the runs of what
    was finished before. A step that several targets need is computed once.

    Args:
        systems: what the targets measure; at least one, to whose recipe steps without a system belong.
        phase: of the job's progress; none: three phases, by the kind of step.
        has_run: which kinds of steps get a run of their own.
        finished: steps that are looked at for being finished; none: those that the missing ones read.
        watch: passes the reports on to one who also wants them.
        keep_going: whether steps that do not need a failed one are still computed. Else the first failure is raised.
        until: of `time.monotonic`; what is not finished then is left.

    Returns:
        Name of a system -> why it was not measured.
    """
    targets = list(targets)
    looked_at = [step for target in targets for step in target.upstream()] if finished is None else list(finished)
    graph = Graph.left_in(job.storage, targets, _measured_times(looked_at, job.storage).weight)
    progress = GraphProgress(job.progress, graph.left.values(), job.use.side_by_side, phase)
    observer = GraphObserver(job, systems, progress, has_run=has_run, keep_going=keep_going)
    watched = watch(observer)
    report_finished(graph.there.values() if finished is None else looked_at, job.storage, watched)
    execute(graph, job.storage, job.use, watched, keep_going=keep_going, until=until)
    return observer.failures


def _measured_times(steps: Iterable[Step], storage: Place) -> StepTimes:
    """The seconds of those steps that were finished before."""
    times = StepTimes()
    for step in {step.fingerprint: step for step in steps}.values():
        if step.is_finished(storage):
            times.add(step, float(load(step.place(storage)).result.get("seconds", 0.0)))
    return times
