"""A verdict as Markdown: `verdict.md`."""

import re
from collections.abc import Iterable, Mapping, Sequence

from midmask.choice import wording
from midmask.choice.verdict import Example, SystemEstimate, Verdict
from midmask.choice.wording import duration, signed
from midmask.evaluation.escaping import markdown_text
from midmask.evaluation.rendering import markdown

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
    """A line for each system; gains with the ends of their intervals."""
    heads = ["rank", "system", "representation", *GAINS, "computing", "per passage"]
    rows = [
        [
            str(one.rank),
            f"**{text(one.system)}**" if one == verdict.recommended else text(one.system),
            text(one.representation),
            *gain_cells(verdict, one),
            duration(one.seconds),
            wording.size(one.bytes_per_passage),
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
    """What the table's numbers are."""
    known = verdict.calibration.collections
    source = f"from what {', '.join(known)} have shown" if known else "by assumption"
    return (
        f"Gains in {verdict.measure} over {wording.named(verdict.baseline)}, with {wording.interval_level(verdict)}s. "
        f"“{GAINS[0]}” is measured on the {verdict.queries.test:,} test queries that were made from these documents; "
        f"“{GAINS[1]}” is expected for queries that people ask, {source}, and systems stand in its order. "
        f"Computing: all trainings and the encoding of the collection. {wording.budget(verdict)}"
    )


def given_up_note(verdict: Verdict) -> str:
    """What was done with the systems that are not finalists."""
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
    ranks = ", ".join(f"{label}: {wording.rank_words(rank)}" for label, rank in one.ranks.items())
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
        model: see `wording.loading_lines`. folder: of the verdict; none: that which it was written to.
    """
    if not verdict.model:
        return [f"{text(verdict.recommended.label)} has no model: nothing was trained for it."]
    lines = wording.loading_lines(verdict, model)
    return [
        code(wording.search_command(verdict, folder), "sh"),
        code("\n".join(wording.search_lines(verdict, folder)), "python"),
        text(wording.about_model(verdict)),
        code("\n".join(lines), "python") if lines else wording.NO_LOADER,
    ]
