"""How a claim is decided: which results of ours stand for a paper's systems, and what they and the paper's size say.

Our results for a paper's systems are exactly those it names or, where there are none, the same systems under one other
setting, or after reading one other collection, all of them alike. Differences from the paper are listed.

holds           the interval over seeds and queries lies above 0, the claimed direction
does not hold   it lies below 0; or it reaches 0 but not the published size
not decidable   it reaches both 0 and the published size (or there is none): what the paper saw could be there, and so
                could nothing; the smallest detectable difference is about as large as the published one, or larger. Or
                in one of its conditions no system reaches a tenth of what BM25 has there: systems that have hardly
                learned to search cannot be compared, neither with each other nor with those that have
not measured    systems are absent; the sentence says which, and which preset measures them

A claim of several parts holds if all parts do, and does not if one does not. Parts share the 5% (Bonferroni).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Literal, NamedTuple

from midmask.benchmark.design import NONE
from midmask.benchmark.results import Results, SystemKey, home, order_splits, weigh
from midmask.evaluation.statistics.intervals import ALPHA, IntervalEstimate, contrast
from midmask.retrieve.bm25 import BM25
from midmask_papers.published import CORPUS, Published, key_of

CorpusSplit = tuple[str, str]
"""(corpus, split)."""


@dataclass(frozen=True)
class Term:
    """One system of a contrast, its weight, and the value that a paper prints for it; None: it prints none."""

    weight: float
    key: SystemKey
    published: float | None = None


@dataclass(frozen=True)
class Match:
    """Our systems for a paper, the corpus and split on which all were measured, and the differences from the paper."""

    terms: tuple[Term, ...]
    places: tuple[CorpusSplit, ...]
    differs: tuple[str, ...] = ()

    def estimate(self, results: Results, measure: str, alpha: float = ALPHA) -> IntervalEstimate:
        """The weighted sum of the systems' means over these places, each weighing the same, with its interval.

        Raises:
            UserError: if systems or seeds were measured on different queries.
            ValueError: if a system has no result on one of the places, or other seeds than on the first.
        """
        return contrast([weigh(term.key, term.weight, results, self.places, measure) for term in self.terms], alpha)


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


def term(weight: float, number: Published) -> Term:
    """A printed number in a contrast."""
    return Term(weight, key_of(number), number.value)


def match(part: ClaimPart, results: Results) -> Match | str:
    """Our systems for those of a part, on the paper's corpus and split; where that corpus was not measured, on `home`;
    or what would have to be measured.

    A part that holds elsewhere is matched on every corpus but `home` instead; of several readings, by the one with
    most corpora. In one that keeps collections apart, different collections of middle training must be different ones
    here, and none of them the corpus.
    """
    theirs = [term.key for term in part.terms]
    measured = {(result.key, result.corpus, result.split) for result in results if part.measure in result.measures}
    splits = {corpus: results.where(corpus=corpus).names("split") for corpus in _corpora(results, part)}
    best: Match | None = None
    for setting, collection in _readings(results):
        ours = [_read(key, setting, collection) for key in theirs]
        if len(set(ours)) < len(set(theirs)):
            continue  # the terms would not be told apart
        if part.collections_apart and not _are_apart(theirs, ours, next(iter(splits), "")):
            continue
        places = []
        for corpus, there in splits.items():
            ordered = order_splits(there, part.place[1] if corpus == part.place[0] else "")
            complete = (split for split in ordered if all((key, corpus, split) in measured for key in ours))
            places += [(corpus, split) for split in [*complete][:1]]
        if places and (best is None or len(places) > len(best.places)):
            terms = tuple(replace(term, key=key) for term, key in zip(part.terms, ours, strict=True))
            best = Match(terms, tuple(places), _differences(theirs, ours, home(results)))
        if best is not None and not part.elsewhere:
            break
    return best or _missing(theirs, results, part.measure)


def _corpora(results: Results, part: ClaimPart) -> list[str]:
    corpora = results.names("corpus")
    if part.elsewhere:
        return [corpus for corpus in corpora if corpus != home(results)]
    return [part.place[0] if part.place[0] in corpora else home(results)]


def _readings(results: Results) -> Iterator[tuple[str | None, dict[str, str]]]:
    """A setting to put in the place of all others, or none, and what to read for a collection's label ("" for any
    other). The nearest to the paper first.
    """
    labels = [name for name in results.names("collection") if name != NONE]
    itself = [name for name in (CORPUS, home(results)) if name in labels]
    labels.sort(key=lambda name: name not in itself)
    for setting in (None, *(name for name in results.names("setting") if name != NONE)):
        yield setting, dict(zip((CORPUS,), itself, strict=False))
        for name in labels:
            yield setting, {"": name}


def _read(key: SystemKey, setting: str | None, collections: Mapping[str, str]) -> SystemKey:
    other = collections.get("", key.collection)
    return replace(
        key,
        setting=key.setting if setting is None or key.setting == NONE else setting,
        collection=NONE if key.collection == NONE else collections.get(key.collection, other),
    )


def _are_apart(theirs: Sequence[SystemKey], ours: Sequence[SystemKey], corpus: str) -> bool:
    """Whether collections that differ in the paper do here, and none but the corpus is the corpus."""
    printed, read = ({key.collection for key in keys} - {NONE} for keys in (theirs, ours))
    return len(read) == len(printed) and (CORPUS in printed or not read & {CORPUS, corpus})


def _differences(theirs: Sequence[SystemKey], ours: Sequence[SystemKey], corpus: str) -> tuple[str, ...]:
    differences = []
    for field, verb in (("setting", "fine-tuned as"), ("collection", "pre-trained on")):
        printed = dict.fromkeys(name for key in theirs if (name := getattr(key, field)) not in (NONE, ""))
        read = dict.fromkeys(name for key in ours if (name := getattr(key, field)) != NONE)
        if printed and printed != dict.fromkeys(CORPUS if name == corpus else name for name in read):
            differences.append(f"{verb} {', '.join(read)} (paper: {', '.join(printed)})")
    return tuple(differences)


def _missing(keys: Sequence[SystemKey], results: Results, measure: str) -> str:
    pairs = dict.fromkeys((key.system, key.representation) for key in keys)
    absent = [pair for pair in pairs if not results.where(system=pair[0], representation=pair[1])]
    names = ", ".join(f"{system} ({representation})" for system, representation in absent or pairs)
    return f"{'not among the results' if absent else f'never measured under the same conditions by {measure}'}: {names}"


ClaimOutcome = Literal["holds", "does not hold", "not decidable", "not measured"]

OUTCOMES: tuple[ClaimOutcome, ...] = ("does not hold", "not measured", "not decidable", "holds")
"""Of a claim of several parts, the first that any of them has."""

LEAST_OF_BM25 = 0.1
"""Share of BM25's measure that the best system of each condition must reach for a claim to be decided."""

