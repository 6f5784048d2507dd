"""A verdict as text: the numbers and sentences that all its reports take, `verdict.md`, and the model's README.md.

Sentences are not escaped. Texts that come from documents may hold anything, so each report escapes what it prints. The
model's card says what the model was chosen from and by what, in sentence-transformers' format; what each library sees
of the model is in the card that its own folder has.
"""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from midmask.choice.verdict import Calibration, Example, QueryCounts, SystemEstimate, Verdict
from midmask.core.words import NOT_KNOWN, duration, size
from midmask.evaluation.rendering import markdown, markdown_text

MINUS = "\N{MINUS SIGN}"
NO_LOADER = "sentence-transformers has no module for this representation."
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

BEYOND = 0.05
"""How far coverage is below the stated level where that is worth a sentence."""


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


def named(label: str) -> str:
    """A system's name in a sentence: without marks, one such as `as it is · dense` would read as words of it."""
    return f"“{label}”"


def headline(verdict: Verdict) -> str:
    """The answer in a sentence or two: whether a middle training was compared, which system to take, what it gains on
    the made test queries and what it costs.
    """
    return " ".join(part for part in (no_middle_training(verdict), _advice(verdict)) if part)


def no_middle_training(verdict: Verdict) -> str:
    """A sentence for a verdict that compared no middle training though some were asked for; else ""."""
    enough = verdict.enough_seconds
    if verdict.compared_middle_training or enough is None:
        return ""
    if enough <= verdict.budget_seconds:
        return "No middle training was measured: “Not tried” says why."
    return (
        f"No middle training was tried: {duration(verdict.budget_seconds)} are too short, about "
        f"{duration(_round_up(enough))} would do."
    )


def _round_up(seconds: float) -> float:
    """Rounds seconds up to whole minutes; above an hour to tens of minutes."""
    unit = 60 if seconds <= 3600 else 600
    return unit * math.ceil(seconds / unit)


def _advice(verdict: Verdict) -> str:
    taken, others = verdict.recommended, [system for system in verdict.finalists if system.label != verdict.baseline]
    is_baseline = taken.label == verdict.baseline
    if is_baseline and all(system.gain_high < 0 for system in others):
        return f"Take {named(taken.label)}: no other system that was measured is better."
    gain = "" if is_baseline else made_gain(verdict, taken)
    if not is_baseline and (verdict.recommendation.distinguishable or taken.made_low > 0):
        return f"Take {named(taken.label)}: {gain}, {cost(taken)}."
    equals = [system for system in verdict.finalists if system.gain_low <= 0 <= system.gain_high]
    cheapest = "the cheapest, which is " if all(taken.seconds <= system.seconds for system in equals) else ""
    measured = f", with {gain}" if gain else ""
    return f"Not distinguishable: take {cheapest}{named(taken.label)}, {cost(taken)}{measured}."


def made_gain(verdict: Verdict, one: SystemEstimate) -> str:
    """The gain of a finalist as it was measured on these documents, with its interval."""
    return (
        f"{signed(one.made_gain)} {verdict.measure} over {named(verdict.baseline)} on {verdict.queries.test:,} made "
        f"test queries of these documents ({made_interval(verdict, one)})"
    )


def cost(one: SystemEstimate) -> str:
    """The training time of a system, in words."""
    return "without any training" if one.training == "none" else f"for {duration(one.seconds)} of computing"


def certainty(verdict: Verdict) -> str:
    """Sentences on the certainty of the headline: the expected gain on people's queries, and its source."""
    shown, best_other = verdict.recommended, ""
    if shown.label == verdict.baseline:
        others = [system for system in verdict.finalists if system.label != verdict.baseline]
        if not others:
            return "No other system was measured on the test queries."
        shown = max(others, key=lambda system: system.gain)
        best_other = f"The best other system is {named(shown.label)}: {made_gain(verdict, shown)}, {cost(shown)}. "
    return f"{best_other}{expected_gain(verdict, shown)}"


