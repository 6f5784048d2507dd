"""A verdict as Markdown: `verdict.md`."""

import re
from collections.abc import Iterable, Sequence

from midmask.choice import wording
from midmask.choice.verdict import Example, SystemEstimate, Verdict
from midmask.choice.wording import duration, score, signed
from midmask.evaluation.escaping import markdown_text
from midmask.evaluation.rendering import markdown

LONGEST_PASSAGE = 600
"""Characters of an example's passage that are printed."""


def verdict_markdown(verdict: Verdict) -> str:
    """The whole verdict: the answer, the systems, the queries, how far to believe it, examples, and what it leaves out.

    Raises:
        UserError: if the recommended system is not among the verdict's systems.
    """
    parts = [
        f"# {text(verdict.corpus)}: which middle training?",
        f"**{text(wording.headline(verdict))}** {text(wording.certainty(verdict))}",
        text(verdict.recommendation.reason),
        "## Systems",
        systems_table(verdict, verdict.finalists),
        text(table_note(verdict)),
        *_given_up(verdict),
        "## Queries",
        f"{text(wording.query_sentence(verdict.queries))} The corpus has {verdict.passages:,} passages.",
        markdown(
            ["source", "queries kept"],
            [[text(name), f"{count:,}"] for name, count in verdict.queries.source.items()],
        ),
        "## How far to believe it",
        text(" ".join(wording.belief(verdict.calibration))),
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
    return markdown_text(wording.readable(value))


def code(content: str, language: str) -> str:
    """A fenced block; its fence is longer than any run of backticks in it."""
    runs = [len(found) for found in re.findall("`+", content)]
    fence = "`" * max([3, *(run + 1 for run in runs)])
    return f"{fence}{language}\n{wording.readable(content)}\n{fence}"


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def systems_table(verdict: Verdict, systems: Sequence[SystemEstimate]) -> str:
    """A line for each system; values with the ends of their intervals."""
    heads = ["rank", "system", "representation", verdict.measure, "gain", "computing", "per passage"]
    rows = [
        [
            str(one.rank),
            f"**{text(one.system)}**" if one == verdict.recommended else text(one.system),
            text(one.representation),
            f"{score(one.estimate)} [{score(one.low)}, {score(one.high)}]",
            gain_cell(verdict, one),
            duration(one.seconds),
            wording.size(one.bytes_per_passage),
        ]
        for one in systems
    ]
    return markdown([text(head) for head in heads], rows)


def gain_cell(verdict: Verdict, one: SystemEstimate) -> str:
    """The gain with its interval; `baseline` for the system that gains are over."""
    if one.label == verdict.baseline:
        return "baseline"
    return f"{signed(one.gain)} [{signed(one.gain_low)}, {signed(one.gain_high)}]"


def table_note(verdict: Verdict) -> str:
    """What the table's numbers are."""
    return (
        f"{verdict.measure} as estimated for queries that people would ask, from {verdict.queries.test:,} test "
        f"queries. In brackets: {wording.interval_level(verdict)}s. Gains are over {wording.named(verdict.baseline)}. "
        f"Computing: all trainings and the encoding of the collection. {wording.budget(verdict)}"
    )


def given_up_note(verdict: Verdict) -> str:
    """What was done with the systems that are not finalists."""
    return f"Given up before the test. These numbers are of the {verdict.queries.dev:,} dev queries."


def _given_up(verdict: Verdict) -> list[str]:
    if not verdict.given_up:
        return []
    return ["### Given up early", text(given_up_note(verdict)), systems_table(verdict, verdict.given_up)]


def _examples(title: str, examples: Sequence[Example]) -> list[str]:
    if not examples:
        return []
    return [f"## {title}", *(_example(one) for one in examples)]


def _example(one: Example) -> str:
    ranks = ", ".join(f"{label}: {wording.rank_words(rank)}" for label, rank in one.ranks.items())
    passage = one.text if len(one.text) <= LONGEST_PASSAGE else one.text[:LONGEST_PASSAGE] + " …"
    title = f"**{text(one.title)}** " if one.title else ""
    return f"- {text(one.query)} ({text(one.source)}). Its passage is at {text(ranks)}.\n\n  > {title}{text(passage)}"


def _not_tried(verdict: Verdict) -> list[str]:
    if not verdict.not_tried:
        return []
    return ["## Not tried", bullets(f"{label}: {why}" for label, why in verdict.not_tried.items())]


def use(verdict: Verdict, model: str | None = None) -> list[str]:
    """How to search with the model and how to load it; see `wording.loading_lines` for `model`."""
    if not verdict.model:
        return [f"{text(verdict.recommended.label)} has no model: nothing was trained for it."]
    lines = wording.loading_lines(verdict, model)
    shell = code(wording.search_command(verdict), "sh")
    other = [text(found)] if (found := wording.other_model(verdict)) else []
    return [shell, *other, code("\n".join(lines), "python") if lines else wording.NO_LOADER]
