"""Which of our results stand for a paper's systems: exactly those it names or, where there are none, the same systems
under one other setting, or after reading one other collection, all of them alike. What differs from the paper is told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from midmask.benchmark.contrast import Term, found_for
from midmask.benchmark.published import Published
from midmask.benchmark.results import Results, SystemKey

NONE = "none"
"""The collection of a system without middle training, and the setting of one without fine-tuning."""

SPLITS = ("test", "dev")
"""In order of preference: what was selected on dev is told on test."""

Place = tuple[str, str]
"""(corpus, split)."""


@dataclass(frozen=True)
class Match:
    """Our systems in the paper's place, where they were all measured, and what is not as in the paper."""

    terms: tuple[Term, ...]
    places: tuple[Place, ...]
    differs: tuple[str, ...]


@dataclass(frozen=True)
class Missing:
    """What would have to be measured."""

    what: str


def key_of(number: Published) -> SystemKey:
    """Of a printed number; empty fields match nothing."""
    return SystemKey(number.system, number.collection, number.representation, number.setting)


def home(results: Results) -> str:
    """The corpus that systems are fine-tuned on: benchmarks list its results first."""
    return results[0].corpus


def match(
    terms: Sequence[Term], results: Results, measure: str, place: Place, *, elsewhere: bool = False
) -> Match | Missing:
    """Our systems for these.

    Args:
        place: the paper's corpus and split; where that corpus was not measured, `home`.
        elsewhere: on every corpus but `home` instead; of several readings, the one with most corpora.
    """
    best: Match | None = None
    for setting, collection in _readings(results):
        own = [_read(term.key, setting, collection) for term in terms]
        if len(set(own)) < len({term.key for term in terms}):
            continue  # the terms would not be told apart
        corpora = _elsewhere(results) if elsewhere else [_corpus(results, place)]
        found = tuple(one for corpus in corpora if (one := _place(results, own, corpus, place, measure)) is not None)
        if found and (best is None or len(found) > len(best.places)):
            ours = tuple(replace(term, key=key) for term, key in zip(terms, own, strict=True))
            best = Match(ours, found, _differences([term.key for term in terms], own))
        if best is not None and not elsewhere:
            break
    return best or Missing(_missing(terms, results, measure))


def _readings(results: Results) -> Iterator[tuple[str | None, str | None]]:
    """(setting, collection) to put in the place of all others; none: as they are. The nearest to the paper first."""
    collections = [name for name in results.names("collection") if name != NONE]
    collections.sort(key=lambda name: name != "corpus")
    for setting in (None, *(name for name in results.names("setting") if name != NONE)):
        for collection in (None, *collections):
            yield setting, collection


def _read(key: SystemKey, setting: str | None, collection: str | None) -> SystemKey:
    return replace(
        key,
        setting=key.setting if setting is None or key.setting == NONE else setting,
        collection=key.collection if collection is None or key.collection == NONE else collection,
    )


def _corpus(results: Results, place: Place) -> str:
    return place[0] if place[0] in results.names("corpus") else home(results)


def _elsewhere(results: Results) -> list[str]:
    return [corpus for corpus in results.names("corpus") if corpus != home(results)]


def _place(results: Results, keys: Sequence[SystemKey], corpus: str, wanted: Place, measure: str) -> Place | None:
    """The corpus with the best split that has all these systems by this measure."""
    splits = results.where(corpus=corpus).names("split")
    order = [wanted[1]] if corpus == wanted[0] else []
    for split in dict.fromkeys([*order, *SPLITS, *splits]):
        if all(_measured(found_for(results, key, (corpus, split)), measure) for key in keys):
            return corpus, split
    return None


def _measured(found: Results, measure: str) -> bool:
    return bool(found) and all(measure in result.measures for result in found)


def _differences(published: Sequence[SystemKey], ours: Sequence[SystemKey]) -> tuple[str, ...]:
    said = []
    for field, verb in (("setting", "fine-tuned as"), ("collection", "pre-trained on")):
        theirs = dict.fromkeys(name for key in published if (name := getattr(key, field)) not in (NONE, ""))
        own = dict.fromkeys(name for key in ours if (name := getattr(key, field)) != NONE)
        if theirs and theirs != own:
            said.append(f"{verb} {', '.join(own)} (paper: {', '.join(theirs)})")
    return tuple(said)


def _missing(terms: Sequence[Term], results: Results, measure: str) -> str:
    wanted = dict.fromkeys((term.key.system, term.key.representation) for term in terms)
    absent = [
        f"{system} ({representation})"
        for system, representation in wanted
        if not results.where(system=system, representation=representation)
    ]
    if absent:
        return f"not among the results: {', '.join(absent)}"
    named = ", ".join(f"{system} ({representation})" for system, representation in wanted)
    return f"never measured under the same conditions by {measure}: {named}"
