"""The numbers and sentences of a verdict, as plain text: Markdown, HTML and the model card take the same ones.

Nothing here is escaped. Texts that come from documents may hold anything, so each renderer escapes what it prints.
"""

import math
import re
import shlex

from midmask.choice.verdict import Calibration, QueryCounts, SystemEstimate, Verdict
from midmask.progress import size as size_words

MINUS = "\N{MINUS SIGN}"
NOT_KNOWN = "not known"
NO_LOADER = "sentence-transformers has no module for this representation."
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

BEYOND = 0.05
"""Difference of coverage from the stated level that is worth a sentence."""


def readable(text: str) -> str:
    """The text with a mark for each character that a file cannot hold or that would turn what stands beside it: control
    characters, lone surrogates, overrides of the writing direction.
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def score(value: float) -> str:
    """A measure with three decimals."""
    return f"{value:.3f}".replace("-", MINUS) if math.isfinite(value) else NOT_KNOWN


def signed(value: float) -> str:
    """A difference with three decimals and its sign; no sign if it is 0 with these."""
    text = score(value)
    unsigned = text.lstrip(MINUS)
    if unsigned in ("0.000", NOT_KNOWN):
        return unsigned
    return text if text.startswith(MINUS) else f"+{text}"


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def interval_level(verdict: Verdict) -> str:
    """Such as `90% interval`."""
    return f"{percent(verdict.calibration.level)} interval"


def duration(seconds: float) -> str:
    """A time as people write it: `12 s`, `3 min 7 s`, `42 min`, `1 h 12 min`, `26 h`, `3 days 4 h`."""
    if not math.isfinite(seconds):
        return NOT_KNOWN
    if seconds <= 0.5:  # which rounds to 0
        return "under 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return _two(whole, 60, "min", "s")
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 600:
        return _two(minutes, 60, "h", "min")
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else _two(hours, 24, "days", "h")


def _two(count: int, size: int, large: str, small: str) -> str:
    rest = f" {count % size} {small}" if count % size else ""
    return f"{count // size} {large}{rest}"


def size(count: float) -> str:
    """Bytes as people read them: `512 B`, `1.5 kB`."""
    return size_words(count) if math.isfinite(count) else NOT_KNOWN


def named(label: str) -> str:
    """A system's name in a sentence: without marks, one such as `as it is · dense` would read as words of it."""
    return f"“{label}”"


def headline(verdict: Verdict) -> str:
    """The answer in a sentence or two: which system, what it gains, what it costs."""
    taken = verdict.recommended
    if verdict.recommendation.distinguishable:
        return (
            f"Take {named(taken.label)}: {signed(taken.gain)} {verdict.measure} over {named(verdict.baseline)}, for "
            f"{duration(taken.seconds)} of computing."
        )
    equals = [one for one in verdict.finalists if one.gain_low <= 0 <= one.gain_high]
    if all(taken.seconds <= one.seconds for one in equals):
        return f"Not distinguishable: take the cheapest, which is {named(taken.label)} ({duration(taken.seconds)})."
    return f"Not distinguishable: take {named(taken.label)} ({duration(taken.seconds)})."


def certainty(verdict: Verdict) -> str:
    """How sure the headline is: the interval, and of what is left if nothing can be told apart."""
    taken = verdict.recommended
    if verdict.recommendation.distinguishable:
        return (
            f"The {interval_level(verdict)} of this gain is {signed(taken.gain_low)} to {signed(taken.gain_high)}. "
            f"{_coverage(verdict.calibration)}"
        )
    others = [one for one in verdict.finalists if one.label != verdict.baseline]
    if not others:
        return "No other system was measured on the test queries."
    best = max(others, key=lambda one: one.gain)
    contains = "which contains 0" if best.gain_low <= 0 <= best.gain_high else "which does not contain 0"
    return (
        f"The largest gain over {named(verdict.baseline)} is that of {named(best.label)}: {signed(best.gain)} "
        f"{verdict.measure} "
        f"({gain_interval_words(verdict, best)}, {contains}), for {duration(best.seconds)} of computing. "
        f"{_coverage(verdict.calibration)}"
    )


