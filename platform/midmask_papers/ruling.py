"""How a claim is decided, and the statistics that claims need besides ranked lists.

holds           the interval over seeds and queries lies above 0, the claimed direction
does not hold   it lies below 0; or it reaches 0 but not the published size
not decidable   it reaches both 0 and the published size (or there is none): what the paper saw could be there, and so
                could nothing; the smallest detectable difference is about as large as the published one, or larger. Or
                in one of its conditions no system reaches a tenth of what BM25 has there: systems that have hardly
                learned to search cannot be compared, neither with each other nor with those that have
not measured    systems are absent; the sentence says which, and which preset measures them

A claim of several parts holds if all parts do, and does not if one does not. Parts share the 5% (Bonferroni).

Statistics are shares among masked tokens and divergences of embeddings; measured elsewhere, each with its run.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Literal, Self

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from midmask.benchmark.design import BM25
from midmask.benchmark.results import Results, SystemKey
from midmask.core.config import Config, as_user_error
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import ALPHA, IntervalEstimate, Variance, interval
from midmask_papers.published import NONE, CorpusSplit, Match, MissingResult, Published, Term, key_of, match, published

ClaimOutcome = Literal["holds", "does not hold", "not decidable", "not measured"]

OUTCOMES: tuple[ClaimOutcome, ...] = ("does not hold", "not measured", "not decidable", "holds")
"""Of a claim of several parts, the first that any of them has."""

OUTCOME_NAMES: dict[ClaimOutcome, str] = {
    "holds": "holds",
    "does not hold": "does not hold",
    "not decidable": "cannot be told",
    "not measured": "not measured",
}
"""As pages for readers have them."""

LEAST_OF_BM25 = 0.1
"""Share of BM25's measure that the best system of each condition must reach for a claim to be decided."""

OutcomeRule = Callable[[IntervalEstimate, float | None], ClaimOutcome]
"""The outcome for an estimate, against the published size."""


