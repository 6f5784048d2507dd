"""From documents to a verdict: made queries, the contest, one look at the test queries, and the verdict's folder.

The folder holds verdict.json, verdict.md, verdict.html, model/, collection/ and the page of made queries.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from midmask.benchmark.design import Benchmark
from midmask.benchmark.layout import BenchmarkCell
from midmask.benchmark.results import Result
from midmask.choice.assess import Gains, MeasuredSystem, estimates, recommend
from midmask.choice.calibration import CalibrationFile
from midmask.choice.contenders import (
    LEXICAL,
    MEASURE,
    UNTRAINED,
    Request,
    Size,
    System,
    contest,
    first_contenders,
    trained_of,
)
from midmask.choice.contest import Contest, Workshop
from midmask.choice.contest_terms import DOCUMENTS, Clock, Conditions, ContestJournal, Limits
from midmask.choice.report import model_card, verdict_html, verdict_markdown
from midmask.choice.traces import (
    Made,
    bytes_per_passage,
    model_folder,
    sample_of,
    seconds_of,
    write_with_queries,
)
from midmask.choice.verdict import Verdict
from midmask.encoders.reading import SIZES
from midmask.errors import UserError
from midmask.experiment.graph import Step
from midmask.experiment.plan import plan
from midmask.experiment.training_steps import Survey
from midmask.queries.collection import read_passages
from midmask.queries.config import SPLITS
from midmask.queries.sources import queries_content
from midmask.queries.step import PAGE
from midmask.store.place import Place

SAMPLED = (
    "The whole collection would have taken too much of the budget: {searched:,} of its {passages:,} passages were "
    f"searched, those of the queries among them. Every system's {MEASURE} is higher than in the whole."
)

TRAINED_ONCE = "Systems were trained once, with seed {seed}; another seed moves a gain by a point or so."

FROM_OTHERS = "What BM25 adds to the encoder as it is, is expected from other collections: made queries do not tell it."


def queries_step(request: Request, survey: Survey) -> Step:
    """The step that makes queries from the documents. An encoder with fresh weights does not filter them."""
    config, planned = request.queries, plan(request.as_read, survey)
    inputs = {"corpus": planned.corpus}
    if config.round_trip == "either" and request.backbone not in SIZES:
        config = config.model_copy(update={"precision": "bf16" if planned.precision == "bf16" else "fp32"})
        inputs |= {"encoder": planned.untuned, "tokens": planned.tokens}
    return Step("queries", config, inputs, content=queries_content(config))


def make(request: Request, workshop: Workshop, survey: Survey) -> Made:
    """Makes the documents' passages and queries for them; judgements of the collection are not read."""
    step = queries_step(request, survey)
    prepared, artifact = (workshop.make(needed, request.as_read) for needed in (step.inputs["corpus"], step))
    return Made(prepared, artifact, request.short_name)


@dataclass(frozen=True)
class HeldContest:
    """A verdict with the measurements and trainings behind it."""

    verdict: Verdict
    made: Made
    measured: tuple[MeasuredSystem, ...]  # one for each of the verdict's systems
    gains: Gains
    benchmark: Benchmark
    cells: tuple[BenchmarkCell, ...]  # the trained cell of each system


def choose(request: Request, workshop: Workshop) -> HeldContest:
    """Holds the contest and returns its verdict, which `deliver` writes.

    Raises:
        UserError: for documents that cannot be read, or from which too few queries can be made.
    """
    journal, survey = ContestJournal(request.out, request.identity), Survey()
    clock = Clock(request.budget, journal.spent)
    with journal.keep_time(clock):
        workshop.announce(DOCUMENTS, "", lambda: clock.left)
        made = make(request, workshop, survey)
        name, changes = f"beir:{made.collection}", request.shared_changes
        conditions = Conditions(
            make=lambda size, splits: contest(name, request.systems, size, splits, changes, request.seed),
            seed=request.seed,
            limits=Limits(made.passages, made.counts.train),
            representations=request.representations,
            survey=survey,
            sample=cache(lambda split: sample_of(made, split, workshop.storage)),
        )
        held = Contest(conditions, workshop, clock, journal)
        held.hold(first_contenders(request.systems, request.backbone))
        if not held.finalists:
            raise UserError("no system was measured: give a larger --budget, or fewer --systems")
        tested, cells = held.test(), _cells(held)
        measured = _measured(cells, held.dev | tested, workshop.storage)
        gains = _gains(measured, held.dev)
        verdict = _verdict(request, made, held, measured, gains, clock.spent)
        benchmark = conditions.make(Size(1, 1), ("test",))
        return HeldContest(verdict, made, tuple(measured), gains, benchmark, tuple(cells))