OutcomeRule = Callable[[IntervalEstimate, float | None], ClaimOutcome]
"""The outcome for an estimate, against the published size."""


class Weak(NamedTuple):
    """A condition in which no system has learned to search."""

    place: str
    condition: str


@dataclass(frozen=True)
class Ruling:
    """The outcome of a claim; of several parts, with the numbers of the one that decides. Numbers are fractions."""

    outcome: ClaimOutcome
    statement: str  # what was compared, and the figures
    estimate: IntervalEstimate | None = None  # positive in the claimed direction; None: nothing was estimated
    published: float | None = None  # the paper's value, if it is printed
    representations: tuple[str, ...] = ()  # of the systems that were compared
    conditions: tuple[str, ...] = ()  # where it was measured, and how that differs from the paper
    weak: tuple[Weak, ...] = ()
    remarks: tuple[str, ...] = ()  # sentences that follow

    @property
    def sentence(self) -> str:
        """The statement with its conditions, those that decide nothing, and the remarks."""
        places: dict[str, list[str]] = {}
        for place, condition in self.weak:
            places.setdefault(place, []).append(condition)
        weak = [f"On {place} too little to decide it, at most: {'; '.join(names)}." for place, names in places.items()]
        return " ".join(("; ".join((self.statement, *self.conditions)) + ".", *weak, *self.remarks))


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
    """The ruling on one part, by the rule where its systems have learned to search."""
    ours = match(part, results) if results else "there are no results"
    if isinstance(ours, str):
        return Ruling("not measured", f"{part.what}: {ours}", published=part.published)
    estimate = ours.estimate(results, part.measure, alpha)
    seeds = f"{estimate.seeds} seeds" if estimate.seeds > 1 else "1 seed"
    drawn = "" if estimate.floor else ", how much seeds differ is not known"
    places = ", ".join(" ".join(place) for place in ours.places)
    keys = [term.key for term in ours.terms]
    weak = below_floor(keys, ours.places, results, part.measure)
    return Ruling(
        "not decidable" if weak else rule(estimate, part.published),
        f"{part.what}: {_figures(estimate, part)}",
        estimate,
        part.published,
        representations=tuple(dict.fromkeys(key.representation for key in keys if key.system != BM25)),
        conditions=(f"on {places} ({estimate.queries:,} queries, {seeds}{drawn})", *ours.differs),
        weak=weak,
    )