def gain_interval_words(verdict: Verdict, one: SystemEstimate) -> str:
    """Such as `90% interval +0.011 to +0.073`."""
    return f"{interval_level(verdict)} {signed(one.gain_low)} to {signed(one.gain_high)}"


def _coverage(found: Calibration) -> str:
    """What is known of intervals like the headline's."""
    if not found.collections:
        return "How often such intervals are right has not been measured."
    many = "a collection" if len(found.collections) == 1 else f"{len(found.collections)} collections"
    return f"On {many} with judgements, such intervals covered {percent(found.coverage)} of the judged values."


def budget(verdict: Verdict) -> str:
    return f"{duration(verdict.spent_seconds)} of a budget of {duration(verdict.budget_seconds)} were spent."


def belief(found: Calibration) -> list[str]:
    """How far to believe the verdict: what the calibration shows, in sentences."""
    level = percent(found.level)
    if not found.collections:
        return [
            "No collection with judgements has been measured for this. That a system's gain on made queries is its "
            f"gain on people's queries is an assumption, and so is the width of the {level} intervals."
        ]
    many = "1 collection" if len(found.collections) == 1 else f"{len(found.collections)} collections"
    tau, coverage = found.kendall_tau, found.coverage
    agreement = (
        f"The rankings agreed with a Kendall's tau of {score(tau)}: without ties, {percent((1 + tau) / 2)} of all "
        "pairs of systems stand in the same order."
    )
    sentences = [
        f"On {many} with judgements ({', '.join(found.collections)}), verdicts were made without looking at these.",
        agreement if math.isfinite(tau) else "Whether rankings agreed there is not known.",
        f"Stated {level} intervals covered {percent(coverage)} of the judged values." + _coverage_advice(found),
    ]
    return [*sentences, f"Source: {found.source}"] if found.source else sentences


def _coverage_advice(found: Calibration) -> str:
    if found.coverage < found.level - BEYOND:
        return " So they are narrower than they should be."
    return " So they are wider than they need to be." if found.coverage > found.level + BEYOND else ""


def query_sentence(counts: QueryCounts) -> str:
    share = f" ({percent(counts.kept / counts.made)})" if counts.made else ""
    return (
        f"{counts.made:,} queries were made and {counts.kept:,}{share} kept: {counts.train:,} for training, "
        f"{counts.dev:,} for choosing (dev), {counts.test:,} for the figures (test)."
    )


def rank_words(rank: int | None) -> str:
    return "not found" if rank is None else f"rank {rank}"


def search_command(verdict: Verdict) -> str:
    """What is typed to search with the verdict's systems, from the folder that it was written to."""
    return f"midmask search {shlex.quote(verdict.folder or verdict.model)}"


def loader(representation: str) -> str | None:
    """The class of sentence-transformers that loads a model of this representation; None if there is none."""
    if representation.startswith("OT"):
        return None
    return "SparseEncoder" if representation.startswith("splade") else "SentenceTransformer"


def other_model(verdict: Verdict) -> str:
    """A sentence where the recommended system has no model, and another one's is delivered; else ""."""
    taken, delivered = verdict.recommended, verdict.delivered
    if delivered == taken:
        return ""
    names = named(taken.label), named(delivered.label)
    return f"{names[0]} has no model; the model here is that of {names[1]}, the best system that has one."


def loading_lines(verdict: Verdict, model: str | None = None) -> list[str]:
    """Three lines of Python that load the model and compare a query with passages; none if no library can.

    Args:
        model: the model's name in these lines; none: its folder.
    """
    found = loader(verdict.delivered.representation)
    if found is None:
        return []
    return [
        f"from sentence_transformers import {found}",
        f"model = {found}({verdict.model if model is None else model!a})",
        'model.similarity(model.encode_query(["a query"]), model.encode_document(["a passage", "another one"]))',
    ]
