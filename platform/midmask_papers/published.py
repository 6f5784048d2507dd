"""The numbers that the papers print, as data, and which results of ours are held against them.

One YAML file a paper in `numbers/`, transcribed from methods.md 14. A table there is a grid: what a value is of
(system, measure, …) is told by its column, its row and what all share; a value in braces has a note, where the sources
contradict each other (methods.md 15).

Our results for a paper's systems are exactly those it names or, where there are none, the same systems under one other
setting, or after reading one other collection, all of them alike. Differences from the paper are listed.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import Field, model_validator

from midmask.benchmark.design import BM25
from midmask.benchmark.results import Result, Results, SystemKey
from midmask.core.config import Config
from midmask.errors import unknown
from midmask.evaluation.statistics.intervals import ALPHA, IntervalEstimate, Weighted, contrast, read_sample


@dataclass(frozen=True)
class Published:
    """One number that a paper printed."""

    paper: str
    table: str
    label: str
    # An ir-measures name, or KL, JS (divergences of embeddings), stop share (fraction of stop-words and punctuation
    # among masked tokens), wins (fraction of collections on which one system beats another)
    measure: str
    value: float  # a fraction
    source: str  # the section of methods.md
    system: str = ""  # a recipe, or a variant as "recipe[field=value,…]"; empty for systems that midmask lacks
    collection: str = ""  # as in `results.SystemKey`, like the next two; empty where unpublished
    representation: str = ""
    setting: str = ""
    condition: str = ""  # the paper's own word for the setting
    corpus: str = ""
    split: str = ""
    against: str = ""  # the system that a difference or a fraction of wins is relative to
    note: str = ""  # why the value is doubtful; empty if it is not

    @property
    def recipe(self) -> str:
        """The recipe whose variant the system is; empty for systems that midmask lacks."""
        return re.sub(r"\[.*", "", self.system)


class Noted(Config):
    """A value with the reason to doubt it."""

    value: Decimal = Field(description="as printed")
    note: str = Field(description="what is doubtful")


class PublishedRow(Config):
    """Values in the order of the columns, and the system that they belong to."""

    values: tuple[Decimal | Noted | None, ...] = Field(description="as printed; null where nothing is")
    of: dict[str, str] = Field(description="fields of `Published`")

    @model_validator(mode="before")
    @classmethod
    def _other_fields_are_told_of_all(cls, data: Any) -> Any:
        return {"values": data["values"], "of": {name: text for name, text in data.items() if name != "values"}}


class PublishedTable(Config):
    """A grid of printed numbers; in a cell, a row's fields outdo its column's, and these the shared ones."""

    table: str = Field(description="its number in the paper")
    line: str = Field(description="its place in methods.md")
    percent: bool = Field(False, description="whether values are printed a hundredfold")
    shared: dict[str, str] = Field({}, description="fields of `Published` that all cells share")
    columns: tuple[dict[str, str], ...] = Field(description="fields of each column")
    rows: tuple[PublishedRow, ...] = Field(description="the rows")

    @model_validator(mode="after")
    def _rows_fit_columns(self) -> "PublishedTable":
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"table {self.table}: {len(row.values)} values for {len(self.columns)} columns: {row}")
        return self

    def numbers(self, paper: str) -> list[Published]:
        """Its numbers, row by row."""
        numbers = []
        for row in self.rows:
            for column, value in zip(self.columns, row.values, strict=True):
                if value is not None:
                    printed, note = (value.value, value.note) if isinstance(value, Noted) else (value, "")
                    fraction = float(printed / 100 if self.percent else printed)
                    origin = {"table": self.table, "source": f"methods.md {self.line}", "note": note}
                    numbers.append(
                        Published(paper=paper, value=fraction, **{**self.shared, **column, **row.of, **origin})
                    )
        return numbers


class UnknownValues(Config):
    """Values that a paper prints, or draws, and that are not here."""

    what: str = Field(description="which values")
    why: str = Field(description="why they are not here")


class Paper(Config):
    """One file of `numbers/`."""

    paper: str = Field(description="short name, that of the preset")
    citation: str = Field(description="authors, year, title, venue")
    conditions: dict[str, str] = Field(description="backbone, collections, titles, steps, seeds, as the paper has them")
    missing: tuple[UnknownValues, ...] = Field((), description="what the text at hand lacks")
    tables: tuple[PublishedTable, ...] = Field(description="its tables")

    def numbers(self) -> tuple[Published, ...]:
        """All its numbers, table by table."""
        return tuple(number for table in self.tables for number in table.numbers(self.paper))


PAPERS = ("sigir23", "dupmae", "retromae", "cotmote", "rom")
"""Short names, those of the presets."""


@cache
def paper(name: str) -> Paper:
    """A paper's file.

    Raises:
        UserError: for a paper whose numbers are not here.
    """
    if name not in PAPERS:
        raise unknown("paper", name, PAPERS)
    text = (files("midmask_papers") / "numbers" / f"{name}.yaml").read_text(encoding="utf-8")
    return Paper.model_validate(yaml.safe_load(text))


def published(name: str, table: str | None = None) -> tuple[Published, ...]:
    """The printed numbers of a paper, or of one of its tables.

    Raises:
        UserError: for a paper or a table that is not here.
    """
    numbers = paper(name).numbers()
    if table is None:
        return numbers
    tables = dict.fromkeys(number.table for number in numbers)
    if table not in tables:
        raise unknown(f"table of {name}", table, tables)
    return tuple(number for number in numbers if number.table == table)


NONE = "none"
"""The collection of a system without middle training, and the setting of one without fine-tuning."""

CORPUS = "corpus"
"""The collection that is the corpus itself; benchmarks may also call it by the corpus' name."""