def expected_gain(verdict: Verdict, one: SystemEstimate) -> str:
    """A sentence or two on the expected gain of a system on queries that people ask, and its source."""
    contains = ", which contains 0" if one.gain_low <= 0 <= one.gain_high else ""
    gain = f"{signed(one.gain)} for queries that people ask ({gain_interval_words(verdict, one)}{contains})"
    calibration = verdict.calibration
    if not calibration.collections:
        return f"Assumed is {gain}: no collection with judgements has been measured."
    return (
        f"Other collections ({', '.join(calibration.collections)}) suggest {gain}; such intervals covered "
        f"{percent(calibration.coverage)} of the judged gains there."
    )


def gain_interval_words(verdict: Verdict, one: SystemEstimate) -> str:
    """The interval of the expected gain in words, such as `90% interval +0.011 to +0.073`."""
    return f"{interval_level(verdict)} {signed(one.gain_low)} to {signed(one.gain_high)}"


def made_interval(verdict: Verdict, one: SystemEstimate) -> str:
    """The interval of the gain on made queries in words, such as `90% interval +0.011 to +0.073`."""
    return f"{interval_level(verdict)} {signed(one.made_low)} to {signed(one.made_high)}"


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
        f"Stated {level} intervals covered {percent(coverage)} of the judged gains." + _coverage_advice(found),
    ]
    return [*sentences, f"Source: {found.source}"] if found.source else sentences


def _coverage_advice(found: Calibration) -> str:
    """Advice if intervals are too narrow. Too wide ones give none: that needs more collections than were measured."""
    return " So they are narrower than they should be." if found.coverage < found.level - BEYOND else ""


def query_sentence(counts: QueryCounts) -> str:
    share = f" ({percent(counts.kept / counts.made)})" if counts.made else ""
    return (
        f"{counts.made:,} queries were made and {counts.kept:,}{share} kept: {counts.train:,} for training, "
        f"{counts.dev:,} for choosing (dev), {counts.test:,} for the figures (test)."
    )


def rank_words(rank: int | None) -> str:
    return "not found" if rank is None else f"rank {rank}"


def search_command(verdict: Verdict, folder: str = "") -> str:
    """The command that searches with the recommended system.

    Args:
        folder: of the verdict; none: that which it was written to.
    """
    return f"midmask search {shlex.quote(folder or verdict.folder or verdict.model)}"


def search_lines(verdict: Verdict, folder: str = "") -> list[str]:
    """The same as lines of Python."""
    return [
        "from midmask.choice.side_by_side import SideBySide",
        f"verdict = SideBySide({folder or verdict.folder or verdict.model!a})",
        'verdict.search(verdict.recommended, "a query", 10)',
    ]


def loader(representation: str) -> str | None:
    """The class of sentence-transformers that loads a model of this representation; None if there is none."""
    if representation.startswith("OT"):
        return None
    return "SparseEncoder" if representation.startswith("splade") else "SentenceTransformer"


def about_model(verdict: Verdict) -> str:
    """Sentences where the model is not the whole recommended system: another one's is delivered, or its list is joined
    with BM25's; else "".
    """
    taken, delivered = verdict.recommended, verdict.delivered
    sentences = []
    if delivered != taken:
        names = named(taken.label), named(delivered.label)
        sentences.append(f"{names[0]} has no model; the model here is that of {names[1]}, the best system with one.")
    if delivered.is_joined:
        sentences.append(
            f"The figures of {named(delivered.label)} are of the encoder's list joined with BM25's; the lines below "
            "load the encoder alone."
        )
    return " ".join(sentences)


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


GAINS = ("gain, made queries", "gain, people's queries")
"""Heads of the two columns of gains: as measured on these documents, and as expected for people's queries."""

LONGEST_PASSAGE = 600
"""Characters of an example's passage that are printed."""


