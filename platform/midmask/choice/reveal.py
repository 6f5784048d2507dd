"""What the judgements of a collection say of a verdict that was reached without them.

The systems search the documents as they are, for the queries that people asked, and the two rankings are compared. What
comes out is also a record of how far such verdicts can be believed (`calibration_records`, `levels`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from midmask.artifact import Place
from midmask.benchmark.cells import cell_on
from midmask.benchmark.collect import collect
from midmask.benchmark.results import Result
from midmask.choice.agreement import kendall_tau, regret
from midmask.choice.assess import Counterparts, paired
from midmask.choice.calibration_records import GainRecord
from midmask.choice.contenders import MEASURE, name_of
from midmask.choice.decided_pairs import DecidedPairs, decided_pairs
from midmask.choice.levels import LevelRecord
from midmask.choice.request import Request
from midmask.choice.run import HeldContest
from midmask.choice.source_agreement import SourceAgreement, agreement_by_source
from midmask.choice.traces import queries_of
from midmask.choice.verdict import SystemEstimate, SystemName
from midmask.choice.workshop import Workshop
from midmask.corpora import CorpusConfig, judged_splits
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import FEWEST_RANKED, Variance
from midmask.experiment.needed_splits import usual_split
from midmask.experiment.survey import Survey

FILE = "revealed.json"
MOST_QUERIES = 1_000
"""Judged queries that are searched for; of a larger split so many, always the same."""

ALL = "all"
"""Sources of the queries that a verdict was judged by, together."""


@dataclass(frozen=True)
class Revealed:
    """judged: one value for each of the verdict's systems, in its order. decided: of their pairs. records, level: of
    this collection. sources: how well the queries of each alone agree.
    """

    systems: tuple[SystemEstimate, ...]
    judged: tuple[float, ...]
    kendall_tau: float | None
    decided: DecidedPairs
    regret: float
    covered: int
    records: tuple[GainRecord, ...]
    level: LevelRecord
    sources: tuple[SourceAgreement, ...]

    def as_json(self) -> str:
        rows = [
            {"system": one.system, "representation": one.representation, "judged": value}
            for one, value in zip(self.systems, self.judged, strict=True)
        ]
        agreement = {"kendall_tau": self.kendall_tau, "regret": self.regret, "covered": self.covered}
        found = {"systems": rows, **agreement, "decided": asdict(self.decided)}
        own = {"records": [asdict(one) for one in self.records], "level": asdict(self.level)}
        own["sources"] = [asdict(one) for one in self.sources]
        return json.dumps({**found, **own}, indent=2) + "\n"

    def __str__(self) -> str:
        tau = "not defined" if self.kendall_tau is None else f"{self.kendall_tau:.2f}"
        few = ", too few for it to say much" if len(self.judged) < FEWEST_RANKED else ""
        whole = (
            f"judged: Kendall's tau {tau} over {len(self.judged)} systems{few}; {self.decided}; the chosen one is "
            f"{100 * self.regret:.1f} points of {MEASURE} below the best; {self.covered} of {len(self.records)} gains "
            "within their intervals"
        )
        return "\n".join([whole, *map(str, self.sources)])


def judged_split(corpus: CorpusConfig) -> str:
    """The split whose judgements are revealed: test, else the usual one.

    Raises:
        UserError: for a collection without judgements.
    """
    there = judged_splits(corpus)
    if not there:
        raise UserError(f"--reveal: {corpus.name} has no judgements; leave the flag out")
    return "test" if "test" in there else usual_split(there)


def reveal(request: Request, choice: HeldContest, workshop: Workshop) -> Revealed:
    """Evaluates all systems of a verdict on the judged queries of the documents' own collection.

    Raises:
        UserError: for a collection without judgements.
    """
    corpus = request.documents.corpus
    split, survey = judged_split(corpus), Survey()
    cells = [cell_on(choice.benchmark, cell, corpus, split, survey, max_queries=MOST_QUERIES) for cell in choice.cells]
    workshop.measure(cells, float("inf"))
    found = {one.key: one for one in collect(cells, workshop.storage)}
    made = {name_of(one.key): one.result for one in choice.measured}
    judged = {name_of(key): result for key, result in found.items()}
    return compare(choice, made, judged)


def compare(choice: HeldContest, made: Mapping[SystemName, Result], judged: Mapping[SystemName, Result]) -> Revealed:
    """The verdict beside the judgements.

    Args:
        made, judged: (system, representation) -> result on made and on judged queries.
    """
    verdict = choice.verdict
    names = [one.name for one in verdict.systems]
    values = [judged[name].measures[MEASURE] for name in names]
    chosen = verdict.recommendation.name
    base = next(name for name, one in zip(names, verdict.systems, strict=True) if one.label == verdict.baseline)
    gains = [(one, value - judged[base].measures[MEASURE]) for one, value in zip(verdict.systems, values, strict=True)]
    others = [(one, gain) for one, gain in gains if one.name != base]
    source = choice.made.judge_sources[0] if len(choice.made.judge_sources) == 1 else ALL
    (seed,) = choice.benchmark.seeds
    records = [_record(verdict.corpus, source, seed, one.name, made, judged, choice.counterparts) for one, _ in others]
    sources = {query: str(row["metadata"]["source"]) for query, row in queries_of(choice.made.collection).items()}
    by_name = dict(zip(names, values, strict=True))
    return Revealed(
        sources=agreement_by_source(sources, made, choice.counterparts, by_name),
        systems=verdict.systems,
        judged=tuple(values),
        decided=decided_pairs({one.name: one.gain for one in verdict.systems}, judged),
        kendall_tau=kendall_tau([one.gain for one in verdict.systems], values),
        regret=regret([float(name == chosen) for name in names], values),
        covered=sum(one.gain_low <= gain <= one.gain_high for one, gain in others),
        records=tuple(records),
        level=LevelRecord(verdict.corpus, source, made[base].measures[MEASURE], judged[base].measures[MEASURE]),
    )


def _record(
    corpus: str,
    source: str,
    seed: int,
    name: SystemName,
    made: Mapping[SystemName, Result],
    judged: Mapping[SystemName, Result],
    counterparts: Counterparts,
) -> GainRecord:
    """Of a system's gain over its own reference."""
    over = counterparts.of(made[name].key)[made[name].split]
    is_baseline = over.key == counterparts.baseline["test"].key
    own, people = _gain(made[name], over), _gain(judged[name], judged[name_of(over.key)])
    label = "" if is_baseline else " · ".join(name_of(over.key))
    return GainRecord(corpus, source, " · ".join(name), own[0], own[1], people[0], people[1], label, seed)


def _gain(own: Result, other: Result) -> tuple[float, float]:
    """(mean, standard error) of the paired differences."""
    differences = paired(own, other)
    return float(differences.mean()), math.sqrt(Variance.of_mean(differences).value)


def write(revealed: Revealed, folder: Path) -> None:
    """Writes revealed.json."""
    Place(str(folder / FILE)).write(revealed.as_json().encode())
