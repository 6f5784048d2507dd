"""The job of a choice: applies the flags, prints the plan or holds the contest on the cluster, writes the verdict.

Trainings and cells of the contest are runs nested in the job's.
"""

import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from midmask.app.driver import ending, tell_cost
from midmask.app.job import Options
from midmask.app.run import compute
from midmask.app.tracked_job import TrackedJob, TrackedSystem, open_job
from midmask.backend.cluster import share_cluster
from midmask.benchmark.design import names_in
from midmask.benchmark.layout import BenchmarkCell
from midmask.benchmark.run import measure_cells
from midmask.choice import reveal as revealing
from midmask.choice.contenders import (
    SCORED,
    SYSTEMS,
    Request,
    budget_seconds,
    first_contenders,
    queries_config,
)
from midmask.choice.contest import evaluations_of
from midmask.choice.contest_terms import ContestJournal
from midmask.choice.report import certainty, headline, systems_table, verdict_markdown
from midmask.choice.run import choose, deliver, queries_step
from midmask.choice.verdict import Verdict
from midmask.core.config import flatten
from midmask.core.process import VERBOSE, is_on, same_command, shell_command
from midmask.core.words import clock
from midmask.corpora.config import CorpusConfig
from midmask.errors import UserError
from midmask.experiment.graph import Step
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.queries.config import QueriesConfig
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.tracking.names import result_key


class TrackedWorkshop:
    """As many trainings side by side as the job may use."""

    def __init__(self, job: TrackedJob) -> None:
        self._job, self.storage, self.lanes = job, job.storage, job.use.side_by_side

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        self._job.progress.budget_left = left
        self._job.progress.enter(phase)
        self._job.progress.best = best

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        compute(self._job, [TrackedSystem(recipe.name, recipe)], [step])
        return load(step.place(self.storage))

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        targets = evaluations_of(cells)
        if all(step.is_finished(self.storage) for step in targets):
            return {}
        return measure_cells(self._job, cells, targets, until=until)


def choose_job(options: Options, flags: Namespace) -> None:
    """Runs the job of a choice: the plan for --dry-run, else the contest and its verdict.

    Raises:
        UserError: for flags that cannot be met, documents that cannot be read, or too small a budget.
    """
    if options.recipe or options.protocol or options.pretrain_on:
        raise UserError("choose takes --systems; --recipe, --protocol and --pretrain-on are for one system")
    request = request_for(options, flags)
    if request.reveal:
        revealing.judged_split(request.documents.corpus)
    if options.dry_run:
        step = queries_step(request, Survey())
        print(describe(request, step, Place(options.storage)))
        tell_cost([step], options)
        return
    verdict, revealed = _run(request, options)
    brief = f"{certainty(verdict)}\n\n{systems_table(verdict, verdict.finalists)}"
    tables = [verdict_markdown(verdict) if is_on(VERBOSE) else brief]
    tables += [str(revealed)] if revealed is not None else []
    made = {"model": verdict.model} if verdict.model else {}
    made["verdict"] = f"{request.out}; open verdict.html; queries.html shows what was asked"
    search = f"{shell_command()} search {shlex.quote(str(request.out))}"
    print(f"\n{ending(options, headline(verdict), tables, made, next_step=search)}")


def request_for(options: Options, flags: Namespace) -> Request:
    """The request of a command line.

    Raises:
        UserError: for a budget, source, system, representation, or field that there is not.
    """
    corpus = CorpusConfig(name=options.corpus)
    sources = QueriesConfig().sources
    if flags.queries:
        if "queries.sources" in options.set_fields:
            raise UserError(f"--queries {flags.queries}: queries.sources is set; name the file there, as file:PATH")
        sources = {**sources, f"file:{Path(flags.queries).expanduser().absolute()}": max(sources.values())}
    seed, out = options.seed or 0, flags.out or options.home / "verdicts" / corpus.short_name
    return Request(
        corpus=corpus,
        budget=budget_seconds(flags.budget),
        out=Path(out).expanduser().absolute(),
        queries=queries_config({"sources": sources}, options.set_fields, seed),
        systems=tuple(names_in(flags.systems or "")) or SYSTEMS,
        representations=tuple(names_in(flags.representations or "")) or tuple(SCORED),
        changes=options.set_fields,
        seed=seed,
        reveal=flags.reveal,
        command=same_command(),
    )


def _run(request: Request, options: Options) -> tuple[Verdict, revealing.Revealed | None]:
    tags = {
        "midmask.job": options.job,
        "midmask.recipe": "choose",
        "midmask.objective": "none",
        "midmask.step": "choose",
        "midmask.corpus": request.short_name,
        "midmask.fingerprint": request.identity,
    }
    params = {"budget": request.budget, **flatten(request.queries), **request.shared_changes}
    share = partial(share_cluster, len(request.systems) + 2, options.workers, options.workers_per_training)
    name = f"{options.job}-{request.identity[:6]}"
    with open_job(options, name, tags, params, finished=False, share=share) as tracked:
        assert tracked is not None, "a job that is not finished has a run"
        workshop = TrackedWorkshop(tracked)
        choice = choose(request, workshop)
        verdict = deliver(choice.verdict, choice.made, request.out)
        revealed = revealing.reveal(request, choice, workshop) if request.reveal else None
        if revealed is not None:
            revealed.write(request.out)
        _track(verdict, request.out, tracked)
        return verdict, revealed


def _track(verdict: Verdict, folder: Path, tracked: TrackedJob) -> None:
    """Logs the verdict's files and figures to the job's tracked run."""
    run = tracked.run
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".md", ".html")):
        run.log_file(path, "verdict")
    run.describe(verdict_markdown(verdict))
    values = {result_key("choose", f"gain.{system.label}"): system.gain for system in verdict.systems}
    run.log({"choose/spent_seconds": verdict.spent_seconds, **values}, step=0)
    run.finish("finished")


def describe(request: Request, step: Step, storage: Place) -> str:
    """What --dry-run prints: who takes part, the steps up to `step` before the contest, what a killed run has left."""
    contenders = first_contenders(request.systems, request.backbone)
    journal = ContestJournal(request.out, request.identity)
    lines = ["choice:", f"  corpus.name = {request.documents.corpus.name}", f"  budget = {clock(request.budget)}"]
    lines += [f"  queries.{path} = {value}" for path, value in flatten(request.queries).items()]
    lines += [f"  {path} = {value}" for path, value in request.shared_changes.items()]
    lines += ["", f"round 1, {len(contenders)} systems:", *(f"  {contender}" for contender in contenders)]
    lines += ["", "steps before it:"]
    lines += [f"  {'cached' if needed.is_finished(storage) else 'to do '}  {needed.name}" for needed in step.upstream()]
    if journal.rounds:
        spent = f"{clock(journal.spent)} are spent, {len(journal.rounds)} rounds decided"
        lines += ["", f"an earlier run of this command goes on: {spent}"]
    return "\n".join(lines)
