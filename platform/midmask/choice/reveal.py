"""What the judgements of a collection say of a verdict that was reached without them.

The systems search the documents as they are, for the queries that people asked, and the two rankings are compared. The
records of it tell how far such verdicts can be believed (`calibration`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from midmask.benchmark.layout import cell_on
from midmask.benchmark.records import collect
from midmask.benchmark.results import Result
from midmask.choice.assess import mean_gain
from midmask.choice.calibration import GainRecord, LevelRecord, kendall_tau, regret
from midmask.choice.contenders import MEASURE, Request, System
from midmask.choice.contest import Workshop
from midmask.choice.run import HeldContest
from midmask.corpora.config import CorpusConfig
from midmask.corpora.reader import judged_splits
from midmask.errors import UserError
from midmask.experiment.evaluations import usual_split
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place

FILE = "revealed.json"
MOST_QUERIES = 1_000
"""Most judged queries that are evaluated; a larger split is sampled, always alike."""

ALL = "all"
"""Name of all sources of a verdict's queries together, as the source of a record."""


@dataclass(frozen=True)
class JudgedSystem:
    """A system of the verdict, by its names there, with its measure on people's queries."""

    system: str
    representation: str
    judged: float


@dataclass(frozen=True)
class Revealed:
    """A verdict compared with the judgements of its collection."""

    systems: list[JudgedSystem]  # in the verdict's order
    kendall_tau: float | None
    regret: float
    covered: int  # number of judged gains within their intervals
    records: list[GainRecord]  # of this collection
    level: LevelRecord  # of this collection

    def write(self, folder: Path) -> None:
        """Writes revealed.json."""
        Place(str(folder / FILE)).write_json(TypeAdapter(Revealed).dump_python(self, mode="json"))

    def __str__(self) -> str:
        tau = "not defined" if self.kendall_tau is None else f"{self.kendall_tau:.2f}"
        return (
            f"judged: Kendall's tau {tau} over {len(self.systems)} systems; the chosen one is "
            f"{100 * self.regret:.1f} points of {MEASURE} below the best; {self.covered} of {len(self.records)} gains "
            "within their intervals"
        )


def judged_split(corpus: CorpusConfig) -> str:
    """The split whose judgements are revealed: test, else the usual one.

    Raises:
        UserError: for a collection without judgements.
    """
    splits = judged_splits(corpus)
    if not splits:
        raise UserError(f"--reveal: {corpus.name} has no judgements; leave the flag out")
    return "test" if "test" in splits else usual_split(splits)


def reveal(request: Request, choice: HeldContest, workshop: Workshop) -> Revealed:
    """Evaluates all systems of a verdict on the judged queries of the documents' own collection.

    Raises:
        UserError: for a collection without judgements.
    """
    corpus = request.documents.corpus
    split, survey = judged_split(corpus), Survey()
    cells = [cell_on(choice.benchmark, cell, corpus, split, survey, max_queries=MOST_QUERIES) for cell in choice.cells]
    workshop.measure(cells, float("inf"))
    return _compare(choice, {System.of(result.key): result for result in collect(cells, workshop.storage)})


def _compare(choice: HeldContest, judged: Mapping[System, Result]) -> Revealed:
    """Compares a verdict with the results of its systems on judged queries of the same collection."""
    verdict, base = choice.verdict, choice.gains.baseline["test"]
    by_name = {each.system.name: each.system for each in choice.measured}
    systems = [(row, by_name[row.name]) for row in verdict.systems]
    values = [judged[system].measures[MEASURE] for _, system in systems]
    level = judged[System.of(base.key)].measures[MEASURE]
    others = [(row, system) for row, system in systems if system.key != base.key]
    gains = [judged[system].measures[MEASURE] - level for _, system in others]
    judges = choice.made.sources("judge_sources")
    source = judges[0] if len(judges) == 1 else ALL
    made = {each.system: each.result for each in choice.measured}
    return Revealed(
        systems=[JudgedSystem(*row.name, value) for (row, _), value in zip(systems, values, strict=True)],
        kendall_tau=kendall_tau([row.gain for row, _ in systems], values),
        regret=regret([float(row == verdict.recommended) for row, _ in systems], values),
        covered=sum(row.gain_low <= gain <= row.gain_high for (row, _), gain in zip(others, gains, strict=True)),
        records=[_record(choice, source, system, made[system], judged) for _, system in others],
        level=LevelRecord(collection=verdict.corpus, source=source, made=base.measures[MEASURE], judged=level),
    )


def _record(
    choice: HeldContest, source: str, system: System, made: Result, judged: Mapping[System, Result]
) -> GainRecord:
    """The record of a system's gain over its reference."""
    over = choice.gains.reference_of(system)[made.split]
    reference = System.of(over.key)
    (seed,) = choice.benchmark.seeds
    made_gain, judged_gain = mean_gain(made, over), mean_gain(judged[system], judged[reference])
    return GainRecord(
        collection=choice.verdict.corpus,
        source=source,
        system=system,
        made=made_gain.value,
        made_error=math.sqrt(made_gain.variance.value),
        judged=judged_gain.value,
        judged_error=math.sqrt(judged_gain.variance.value),
        over=None if over.key == choice.gains.baseline["test"].key else reference,
        seed=seed,
    )