def _cells(held: Contest) -> list[BenchmarkCell]:
    """The cells of all measured contenders at their last size: finalists on the test queries, the others on dev."""
    splits = dict.fromkeys(held.finalists, "test")
    splits |= {entry: "dev" for entry in held.measured if entry not in splits}
    return [cell for entry, split in splits.items() for cell in held.cells(entry, held.sizes[entry], split)]


def _measured(cells: Sequence[BenchmarkCell], results: Mapping[System, Result], storage: Place) -> list[MeasuredSystem]:
    measured = []
    for cell in cells:
        system, step = System.of(cell.key), cell.evaluations[cell.main]
        if result := results.get(system):
            costs = seconds_of(step, storage), bytes_per_passage(step, storage)
            model, is_finalist = model_folder(step, storage), result.split == "test"
            measured.append(MeasuredSystem(system, result, *costs, model, is_finalist))
    return measured


def _verdict(
    request: Request, made: Made, held: Contest, measured: Sequence[MeasuredSystem], gains: Gains, spent: float
) -> Verdict:
    systems = estimates(measured, gains)
    verdict = Verdict(
        corpus=request.short_name,
        passages=made.passages,
        queries=made.counts,
        systems=systems,
        recommendation=recommend(systems, measured, gains),
        calibration=CalibrationFile.load().calibration,
        baseline=str(System.of(gains.baseline["test"].key)),
        measure=MEASURE,
        model="",
        collection=str(made.collection),
        budget_seconds=request.budget,
        spent_seconds=spent,
        command=request.command,
        not_tried=held.not_tried,
        limits=_limits(request, made, held, joins=gains.joined is not None),
    )
    return replace(verdict, model=verdict.delivered.model)


def _gains(measured: Sequence[MeasuredSystem], dev: Mapping[System, Result]) -> Gains:
    """Gains over the encoder as it is; over BM25 for an encoder with fresh weights, which is useless before its
    fine-tuning.
    """
    finalists = {entry.system: entry.result for entry in measured if entry.finalist}
    alone, joined = UNTRAINED.searched
    base = alone if alone in finalists else LEXICAL
    references = [base, *([joined] if base == alone and joined in finalists else [])]
    by_split = [{"test": finalists[system], "dev": dev[system]} for system in references]
    return Gains(CalibrationFile.load().by_kind, *by_split)


def _limits(request: Request, made: Made, held: Contest, *, joins: bool) -> tuple[str, ...]:
    train, judge = (", ".join(made.sources(role)) for role in ("train_sources", "judge_sources"))
    trained, tested_on = trained_of(held.measured), held.sample("test")
    learned = (
        f"Trained systems learned from {train}; all were judged by {judge}."
        if trained
        else f"Systems were judged by {judge}."
    )
    return (
        f"Nobody asked these queries: they were made from the passages. {learned} People ask otherwise.",
        *((TRAINED_ONCE.format(seed=request.seed),) if trained else ()),
        "Each query has one relevant passage; others that answer it as well count as wrong.",
        *((FROM_OTHERS,) if joins else ()),
        *(() if tested_on is None else (SAMPLED.format(searched=tested_on.passages, passages=made.passages),)),
    )


def deliver(verdict: Verdict, made: Made, folder: Path) -> Verdict:
    """Writes the folder, and gives the verdict that names what is in it: the model, and the documents' passages as they
    are, with the made queries. What an earlier verdict left there is replaced, each part whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model, collection = folder / "model", folder / "collection"
    if verdict.model:
        _replace(model, partial(_write_model, verdict))
    _replace(collection, partial(_write_collection, made))
    shown = str(model) if verdict.model else ""
    verdict = replace(verdict, folder=str(folder), model=shown, collection=str(collection))
    texts = {
        PAGE: (made.artifact.place / PAGE).read().decode(),
        "verdict.md": verdict_markdown(verdict),
        "verdict.html": verdict_html(verdict),
        "verdict.json": verdict.as_json(),
    }
    for name, text in texts.items():
        Place(str(folder / name)).write(text.encode())
    return verdict


def _replace(target: Path, write: Callable[[Path], None]) -> None:
    new, old = (target.with_name(f"{target.name}.{state}") for state in ("new", "old"))
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    write(new)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _write_model(verdict: Verdict, folder: Path) -> None:
    """A copy that stays when the store is cleaned; its card says what the verdict says of it."""
    shutil.copytree(verdict.model, folder)
    card = folder / "README.md"
    card.write_text(model_card(verdict, card.read_text("utf-8") if card.exists() else ""), "utf-8")


def _write_collection(made: Made, folder: Path) -> None:
    """People search the passages as they are, not as the contest did, without what its queries were taken from."""
    passages = (passage for some in read_passages(made.prepared.place) for passage in some)
    write_with_queries(made.collection, SPLITS, passages, Place(str(folder)))