SPLITS = ("test", "dev")
"""In order of preference: what was selected on dev is told on test."""

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
        return contrast([_evaluate_term(term, results, self.places, measure) for term in self.terms], alpha)


def _evaluate_term(term: Term, results: Results, places: Sequence[CorpusSplit], measure: str) -> Weighted:
    """A term with its system's values on each of these places, seeds ascending."""
    key, samples, seeds = term.key, [], set()
    for corpus, split in places:
        matching = sorted(results.where(corpus=corpus, split=split, **vars(key)), key=lambda result: result.seed)
        if not matching:
            raise ValueError(f"no result of {key} on {corpus} {split}")
        samples.append(read_sample(key.system, [result.per_query for result in matching], measure))
        seeds.add(tuple(result.seed for result in matching))
    if len(seeds) > 1:
        raise ValueError(f"{key} was not measured with the same seeds on all corpora")
    return Weighted(key.system, term.weight, samples, is_drawn=key.system != BM25)


@dataclass(frozen=True)
class MissingResult:
    """What would have to be measured."""

    what: str


def key_of(number: Published) -> SystemKey:
    """Of a printed number; empty fields match nothing."""
    return SystemKey(number.system, number.collection, number.representation, number.setting)


def home(results: Results) -> str:
    """The first corpus that systems are fine-tuned on: benchmarks list its results first."""
    return results[0].corpus


def tuned_on(result: Result, results: Results) -> str:
    """The corpus that the system of one of these results was fine-tuned on."""
    return result.corpus if result.further else home(results)


def homes(results: Results) -> list[str]:
    """Every corpus that systems are fine-tuned on, the benchmark's first one first."""
    return list(dict.fromkeys(tuned_on(one, results) for one in results))


def order_splits(splits: Sequence[str], wanted: str = "") -> list[str]:
    """These splits, the one to report first: the wanted one if it is there, then test, then dev."""
    return [split for split in dict.fromkeys([wanted, *SPLITS, *splits]) if split in splits]


def corpus_names(name: str) -> tuple[str, ...]:
    """The names under which a corpus that papers call so may be searched: its own, and its ids in ir_datasets."""
    return name, f"beir-{name}", f"msmarco-passage-{name}", f"msmarco-passage-{name}-judged"


