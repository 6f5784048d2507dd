"""A verdict as verdict.html, as verdict.md, and as the model's README.md: sentences here, their order in templates.

All three print the same sentences. Texts that come from documents may hold anything: HTML is escaped by Jinja, Markdown
by `md`, and `readable` marks what no file can hold. The model's README.md is what its training wrote, which says what
loads it, and below that what the model was chosen from and by what.
"""

import math
import re
import shlex
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader

from midmask.choice.picture import picture
from midmask.choice.verdict import Calibration, QueryCounts, SystemEstimate, Verdict
from midmask.core.words import NOT_KNOWN, duration, size
from midmask.evaluation.rendering import markdown, markdown_text

MINUS = "\N{MINUS SIGN}"
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


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


def interval_level(verdict: Verdict) -> str:
    """Such as `90% interval`."""
    return f"{verdict.calibration.level:.0%} interval"


def named(label: str) -> str:
    """A system's name in a sentence: without marks, one such as `as it is · dense` would read as words of it."""
    return f"“{label}”"


def headline(verdict: Verdict) -> str:
    """The answer in a sentence or two: whether a middle training was compared, which system to take, what it gains on
    the made test queries and what it costs.
    """
    is_compared = any(system.training == "middle training" for system in verdict.systems)
    is_lacking = verdict.not_tried and not is_compared
    return ("No middle training was compared: “Not tried” says why. " if is_lacking else "") + _advice(verdict)


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


def made_gain(verdict: Verdict, system: SystemEstimate) -> str:
    """The gain of a finalist as it was measured on these documents, with its interval."""
    return (
        f"{signed(system.made_gain)} {verdict.measure} over {named(verdict.baseline)} on {verdict.queries.test:,} made "
        f"test queries of these documents ({interval_words(verdict, system.made_low, system.made_high)})"
    )


def cost(system: SystemEstimate) -> str:
    """The training time of a system, in words."""
    return "without any training" if system.training == "none" else f"for {duration(system.seconds)} of computing"


def certainty(verdict: Verdict) -> str:
    """Sentences on the certainty of the headline: the expected gain on people's queries, and its source."""
    shown, best_other = verdict.recommended, ""
    if shown.label == verdict.baseline:
        others = [system for system in verdict.finalists if system.label != verdict.baseline]
        if not others:
            return "No other system was measured on the test queries."
        shown = max(others, key=lambda system: system.gain)
        best_other = f"The best other system is {named(shown.label)}: {made_gain(verdict, shown)}, {cost(shown)}. "
    contains = ", which contains 0" if shown.gain_low <= 0 <= shown.gain_high else ""
    bounds = interval_words(verdict, shown.gain_low, shown.gain_high)
    known = verdict.calibration
    return (
        f"{best_other}Other collections ({', '.join(known.collections)}) suggest {signed(shown.gain)} for queries that "
        f"people ask ({bounds}{contains}); such intervals covered {known.coverage:.0%} of the judged gains there."
    )


def interval_words(verdict: Verdict, low: float, high: float) -> str:
    """Such as `90% interval +0.011 to +0.073`."""
    return f"{interval_level(verdict)} {signed(low)} to {signed(high)}"


def belief(known: Calibration) -> list[str]:
    """How far to believe the verdict: what the calibration shows, in sentences."""
    tau = known.kendall_tau
    return [
        f"On {len(known.collections)} collections with judgements ({', '.join(known.collections)}), verdicts were made "
        "without looking at these.",
        f"The rankings agreed with a Kendall's tau of {score(tau)}: without ties, {(1 + tau) / 2:.0%} of all "
        "pairs of systems stand in the same order.",
        f"Stated {known.level:.0%} intervals covered {known.coverage:.0%} of the judged gains.",
        f"Source: {known.source}",
    ]


def query_sentence(counts: QueryCounts) -> str:
    share = f" ({counts.kept / counts.made:.0%})" if counts.made else ""
    return (
        f"{counts.made:,} queries were made and {counts.kept:,}{share} kept: {counts.train:,} for training, "
        f"{counts.dev:,} for choosing (dev), {counts.test:,} for the figures (test)."
    )


def about_model(verdict: Verdict) -> str:
    """Sentences where the delivered model is less than the recommended system; else ""."""
    taken, delivered = verdict.recommended, verdict.delivered
    if not verdict.model:
        return f"{named(taken.label)} has no model: nothing was trained for it."
    sentences = []
    if delivered != taken:
        names = named(taken.label), named(delivered.label)
        sentences.append(f"{names[0]} has no model; the model here is that of {names[1]}, the best system with one.")
    if delivered.joined:
        sentences.append(
            f"The figures of {named(delivered.label)} are of the encoder's list joined with BM25's; the model is the "
            "encoder alone."
        )
    return " ".join(sentences)


