"""The claims of the papers: those of `claims.yaml`, and the few that a function decides."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import product, starmap
from typing import Any

from pydantic import Field, TypeAdapter, model_validator

from midmask.benchmark.design import NONE
from midmask.benchmark.results import Results, SystemKey, home
from midmask.core.config import Config
from midmask.core.registry import Registry
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask_papers.masks_and_maps import (
    SHIPPED,
    Statistic,
    divergences,
    fewer_stops,
    lowest_divergences,
    stop_share,
)
from midmask_papers.published import CORPUS, Published, key_of, pick, published, read_list, resolve_corpus
from midmask_papers.ruling import (
    ClaimPart,
    CorpusSplit,
    Ruling,
    Term,
    all_of,
    below_floor,
    how_to_measure,
    points,
    term,
    within,
)

Selector = str | dict[str, str]
"""A printed number: its label, or other fields of `Published`."""

HOME: CorpusSplit = ("msmarco", "dev")


class Pair(Config):
    """That one number is higher than others."""

    better: Selector = Field(description="the number")
    worse: tuple[Selector, ...] = Field(min_length=1, description="the others")
    what: str = Field("", description="template of the part's name; empty: the systems")


class Contrast(Config):
    """A weighted sum that is positive."""

    what: str = Field(description="the part's name")
    terms: tuple[tuple[float, Selector], ...] = Field((), description="weight and number of each")
    ours: dict[str, float] = Field({}, description="or recipe -> weight, where no number is printed")


class MeanGain(Config):
    """That the mean of some numbers is higher than that of others, over the systems that both have."""

    what: str = Field(description="the part's name")
    better: dict[str, str] = Field(description="fields of the numbers")
    worse: dict[str, str] = Field(description="of the others; with a label, one number for all")


class Claim(Config):
    """A sentence of a paper as `claims.yaml` states it, and how it is checked."""

    name: str = Field(description="PAPER.CLAIM")
    text: str = Field(description="the sentence")
    paper: str = Field("", description="the paper with its numbers; empty: as the name has it")
    preset: str = Field("", description="what measures it; empty: the paper's")
    of: dict[str, str] = Field({}, description="fields that all its numbers share")
    pairs: tuple[Pair, ...] = Field((), description="its parts")
    contrasts: tuple[Contrast, ...] = Field((), description="its parts")
    means: tuple[MeanGain, ...] = Field((), description="its parts")
    elsewhere: bool = Field(False, description="as in `ClaimPart`")
    collections_apart: bool = Field(False, description="as in `ClaimPart`")
    within: float | None = Field(None, gt=0, description="the contrast is at most this, either way")
    check: str = Field("", description="the function that decides it")

    @model_validator(mode="before")
    @classmethod
    def _papers_are_those_of_names(cls, data: Any) -> Any:
        paper = data.get("paper") or data["name"].partition(".")[0]
        return {**data, "paper": paper, "preset": data.get("preset") or paper}

    def decide(self, results: Results, statistics: Sequence[Statistic] = SHIPPED) -> Ruling:
        """The ruling by these results; of some claims by statistics."""
        if self.check:
            return CHECKS[self.check](results, statistics)
        parts = [*self._parts(results)]
        if self.within is not None:
            return within(parts[0], results, self.within, self.preset)
        return all_of(results, self.preset, parts)

    def _parts(self, results: Results) -> Iterator[ClaimPart]:
        for pair in self.pairs:
            better = self._pick(pair.better)
            for worse in map(self._pick, pair.worse):
                what = pair.what.format(better=better, worse=worse) or f"{_name(better)} against {_name(worse)}"
                yield self._part(what, (term(1.0, better), term(-1.0, worse)), better)
        for row in self.contrasts:
            numbers = [(weight, self._pick(selector)) for weight, selector in row.terms]
            if numbers:
                yield self._part(row.what, tuple(starmap(term, numbers)), numbers[0][1])
            else:
                ours = tuple(Term(weight, _trained_here(system)) for system, weight in row.ours.items())
                yield ClaimPart(row.what, ours, "RR@10", HOME)
        for mean in self.means:
            yield self._mean(mean, results)

    def _part(self, what: str, terms: tuple[Term, ...], number: Published) -> ClaimPart:
        place = (number.corpus, number.split)
        return ClaimPart(what, terms, number.measure, place, self.elsewhere, self.collections_apart)

    def _pick(self, selector: Selector) -> Published:
        fields = {"label": selector} if isinstance(selector, str) else selector
        return pick(self.paper, **{**self.of, **fields})

    def _mean(self, row: MeanGain, results: Results) -> ClaimPart:
        """Over the systems that both have and that were measured; if none was, over all."""
        better, worse = self._by_label(row.better), self._by_label(row.worse)
        if base := worse.get(row.worse.get("label", "")):
            worse = {label: base for label in better if label != base.label}
        labels = [label for label in better if label in worse]
        measured = [label for label in labels if all(_is_among(side[label], results) for side in (better, worse))]
        chosen = measured or labels
        against = {key_of(worse[label]): worse[label] for label in chosen}  # one baseline for all, or one each
        terms = [term(1 / len(chosen), better[label]) for label in chosen]
        terms += [term(-1 / len(against), number) for number in against.values()]
        what = f"{row.what} ({', '.join(chosen)})" if len(chosen) < len(labels) else row.what
        return self._part(what, tuple(terms), better[chosen[0]])

    def _by_label(self, selector: dict[str, str]) -> dict[str, Published]:
        """Label -> number, without doubtful values."""
        fields = {**self.of, **selector, "note": ""}
        numbers = published(self.paper, fields["table"])
        return {cell.label: cell for cell in numbers if all(getattr(cell, name) == fields[name] for name in fields)}


def _name(number: Published) -> str:
    """A system with its representation where that is not the usual one."""
    usual = number.representation in ("dense", "bm25", "")
    return number.system if usual else f"{number.system} ({number.representation})"


def _trained_here(system: str) -> SystemKey:
    """A dense system, pre-trained on the corpus and fine-tuned with in-batch negatives."""
    return SystemKey(system, NONE if system == NONE else CORPUS, "dense", "in_batch")


def _is_among(number: Published, results: Results) -> bool:
    """Whether the system was measured after reading what the paper says, in any fine-tuning."""
    if not results:
        return False
    read = results.where(system=number.system, representation=number.representation).names("collection")
    return number.collection in read or (number.collection == CORPUS and home(results) in read)


def retromae_best(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """RetroMAE-MS > every other dense system, on the mean over the settings in which it was measured."""
    columns: dict[str, dict[str, Published]] = {}
    for number in (number for table in "12345" for number in published("sigir23", table)):
        if (number.representation, number.measure) == ("dense", "RR@10"):
            columns.setdefault(number.setting, {})[number.label] = number
    tried = [name for name in columns if results.where(system="retromae", representation="dense", setting=name)]
    settings, best, parts = tried or [*columns][:1], "RetroMAE MS", []
    for rival in (label for label in next(iter(columns.values())) if label != best):
        weights = {best: 1 / len(settings), rival: -1 / len(settings)}
        terms = [term(weight, columns[name][label]) for name in settings for label, weight in weights.items()]
        parts.append(ClaimPart(f"{best} against {rival}", tuple(terms), "RR@10", HOME))
    ruling = all_of(results, "sigir23", parts)
    return replace(ruling, remarks=(*ruling.remarks, f"Mean over: {', '.join(settings)}."))


def no_trec_difference(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """No two systems differ significantly on TREC DL (paired t-test, Bonferroni, 0.05)."""
    groups = list(_trec_groups(results))
    pairs = [row for place, group in groups for row in _compare_all(group, place)]
    if not pairs:
        how = how_to_measure("sigir23 --zero-shot ir_datasets:msmarco-passage/trec-dl-2019/judged")
        return Ruling("not measured", "No two systems on trec-dl-2019 or trec-dl-2020 by nDCG@10", remarks=(how,))
    significant = [row for row in pairs if row.significant]
    largest = max(pairs, key=lambda row: abs(row.difference))
    named = ", ".join(f"{row.system} against {row.baseline} {points(row.difference)}" for row in significant[:5])
    weak = [
        condition
        for place, group in groups
        for condition in below_floor(list(dict.fromkeys(result.key for result in group)), [place], results, "nDCG@10")
    ]
    return Ruling(
        "not decidable" if weak else "does not hold" if significant else "holds",
        f"{len(significant)} of {len(pairs)} pairs differ significantly{f' ({named})' if named else ''}; the largest "
        f"difference is {points(largest.difference)}, the least to be found there {points(largest.detectable)}",
        representations=tuple(dict.fromkeys(result.key.representation for _, group in groups for result in group)),
        weak=tuple(weak),
    )


def _trec_groups(results: Results) -> Iterator[tuple[CorpusSplit, Results]]:
    """The place and results of each group of two systems or more that share a fine-tuning and a representation."""
    for corpus in (resolve_corpus(name, results) for name in ("trec-dl-2019", "trec-dl-2020")):
        here = results.where(corpus=corpus)
        for setting, representation, split in product(*map(here.names, ("setting", "representation", "split"))):
            group = here.where(setting=setting, representation=representation, split=split)
            if len({result.key for result in group}) > 1:
                yield (corpus, split), group


def _compare_all(group: Results, place: CorpusSplit) -> list[Comparison]:
    tables = group.per_query(*place, by=lambda key: f"{key.system} ({key.collection})")
    return list(compare(tables, measure="nDCG@10", correction="bonferroni"))


def better_on_nq(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """RetroMAE > Condenser on NQ, as DPR and as ANCE. Printed are differences to the best baseline alone, which is
    taken to be Condenser; so they stand for RetroMAE's value, and 0 for Condenser's.
    """
    parts = []
    for setting in ("dpr", "ance"):
        gain = pick("retromae", "text", setting=setting, corpus="nq")
        terms = (Term(1.0, key_of(gain), gain.value), Term(-1.0, replace(key_of(gain), system="condenser"), 0.0))
        what = f"retromae against condenser, {setting}"
        parts.append(ClaimPart(what, terms, gain.measure, (gain.corpus, gain.split)))
    return all_of(results, "retromae --corpus nq:FOLDER", parts)


CHECKS: Registry[Callable[[Results, Sequence[Statistic]], Ruling]] = Registry(
    "check of a claim",
    {
        "retromae_best": retromae_best,
        "no_trec_difference": no_trec_difference,
        "better_on_nq": better_on_nq,
        "divergences": divergences,
        "lowest_divergences": lowest_divergences,
        "stop_share": stop_share,
        "fewer_stops": fewer_stops,
    },
)


_LIST = TypeAdapter(tuple[Claim, ...])
_TEXT = (files("midmask_papers") / "claims.yaml").read_text(encoding="utf-8")

CLAIMS: Registry[Claim] = Registry("claim", {claim.name: claim for claim in read_list(_LIST, _TEXT, "claims.yaml")})
"""All claims, in the papers' order."""