def resolve_corpus(name: str, results: Results) -> str:
    """The corpus that papers call so; the name itself if it was not measured."""
    corpora = results.names("corpus")
    return next((corpus for corpus in corpus_names(name) if corpus in corpora), name)


def match(
    terms: Sequence[Term],
    results: Results,
    measure: str,
    place: CorpusSplit,
    *,
    elsewhere: bool = False,
    collections_apart: bool = False,
) -> Match | MissingResult:
    """Our systems for these.

    Args:
        place: the paper's corpus and split; where that corpus was not measured, `home`.
        elsewhere: on every corpus but `homes` instead; of several readings, the one with most corpora.
        collections_apart: whether different collections of middle training must be different ones here, and none of
            them the corpus.
    """
    measured = {(result.key, result.corpus, result.split) for result in results if measure in result.measures}
    splits = {corpus: results.where(corpus=corpus).names("split") for corpus in _corpora(results, place, elsewhere)}
    best: Match | None = None
    for setting, collection in _readings(results):
        own = [_read(term.key, setting, collection) for term in terms]
        if len(set(own)) < len({term.key for term in terms}):
            continue  # the terms would not be told apart
        if collections_apart and not _are_apart([term.key for term in terms], own, next(iter(splits), "")):
            continue
        places = tuple(
            (corpus, split)
            for corpus, there in splits.items()
            if (split := _choose_split(there, place[1] if corpus == place[0] else "", corpus, own, measured))
        )
        if places and (best is None or len(places) > len(best.places)):
            ours = tuple(replace(term, key=key) for term, key in zip(terms, own, strict=True))
            best = Match(ours, places, _differences([term.key for term in terms], own, home(results)))
        if best is not None and not elsewhere:
            break
    return best or MissingResult(_missing(terms, results, measure))


def _corpora(results: Results, place: CorpusSplit, elsewhere: bool) -> list[str]:
    corpora = results.names("corpus")
    if elsewhere:
        home_of = homes(results)
        return [corpus for corpus in corpora if corpus not in home_of]
    return [place[0] if place[0] in corpora else home(results)]


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


def _are_apart(published: Sequence[SystemKey], ours: Sequence[SystemKey], corpus: str) -> bool:
    """Whether collections that differ in the paper do here, and none but the corpus is the corpus."""
    theirs, own = ({key.collection for key in keys} - {NONE} for keys in (published, ours))
    return len(own) == len(theirs) and (CORPUS in theirs or not own & {CORPUS, corpus})


def _choose_split(
    splits: Sequence[str],
    wanted: str,
    corpus: str,
    keys: Sequence[SystemKey],
    measured: Collection[tuple[SystemKey, str, str]],
) -> str:
    """The best split of a corpus that has all these systems; empty if none has."""
    return next(
        (split for split in order_splits(splits, wanted) if all((key, corpus, split) in measured for key in keys)), ""
    )


def _differences(published: Sequence[SystemKey], ours: Sequence[SystemKey], corpus: str) -> tuple[str, ...]:
    said = []
    for field, verb in (("setting", "fine-tuned as"), ("collection", "pre-trained on")):
        theirs = dict.fromkeys(name for key in published if (name := getattr(key, field)) not in (NONE, ""))
        own = dict.fromkeys(name for key in ours if (name := getattr(key, field)) != NONE)
        if theirs and theirs != dict.fromkeys(CORPUS if name == corpus else name for name in own):
            said.append(f"{verb} {', '.join(own)} (paper: {', '.join(theirs)})")
    return tuple(said)


def _missing(terms: Sequence[Term], results: Results, measure: str) -> str:
    pairs = dict.fromkeys((term.key.system, term.key.representation) for term in terms)
    absent = [
        f"{system} ({representation})"
        for system, representation in pairs
        if not results.where(system=system, representation=representation)
    ]
    if absent:
        return f"not among the results: {', '.join(absent)}"
    named = ", ".join(f"{system} ({representation})" for system, representation in pairs)
    return f"never measured under the same conditions by {measure}: {named}"