def verdict_markdown(verdict: Verdict) -> str:
    """The whole verdict: the answer, the systems, the queries, how far to believe it, examples, and what it leaves out.

    Raises:
        UserError: if the recommended system is not among the verdict's systems.
    """
    parts = [
        f"# {text(verdict.corpus)}: which middle training?",
        f"**{text(headline(verdict))}** {text(certainty(verdict))}",
        text(verdict.recommendation.reason),
        "## Systems",
        systems_table(verdict, verdict.finalists),
        text(table_note(verdict)),
        *_given_up(verdict),
        "## Queries",
        f"{text(query_sentence(verdict.queries))} The corpus has {verdict.passages:,} passages.",
        markdown(
            ["source", "queries kept"],
            [[text(name), f"{count:,}"] for name, count in verdict.queries.source.items()],
        ),
        "## How far to believe it",
        text(" ".join(belief(verdict.calibration))),
        *_examples("Queries it wins", verdict.won),
        *_examples("Queries it loses", verdict.lost),
        *_not_tried(verdict),
        "## What this does not show",
        bullets(verdict.limits) or "No limits were recorded.",
        "## Use the model",
        *use(verdict),
        "## Make it again",
        code(verdict.command, "sh"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(value: str) -> str:
    """The text as Markdown that shows it, in one line."""
    return markdown_text(readable(value))


def code(content: str, language: str) -> str:
    """A fenced block; its fence is longer than any run of backticks in it."""
    runs = [len(found) for found in re.findall("`+", content)]
    fence = "`" * max([3, *(run + 1 for run in runs)])
    return f"{fence}{language}\n{readable(content)}\n{fence}"


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def systems_table(verdict: Verdict, systems: Sequence[SystemEstimate]) -> str:
    """A line for each system; gains with the ends of their intervals."""
    heads = ["rank", "system", "representation", *GAINS, "computing", "per passage"]
    rows = [
        [
            str(one.rank),
            f"**{text(one.system)}**" if one == verdict.recommended else text(one.system),
            text(one.representation),
            *gain_cells(verdict, one),
            duration(one.seconds),
            size(one.bytes_per_passage),
        ]
        for one in systems
    ]
    return markdown([text(head) for head in heads], rows)


def gain_cells(verdict: Verdict, one: SystemEstimate) -> tuple[str, str]:
    """The gains of `GAINS` with their intervals; `baseline` for the system that gains are over."""
    if one.label == verdict.baseline:
        return "baseline", "baseline"
    return (
        f"{signed(one.made_gain)} [{signed(one.made_low)}, {signed(one.made_high)}]",
        f"{signed(one.gain)} [{signed(one.gain_low)}, {signed(one.gain_high)}]",
    )


def table_note(verdict: Verdict) -> str:
    """A note on the numbers of the table."""
    known = verdict.calibration.collections
    source = f"from what {', '.join(known)} have shown" if known else "by assumption"
    return (
        f"Gains in {verdict.measure} over {named(verdict.baseline)}, with {interval_level(verdict)}s. "
        f"“{GAINS[0]}” is measured on the {verdict.queries.test:,} test queries that were made from these documents; "
        f"“{GAINS[1]}” is expected for queries that people ask, {source}, and systems stand in its order. "
        f"Computing: all trainings and the encoding of the collection. {budget(verdict)}"
    )


def given_up_note(verdict: Verdict) -> str:
    """A note on the systems that are not finalists."""
    return f"Given up before the test. These numbers are of the {verdict.queries.dev:,} dev queries."


def by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """Label -> why as labels -> why: those with one reason stand together."""
    found: dict[str, list[str]] = {}
    for label, why in reasons.items():
        found.setdefault(why, []).append(label)
    return {", ".join(labels): why for why, labels in found.items() if why}


def dropped(verdict: Verdict) -> dict[str, str]:
    """Labels of the systems that were given up -> why."""
    return by_reason({one.label: one.dropped for one in verdict.given_up})


def _given_up(verdict: Verdict) -> list[str]:
    if not verdict.given_up:
        return []
    why = bullets(f"{labels}: {reason}" for labels, reason in dropped(verdict).items())
    return ["### Given up early", text(given_up_note(verdict)), systems_table(verdict, verdict.given_up), why]


def _examples(title: str, examples: Sequence[Example]) -> list[str]:
    if not examples:
        return []
    return [f"## {title}", *(_example(one) for one in examples)]


def _example(one: Example) -> str:
    ranks = ", ".join(f"{label}: {rank_words(rank)}" for label, rank in one.ranks.items())
    passage = one.text if len(one.text) <= LONGEST_PASSAGE else one.text[:LONGEST_PASSAGE] + " …"
    title = f"**{text(one.title)}** " if one.title else ""
    return f"- {text(one.query)} ({text(one.source)}). Its passage is at {text(ranks)}.\n\n  > {title}{text(passage)}"


def _not_tried(verdict: Verdict) -> list[str]:
    if not verdict.not_tried:
        return []
    return ["## Not tried", bullets(f"{labels}: {why}" for labels, why in by_reason(verdict.not_tried).items())]


def use(verdict: Verdict, model: str | None = None, folder: str = "") -> list[str]:
    """How to search with the recommended system, and how to load its model.

    Args:
        model: see `loading_lines`. folder: of the verdict; none: that which it was written to.
    """
    if not verdict.model:
        return [f"{text(verdict.recommended.label)} has no model: nothing was trained for it."]
    lines = loading_lines(verdict, model)
    return [
        code(search_command(verdict, folder), "sh"),
        code("\n".join(search_lines(verdict, folder)), "python"),
        text(about_model(verdict)),
        code("\n".join(lines), "python") if lines else NO_LOADER,
    ]


TAGS = ("sentence-transformers", "feature-extraction", "midmask")

MODEL, FOLDER = ".", ".."
"""The model's and the verdict's folder as the card names them: as seen from the model's, since folders are moved."""

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TITLE = re.compile(r"\A\s*# [^\n]*\n")


def model_card(verdict: Verdict, folder_card: str = "") -> str:
    """The text of README.md in `model/`.

    Args:
        folder_card: README.md that the training wrote into that folder. What it says of views, libraries and origin is
            kept, under a heading of its own.

    Raises:
        UserError: if the recommended system is not among the verdict's systems.
    """
    taken = verdict.delivered
    shown = (taken, verdict.recommended)
    found = loader(taken.representation)
    inherited = _TITLE.sub("", _FRONT_MATTER.sub("", folder_card)).strip()
    parts = [
        _front_matter(found),
        f"# {text(taken.label)}, {text(_origin(verdict))}",
        f"Chosen by midmask from {len(verdict.systems)} systems, without labelled queries. "
        f"{text(headline(verdict))} {text(certainty(verdict))}",
        "## How to load",
        *use(verdict, MODEL, FOLDER),
        "The model's folder is `.` here and the verdict's is `..`; nothing is fetched from a network.",
        "## Data",
        f"{verdict.passages:,} passages of {text(verdict.corpus)}. {text(query_sentence(verdict.queries))} "
        "Nobody asked these queries: they were made from the passages.",
        bullets(f"{name}: {count:,}" for name, count in verdict.queries.source.items()),
        "## Method and protocol",
        f"System {text(taken.system)}, representation {text(taken.representation)}. {text(_method(verdict))} Systems "
        f"were given up by dev queries; the figures are of test queries. {text(verdict.recommendation.reason)}",
        "## Figures",
        systems_table(verdict, [one for one in verdict.finalists if one in shown or one.label == verdict.baseline]),
        text(table_note(verdict)),
        text(" ".join(belief(verdict.calibration))),
        "## Limits",
        bullets(verdict.limits) or "No limits were recorded.",
        *(["## The folder", inherited] if inherited else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _origin(verdict: Verdict) -> str:
    """Whether the model was trained on the documents or only chosen for them."""
    if verdict.delivered.training == "none":
        return f"chosen for {verdict.corpus}, not trained on it"
    return f"trained on {verdict.corpus}"


def _method(verdict: Verdict) -> str:
    if verdict.delivered.training == "none":
        return "Its weights are those that all systems start from, unchanged."
    return f"Training on these documents: {verdict.delivered.training}. All trained systems had the same queries."


def _front_matter(loader: str | None) -> str:
    """Tags of the model as YAML. Without a loader it is not one of sentence-transformers."""
    tags = [tag for tag in TAGS if loader or tag != "sentence-transformers"]
    tags += ["sparse-encoder"] if loader == "SparseEncoder" else []
    lines = [f"library_name: {'sentence-transformers' if loader else 'transformers'}", "tags:"]
    lines += [f"- {tag}" for tag in tags]
    return "\n".join(["---", *lines, "pipeline_tag: feature-extraction", "---"])