GAINS = ("gain, made queries", "gain, people's queries")
"""Heads of the two columns of gains: as measured on these documents, and as expected for people's queries."""


def md(value: str) -> str:
    """The text as Markdown that shows it, in one line."""
    return markdown_text(readable(value))


def code(content: str, language: str) -> str:
    """A fenced block; its fence is longer than any run of backticks in it."""
    runs = [len(run) for run in re.findall("`+", content)]
    fence = "`" * max([3, *(run + 1 for run in runs)])
    return f"{fence}{language}\n{readable(content)}\n{fence}"


def systems_table(verdict: Verdict, systems: Sequence[SystemEstimate]) -> str:
    """A line for each system; gains with the ends of their intervals."""
    heads = ["rank", "system", "representation", *GAINS, "computing", "per passage"]
    rows = [
        [
            str(system.rank),
            f"**{md(system.system)}**" if system == verdict.recommended else md(system.system),
            md(system.representation),
            *gain_cells(verdict, system),
            duration(system.seconds),
            size(system.bytes_per_passage),
        ]
        for system in systems
    ]
    return markdown([md(head) for head in heads], rows)


def gain_cells(verdict: Verdict, system: SystemEstimate) -> tuple[str, str]:
    """The gains of `GAINS` with their intervals; `baseline` for the system that gains are over."""
    if system.label == verdict.baseline:
        return "baseline", "baseline"
    return (
        f"{signed(system.made_gain)} [{signed(system.made_low)}, {signed(system.made_high)}]",
        f"{signed(system.gain)} [{signed(system.gain_low)}, {signed(system.gain_high)}]",
    )


def table_note(verdict: Verdict) -> str:
    """A note on the numbers of the table."""
    source = f"from what {', '.join(verdict.calibration.collections)} have shown"
    return (
        f"Gains in {verdict.measure} over {named(verdict.baseline)}, with {interval_level(verdict)}s. "
        f"“{GAINS[0]}” is measured on the {verdict.queries.test:,} test queries that were made from these documents; "
        f"“{GAINS[1]}” is expected for queries that people ask, {source}, and systems stand in its order. "
        "Computing: all trainings and the encoding of the collection. "
        f"{duration(verdict.spent_seconds)} of a budget of {duration(verdict.budget_seconds)} were spent."
    )


HEADS = ("Rank", "System", *(name.capitalize() for name in GAINS), "Computing", "Per passage")

WIDE, NARROW = ("wide", 900, 420), ("narrow", 358, 400)
"""Name, width and height of the pictures; the narrow one has room for the finalists alone."""


def _printable(value: object) -> object:
    return readable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("midmask.choice"),
        autoescape=lambda name: name is not None and ".html" in name,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    sentences = (headline, certainty, table_note, belief, query_sentence)
    functions = (*sentences, about_model, interval_level, systems_table)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals["heads"] = HEADS
    filters = (md, signed, duration, size)
    environment.filters |= {function.__name__: function for function in filters}
    environment.filters |= {"fenced": code, "thousands": "{:,}".format, "quote": shlex.quote}
    return environment


TEMPLATES = _templates()


def verdict_html(verdict: Verdict) -> str:
    """The page: the answer, the systems, the picture, and what it leaves out."""
    canvases = (WIDE, verdict.systems), (NARROW, verdict.finalists)
    return TEMPLATES.get_template("verdict.html.jinja").render(
        verdict=verdict,
        taken=verdict.recommended,
        pictures=[(*canvas, picture(verdict, systems, *canvas[1:])) for canvas, systems in canvases],
    )


def _markdown(name: str, verdict: Verdict, **more: object) -> str:
    """The text of a template, in which blank lines are single."""
    return re.sub(r"\n{3,}", "\n\n", TEMPLATES.get_template(name).render(verdict=verdict, **more)).strip() + "\n"


def verdict_markdown(verdict: Verdict) -> str:
    """The whole verdict: the answer, the systems, the queries, how far to believe it, and what is left out."""
    rows = [[md(name), f"{count:,}"] for name, count in verdict.queries.source.items()]
    return _markdown("verdict.md.jinja", verdict, sources_table=markdown(["source", "queries kept"], rows))


def model_card(verdict: Verdict, folder_card: str = "") -> str:
    """The text of README.md in `model/`: what the training wrote there, and what the model was chosen by.

    Args:
        folder_card: README.md that the training wrote into that folder.
    """
    shown = (verdict.delivered, verdict.recommended)
    finalists = [system for system in verdict.finalists if system in shown or system.label == verdict.baseline]
    return _markdown("card.md.jinja", verdict, folder_card=folder_card.strip(), shown=finalists)