@dataclass(frozen=True)
class Ruling:
    """The outcome of a claim.

    Numbers are fractions, None where there is no such number; of several parts, they are those of the deciding one.
    """

    outcome: ClaimOutcome
    sentence: str
    estimate: float | None = None  # positive in the claimed direction
    low: float | None = None  # lower end of the estimate's confidence interval
    high: float | None = None
    detectable: float | None = None  # the smallest difference that can be told from 0
    published: float | None = None  # the paper's value
    representations: tuple[str, ...] = ()  # of the systems that were compared

    @property
    def figures(self) -> tuple[float | None, ...]:
        """estimate, low, high, detectable, published."""
        return (self.estimate, self.low, self.high, self.detectable, self.published)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and how it is checked."""

    name: str
    paper: str  # the paper with its numbers, also the name of the preset that measures it
    text: str
    check: Callable[[Results], Ruling]


@dataclass(frozen=True)
class ClaimPart:
    """A contrast between systems that is positive according to a claim."""

    what: str
    terms: tuple[Term, ...]
    measure: str
    place: CorpusSplit  # the corpus and split of the paper
    elsewhere: bool = False  # measured on all other corpora
    collections_apart: bool = False  # it compares collections of middle training, and none stands for another

    @property
    def published(self) -> float | None:
        """The size in the paper, none if one of its values is not printed."""
        values = [term.published for term in self.terms]
        if any(value is None for value in values):
            return None
        return sum(term.weight * term.published for term in self.terms if term.published is not None)


def pick(paper: str, table: str, **fields: str) -> Published:
    """The one number of a table with these fields.

    Raises:
        LookupError: if there is none, or more than one.
    """
    numbers = [
        number
        for number in published(paper, table)
        if all(getattr(number, name) == value for name, value in fields.items())
    ]
    if len(numbers) != 1:
        raise LookupError(f"{len(numbers)} numbers of {paper}, table {table} have {fields}")
    return numbers[0]


def term(weight: float, number: Published) -> Term:
    """A printed number in a contrast."""
    return Term(weight, key_of(number), number.value)


def pair(better: Published, worse: Published, *, what: str = "", collections_apart: bool = False) -> ClaimPart:
    """The part of a claim that one printed number is higher than another."""
    said, terms = what or f"{name_of(better)} against {name_of(worse)}", (term(1.0, better), term(-1.0, worse))
    place = (better.corpus, better.split)
    return ClaimPart(said, terms, better.measure, place, collections_apart=collections_apart)


def name_of(number: Published) -> str:
    """A system with its representation where that is not the usual one."""
    return (
        number.system
        if number.representation in ("dense", "bm25", "")
        else f"{number.system} ({number.representation})"
    )


def judge(estimate: IntervalEstimate, size: float | None) -> ClaimOutcome:
    """The outcome for an estimate, against the published size."""
    if estimate.low > 0:
        return "holds"
    if estimate.high < 0 or (size is not None and estimate.high < size):
        return "does not hold"
    return "not decidable"


def judge_between(estimate: IntervalEstimate, low: float, high: float) -> ClaimOutcome:
    """Of a claim that the true value lies within bounds; not decidable if the interval reaches across one of them."""
    if low <= estimate.low and estimate.high <= high:
        return "holds"
    return "does not hold" if estimate.low > high or estimate.high < low else "not decidable"


def decide(part: ClaimPart, results: Results, alpha: float = ALPHA, rule: OutcomeRule = judge) -> Ruling:
    """The verdict on one part, by the rule where its systems have learned to search."""
    nothing = MissingResult("there are no results")
    ours = _find(part, results) if results else nothing
    if isinstance(ours, MissingResult):
        return Ruling("not measured", f"{part.what}: {ours.what}.", published=part.published)
    estimate = ours.estimate(results, part.measure, alpha)
    sentence = f"{part.what}: {_figures(estimate, part)} on {', '.join(' '.join(place) for place in ours.places)}"
    seeds = f"{estimate.seeds} seeds" if estimate.seeds > 1 else "1 seed"
    drawn = "" if estimate.floor else ", how much seeds differ is not known"
    keys = [term.key for term in ours.terms]
    short = below_floor(keys, ours.places, results, part.measure)
    notes = "".join(f"; {note}" for note in (*ours.differs, *short))
    return Ruling(
        "not decidable" if short else rule(estimate, part.published),
        f"{sentence} ({estimate.queries:,} queries, {seeds}{drawn}){notes}.",
        estimate=estimate.value,
        low=estimate.low,
        high=estimate.high,
        detectable=estimate.detectable,
        published=part.published,
        representations=_representations(key.representation for key in keys if key.system != BM25),
    )


def below_floor(
    keys: Sequence[SystemKey], places: Sequence[CorpusSplit], results: Results, measure: str
) -> tuple[str, ...]:
    """The conditions of a comparison in which no system has learned to search, a sentence part for each.

    A condition is a fine-tuning, a representation and what the middle training read, on one corpus and split. A system
    without middle training belongs to every condition of its fine-tuning and representation. Places where BM25 was not
    measured are not checked.
    """
    sentences = []
    for corpus, split in places:
        here = Results(result for result in results.where(corpus=corpus, split=split) if measure in result.measures)
        bm25 = _mean(here.where(system=BM25), measure)
        for name, systems in _conditions(keys).items():
            best = max(_mean(here.where(**vars(key)), measure) for key in systems)
            if best < LEAST_OF_BM25 * bm25:
                said = f"{name} reaches at most {best:.4f} on {corpus} {split}, where BM25 has {bm25:.4f}"
                sentences.append(f"{said}: too little to decide it")
    return tuple(sentences)


def _conditions(keys: Sequence[SystemKey]) -> dict[str, list[SystemKey]]:
    """Name of a condition -> its systems."""
    read = dict.fromkeys((key.representation, key.setting, key.collection) for key in keys if key.collection != NONE)
    alone = dict.fromkeys((key.representation, key.setting, NONE) for key in keys)
    without = [condition for condition in alone if all(condition[:2] != other[:2] for other in read)]
    return {
        f"{representation}, {setting} after {collection}": [
            key
            for key in keys
            if (key.representation, key.setting) == (representation, setting) and key.collection in (collection, NONE)
        ]
        for representation, setting, collection in (*read, *without)
    }


def _mean(results: Results, measure: str) -> float:
    """Mean over the seeds of one system on one corpus and split; 0 if there is no result."""
    return fmean(result.measures[measure] for result in results) if results else 0.0


def _find(part: ClaimPart, results: Results) -> Match | MissingResult:
    return match(
        part.terms,
        results,
        part.measure,
        part.place,
        elsewhere=part.elsewhere,
        collections_apart=part.collections_apart,
    )


def within(part: ClaimPart, results: Results, bound: float, preset: str) -> Ruling:
    """The verdict on a claim that a contrast is no more than `bound` in either direction."""
    found = decide(part, results, rule=lambda found, size: judge_between(found, -bound, bound))
    missing = found.outcome == "not measured"
    said = how_to_measure(preset) if missing else f"Nothing is at most {100 * bound:g} points."
    return replace(found, sentence=f"{found.sentence} {said}")


def all_of(results: Results, preset: str, parts: Sequence[ClaimPart]) -> Ruling:
    """The verdict on a claim of these parts; where one is not measured, with the preset that measures it."""
    rulings = [decide(part, results, ALPHA / len(parts)) for part in parts]
    verdict = combine(rulings)
    if not any(ruling.outcome == "not measured" for ruling in rulings):
        return verdict
    given = " --zero-shot FORMAT:PLACE" if any(part.elsewhere for part in parts) else ""
    return replace(verdict, sentence=f"{verdict.sentence} {how_to_measure(preset + given)}")


def how_to_measure(preset: str) -> str:
    """The sentence on how to measure a claim."""
    return f"`jobs/benchmark_middle_training.py --preset {preset}` measures it."


def combine(rulings: Sequence[Ruling]) -> Ruling:
    """Of the worst outcome among them; its numbers are those of the first part that has it, or, if all hold, of the
    part that is nearest to not holding.
    """
    outcome = next(outcome for outcome in OUTCOMES if any(ruling.outcome == outcome for ruling in rulings))
    deciding = [ruling for ruling in rulings if ruling.outcome == outcome]
    chosen = min(deciding, key=lambda ruling: ruling.low or 0.0) if outcome == "holds" else deciding[0]
    said = " ".join(
        ruling.sentence if len(rulings) == 1 else f"{ruling.outcome.capitalize()}: {ruling.sentence}"
        for ruling in rulings
    )
    return replace(
        chosen,
        sentence=said,
        representations=_representations(view for ruling in rulings for view in ruling.representations),
    )


def _representations(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def points(value: float) -> str:
    """A difference in hundredths, with its sign; in powers of ten where two decimals would show none of it."""
    return f"{100 * value:+.2f}" if value == 0 or abs(value) >= 1e-4 else f"{100 * value:+.1e}"


def _figures(estimate: IntervalEstimate, part: ClaimPart) -> str:
    size = "" if part.published is None else f"published {points(part.published)}, "
    return (
        f"{points(estimate.value)} points of {part.measure} [{points(estimate.low)}, {points(estimate.high)}], "
        f"{size}detectable {100 * estimate.detectable:.2f},"
    )


class Statistic(Config):
    """One figure of one system on one corpus."""

    measure: str = Field(description="stop share, KL or JS")
    system: str = Field(description="a recipe's name, or a variant of one")
    corpus: str = Field(description="short name of the corpus")
    values: tuple[float, ...] = Field(min_length=1, description="one per seed or draw")
    count: int = Field(0, ge=0, description="of a share: of how many; 0: it is none")
    source: str = Field(description="the command that gave it")

    @model_validator(mode="after")
    def _share_is_one(self) -> Self:
        if self.count and not (len(self.values) == 1 and 0 <= self.values[0] <= 1):
            raise ValueError(f"{self.measure} of {self.system}: a share of {self.count} is one value between 0 and 1")
        return self

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def variance(self) -> Variance:
        """Of the mean: of a share the binomial's, else from the draws; infinite for a single one."""
        return Variance.of_share(self.mean, self.count) if self.count else Variance.of_mean(self.values)


