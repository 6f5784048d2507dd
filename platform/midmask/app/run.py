"""The one way in which a job computes steps, on the cluster, tracked, with progress; and jobs that do nothing else."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from midmask.app.job import Options
from midmask.app.run_contents import (
    RUN_FILE_TAGS,
    all_datasets,
    base_tags,
    is_bm25,
    is_run_file,
    log_recipe,
    log_report,
    main_measure,
    run_name,
)
from midmask.app.tracked_job import GraphObserver, TrackedJob, TrackedSystem, open_job
from midmask.backend.cluster import whole
from midmask.backend.executor import execute
from midmask.core.config import fingerprint, flatten
from midmask.encoders.folder import view_widths
from midmask.experiment.evaluations import EVALUATION_FIELDS
from midmask.experiment.events import Observer, StepEvent, unobserved
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import StepKind
from midmask.experiment.report import results_table
from midmask.experiment.run import report_finished
from midmask.experiment.schema import Recipe
from midmask.retrieve.run_file import DIGEST_PARAM, TIES_PARAM, RunFileConfig
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.tracking.names import RUN_FILE
from midmask.tracking.runs import Tracker


def compute(
    job: TrackedJob,
    systems: Sequence[TrackedSystem],
    targets: Iterable[Step],
    *,
    has_run: Callable[[StepKind], bool] = lambda kind: True,
    finished: Iterable[Step] | None = None,
    watch: Observer = unobserved,
    keep_going: bool = False,
    until: float = math.inf,
) -> dict[str, str]:
    """Computes what the storage lacks of the targets, tracks it in runs nested in the job's, and links the runs of what
    was finished before. A step that several targets need is computed once.

    Args:
        systems: what the targets measure; at least one, to whose recipe steps without a system belong.
        has_run: which kinds of steps get a run of their own.
        finished: steps that are looked at for being finished; none: those that the missing ones read.
        watch: called with each event after it was tracked.
        keep_going: whether steps that do not need a failed one are still computed. Else the first failure is raised.
        until: of `time.monotonic`; what is not finished then is left.

    Returns:
        Name of a system -> why it was not measured.
    """
    targets = list(targets)
    graph = Graph.left_in(job.storage, targets)
    job.progress.plan(graph.unfinished.values())
    tracking = GraphObserver(job, systems, has_run=has_run, keep_going=keep_going)

    def observe(event: StepEvent) -> None:
        tracking(event)
        watch(event)

    report_finished(graph.finished.values() if finished is None else finished, job.storage, observe)
    execute(graph, job.storage, job.use, observe, keep_going=keep_going, until=until)
    return tracking.failures


def run_tracked(options: Options, recipe: Recipe, targets: Mapping[str, Step]) -> dict[str, Artifact]:
    """A job that computes these targets and nothing else: their artifacts, by name. What is finished is not computed
    again, and links the run that computed it. Of evaluations of run files, each is a system with a run of its own.
    """
    storage = Place(options.storage)
    identity = fingerprint({"job": options.job, **{name: step.fingerprint for name, step in targets.items()}})
    systems = [_run_file_system(name, recipe, step) for name, step in targets.items() if is_run_file(step)]
    tags, params = base_tags(options.job, recipe), flatten(recipe)
    if systems:
        tags, params = {**tags, **RUN_FILE_TAGS, "midmask.recipe": "+".join(targets)}, _settings(recipe)
    tags |= {"midmask.step": "job", "midmask.fingerprint": identity}
    finished = all(step.is_finished(storage) for step in targets.values())
    name, share = run_name(options.job, tags, identity), partial(whole, options.training_workers)
    with open_job(options, name, tags, params, finished=finished, share=share) as job:
        if job is not None:
            log_recipe(job.run, recipe)
            alone = [TrackedSystem(recipe.name, recipe)]
            compute(job, systems or alone, targets.values(), has_run=lambda kind: kind.is_collection or not systems)
            _log_results(job, targets, shows_main=len(systems) < 2)
    return {key: load(step.place(storage)) for key, step in targets.items()}


def _log_results(job: TrackedJob, targets: Mapping[str, Step], *, shows_main: bool) -> None:
    """The collections, the tables and, of a job with one system, the main measures, in the job's own run."""
    job.run.log_inputs(all_datasets(targets.values(), job.storage))
    done = {key: load(step.place(job.storage)) for key, step in targets.items() if step.name == "evaluate"}
    if done:
        log_report(job.run, results_table(done))
    for key, evaluation in done.items():
        if shows_main and not is_bm25(targets[key]):
            job.run.log(main_measure(evaluation.result), step=0)


def _run_file_system(name: str, recipe: Recipe, evaluation: Step) -> TrackedSystem:
    """The system that the leaderboard shows for a run file; its params are the evaluation's settings and inputs."""
    reading = evaluation.inputs["ranked"]
    assert isinstance(reading.config, RunFileConfig), reading.name
    tags = {**RUN_FILE_TAGS, "midmask.recipe": name, RUN_FILE: reading.config.file}
    params = {**_settings(recipe), DIGEST_PARAM: reading.content["run"], TIES_PARAM: reading.config.ties}
    return TrackedSystem(name, recipe, {name: evaluation}, name, tags, params)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Fields of a recipe that change what is measured of a run file, by dotted path."""
    settings = {f"evaluation.{name}" for name in EVALUATION_FIELDS}
    return {path: value for path, value in flatten(recipe).items() if path.startswith("corpus.") or path in settings}


def register(options: Options, recipe: Recipe, step: Step, artifact: Artifact, alias: str) -> str:
    """Registers what a fine-tuning step made, and points the alias to it; the URI of its version.

    The lineage names every step behind the model, in order, by fingerprint.
    """
    from midmask.tracking.models import RegistryEntry, register_model  # here, since MLflow's models take long to import

    lineage = {"recipe": recipe.name, "protocol": recipe.protocol, "corpus": recipe.corpus.short_name}
    lineage |= {f"step.{number:02d}.{each.name}": each.fingerprint for number, each in enumerate(step.upstream())}
    with Tracker(options.tracking_uri, options.home) as tracker:
        run_id = tracker.find(step.fingerprint, step=step.name).finished
    folder = (artifact.place / "model").local()
    objective = recipe.objective.name if recipe.objective else recipe.name
    entry = RegistryEntry(
        objective, recipe.backbone.name, artifact.fingerprint, view_widths(folder), lineage, run_id=run_id
    )
    return register_model(options.tracking_uri, options.home, folder, entry, alias=alias)