def _figures(estimate: IntervalEstimate, part: ClaimPart) -> str:
    size = "" if part.published is None else f"published {points(part.published)}, "
    return (
        f"{part.measure} {points(estimate.value)} [{points(estimate.low)}, {points(estimate.high)}], "
        f"{size}detectable {100 * estimate.detectable:.2f}"
    )


def points(value: float) -> str:
    """A difference in hundredths, with its sign; in powers of ten where two decimals would show none of it."""
    return f"{100 * value:+.2f}" if value == 0 or abs(value) >= 1e-4 else f"{100 * value:+.1e}"


def below_floor(
    keys: Sequence[SystemKey], places: Sequence[CorpusSplit], results: Results, measure: str
) -> tuple[Weak, ...]:
    """The conditions of a comparison in which no system has learned to search, with the best value of each.

    A condition is a fine-tuning, a representation and what the middle training read, on one corpus and split. A system
    without middle training belongs to every condition of its fine-tuning and representation. Places where BM25 was not
    measured are not checked.
    """
    weak = []
    for corpus, split in places:
        here = Results(result for result in results.where(corpus=corpus, split=split) if measure in result.measures)
        bm25 = _mean(here.where(system=BM25), measure)
        for name, systems in _conditions(keys).items():
            best = max(_mean(here.where(**vars(key)), measure) for key in systems)
            if best < LEAST_OF_BM25 * bm25:
                weak.append(Weak(f"{corpus} {split} (BM25 {bm25:.4f})", f"{name} {best:.4f}"))
    return tuple(weak)


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


def within(part: ClaimPart, results: Results, bound: float, preset: str) -> Ruling:
    """The ruling on a claim that a contrast is no more than `bound` in either direction."""
    ruling = decide(part, results, rule=lambda estimate, size: judge_between(estimate, -bound, bound))
    missing = ruling.outcome == "not measured"
    remark = how_to_measure(preset) if missing else f"Nothing is at most {100 * bound:g} points."
    return replace(ruling, remarks=(remark,))


def all_of(results: Results, preset: str, parts: Sequence[ClaimPart]) -> Ruling:
    """The ruling on a claim of these parts; where one is not measured, with the preset that measures it."""
    rulings = [decide(part, results, ALPHA / len(parts)) for part in parts]
    ruling = combine(rulings)
    if not any(part_ruling.outcome == "not measured" for part_ruling in rulings):
        return ruling
    zero_shot = " --zero-shot FORMAT:PLACE" if any(part.elsewhere for part in parts) else ""
    return replace(ruling, remarks=(*ruling.remarks, how_to_measure(preset + zero_shot)))


def how_to_measure(preset: str) -> str:
    """The sentence on how to measure a claim."""
    return f"`jobs/benchmark_middle_training.py --preset {preset}` measures it."


def combine(rulings: Sequence[Ruling]) -> Ruling:
    """Of the worst outcome among them; its numbers are those of the first part that has it, or, if all hold, of the
    part that is nearest to not holding.
    """
    outcome = next(outcome for outcome in OUTCOMES if any(ruling.outcome == outcome for ruling in rulings))
    deciding = [ruling for ruling in rulings if ruling.outcome == outcome]
    chosen = deciding[0]
    if outcome == "holds":
        chosen = min(deciding, key=lambda ruling: ruling.estimate.low if ruling.estimate else 0.0)
    views = dict.fromkeys(view for ruling in rulings for view in ruling.representations)
    if len(rulings) == 1:
        return replace(chosen, representations=tuple(views))
    measured = [ruling.conditions for ruling in rulings if ruling.conditions]
    shared = [text for text in dict.fromkeys(chain(*measured)) if all(text in texts for texts in measured)]
    statements = [
        f"{ruling.outcome.capitalize()}: "
        + "; ".join((ruling.statement, *(text for text in ruling.conditions if text not in shared)))
        for ruling in rulings
    ]
    return replace(
        chosen,
        statement=". ".join(statements),
        representations=tuple(views),
        conditions=(),
        weak=tuple(dict.fromkeys(chain(*(ruling.weak for ruling in rulings)))),
        remarks=(f"All that were measured: {'; '.join(shared)}.",) if shared else (),
    )
