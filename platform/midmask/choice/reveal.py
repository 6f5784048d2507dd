"""What the judgements of a collection say of a verdict that was reached without them, and the records made of that.

The systems search the documents as they are, for the queries that people asked, and the two rankings are compared:
Kendall's tau over all pairs, and the pairs that people's queries tell apart, since most others are decided by which
queries happened to be asked; also how well queries of each source alone would have ranked the systems. What comes out
is a record of how far such verdicts can be believed; `calibrate` collects the records into the files of `calibration`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from midmask.benchmark.layout import cell_on
from midmask.benchmark.records import collect
from midmask.benchmark.results import Result
from midmask.choice.assess import Counterparts, held_out, paired
from midmask.choice.calibration import GAINS_FILE as RECORDS
from midmask.choice.calibration import LEVELS_FILE as LEVELS
from midmask.choice.calibration import (
    GainRecord,
    HeldOutCollection,
    LevelRecord,
    kendall_tau,
    regret,
    write_levels,
    write_records,
)
from midmask.choice.contenders import MEASURE, Request, name_of
from midmask.choice.contest import Workshop
from midmask.choice.run import HeldContest
from midmask.choice.traces import queries_of
from midmask.choice.verdict import SystemEstimate, SystemName
from midmask.corpora import CorpusConfig, judged_splits
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import ALPHA, FEWEST_RANKED, Variance, interval
from midmask.experiment.evaluations import usual_split
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place


@dataclass(frozen=True)
class DecidedPairs:
    """How many pairs of systems people's queries tell apart, and how many of them the verdict ranks alike."""

    pairs: int
    alike: int

    def __str__(self) -> str:
        return f"{self.alike} of {self.pairs} pairs that people's queries tell apart are ranked alike"


def decided_pairs(gains: Mapping[SystemName, float], judged: Mapping[SystemName, Result]) -> DecidedPairs:
    """Counts the pairs that a paired t-test at `ALPHA` tells apart, without a correction for multiple tests.

    Args:
        gains: system -> its estimated gain.
        judged: system -> its result on people's queries.
    """
    pairs = alike = 0
    for first, second in combinations(gains, 2):
        differences = paired(judged[first], judged[second])
        gap = interval(float(differences.mean()), [Variance.of_mean(differences)], ALPHA)
        if gap.low > 0 or gap.high < 0:
            pairs += 1
            alike += (gains[first] - gains[second]) * gap.value > 0
    return DecidedPairs(pairs, alike)


@dataclass(frozen=True)
class SourceAgreement:
    """How well the gains on the made queries of one source agree with the judged values."""

    source: str
    queries: int  # of this source that were searched, in the split that has fewer
    kendall_tau: float | None  # of the gains with the judged values; None where it is not defined
    regret: float  # of choosing the system with the largest gain
    chosen: str  # the system with the largest gain

    def __str__(self) -> str:
        tau = "not defined" if self.kendall_tau is None else f"{self.kendall_tau:.2f}"
        return (
            f"{self.source} alone ({self.queries:,} queries): tau {tau}, would choose {self.chosen}, "
            f"{100 * self.regret:.1f} points below the best"
        )


def agreement_by_source(
    sources: Mapping[str, str],
    made: Mapping[SystemName, Result],
    counterparts: Counterparts,
    judged: Mapping[SystemName, float],
) -> tuple[SourceAgreement, ...]:
    """The agreement of each source, sorted by name. Gains are plain means of paired differences, without shrinkage.

    Args:
        sources: query -> its source.
        made: system -> its result on made queries.
        judged: compared system -> its value on judged queries.
    """
    names, values = list(judged), list(judged.values())
    rows = []
    for source in sorted(set(sources.values())):
        of_source = {query for query, own in sources.items() if own == source}
        paths = [counterparts.path(made[name]) or [(made[name], made[name])] for name in names]
        parts = [[paired(*pair, of_source) for pair in path] for path in paths]
        queries = min(len(one) for own in parts for one in own)
        if queries:
            gains = [float(sum(map(np.mean, own))) for own in parts]
            chosen = " · ".join(names[int(np.argmax(gains))])
            tau, lost = kendall_tau(gains, values), regret(gains, values)
            rows.append(SourceAgreement(source, queries, tau, lost, chosen))
    return tuple(rows)


FILE = "revealed.json"
MOST_QUERIES = 1_000
"""Most judged queries that are evaluated; a larger split is sampled, always alike."""

ALL = "all"
"""Name of all sources of a verdict's queries together, as the source of a record."""


@dataclass(frozen=True)
class Revealed:
    """A verdict compared with the judgements of its collection."""

    systems: tuple[SystemEstimate, ...]
    judged: tuple[float, ...]  # a value for each of the systems
    kendall_tau: float | None
    decided: DecidedPairs
    regret: float
    covered: int  # number of judged gains within their intervals
    records: tuple[GainRecord, ...]  # of this collection
    level: LevelRecord  # of this collection
    sources: tuple[SourceAgreement, ...]  # each source's queries alone

    def as_json(self) -> str:
        rows = [
            {"system": system.system, "representation": system.representation, "judged": value}
            for system, value in zip(self.systems, self.judged, strict=True)
        ]
        agreement = {"kendall_tau": self.kendall_tau, "regret": self.regret, "covered": self.covered}
        summary = {"systems": rows, **agreement, "decided": asdict(self.decided)}
        details = {"records": [asdict(record) for record in self.records], "level": asdict(self.level)}
        details["sources"] = [asdict(source) for source in self.sources]
        return json.dumps({**summary, **details}, indent=2) + "\n"

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
    results = {result.key: result for result in collect(cells, workshop.storage)}
    made = {name_of(system.key): system.result for system in choice.measured}
    judged = {name_of(key): result for key, result in results.items()}
    return compare(choice, made, judged)


def compare(choice: HeldContest, made: Mapping[SystemName, Result], judged: Mapping[SystemName, Result]) -> Revealed:
    """Compares a verdict with judgements of the same collection.

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
    """The record of a system's gain over its reference."""
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


def read_revealed(folders: Sequence[Path]) -> tuple[list[GainRecord], list[LevelRecord]]:
    """The records of verdicts' folders, in their order.

    Raises:
        UserError: for a folder without revealed.json.
    """
    gains, levels = [], []
    for folder in folders:
        file = folder / FILE
        if not file.is_file():
            raise UserError(f"{folder}: no {FILE} in it; make it with midmask choose --reveal --out {folder}")
        found = json.loads(file.read_text("utf-8"))
        gains += [GainRecord(**one) for one in found["records"]]
        levels.append(LevelRecord(**found["level"]))
    return gains, levels


def calibrate(folders: Sequence[Path], into: Path) -> str:
    """Writes the records of these verdicts to two files in the folder `into`, which is made if it is missing; returns a
    Markdown table of how well each collection is predicted from the others.
    """
    gains, levels = read_revealed(folders)
    into.mkdir(parents=True, exist_ok=True)
    write_records(gains, into / RECORDS.name)
    write_levels(levels, into / LEVELS.name)
    head = ["collection", "queries", "seed", "systems", "Kendall's tau", "regret", "gains within intervals"]
    return markdown(head, [_row(held) for held in held_out(gains)])


def _row(held: HeldOutCollection) -> list[str]:
    tau = "" if held.kendall_tau is None else f"{held.kendall_tau:.2f}"
    covered = f"{held.covered} of {held.systems}"
    return [held.collection, held.source, str(held.seed), str(held.systems + 1), tau, f"{held.regret:.4f}", covered]