def difference(left: Statistic, right: Statistic, alpha: float) -> IntervalEstimate:
    """left less right, measured independently of each other."""
    return interval(left.mean - right.mean, [left.variance, right.variance], alpha)


def read_shipped() -> tuple[Statistic, ...]:
    """Those that come with the package."""
    return _parse_statistics(
        (files("midmask_papers") / "statistics.yaml").read_text(encoding="utf-8"), "statistics.yaml"
    )


def read_statistics(path: Path) -> tuple[Statistic, ...]:
    """A YAML list of statistics.

    Raises:
        UserError: if there is no such file, or it has a wrong field, naming it.
    """
    if not path.is_file():
        raise UserError(f"statistics: there is no file {path}; give a YAML list as in midmask_papers/statistics.yaml")
    return _parse_statistics(path.read_text(encoding="utf-8"), path.name)


def _parse_statistics(text: str, name: str) -> tuple[Statistic, ...]:
    try:
        return _LIST.validate_python(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        raise as_user_error(error, name) from None


_LIST = TypeAdapter(tuple[Statistic, ...])


def statistics_of(statistics: Sequence[Statistic], measure: str, system: str) -> dict[str, Statistic]:
    """Corpus -> the system's statistic."""
    return {
        statistic.corpus: statistic
        for statistic in statistics
        if (statistic.measure, statistic.system) == (measure, system)
    }
