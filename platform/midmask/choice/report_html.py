"""A verdict as one HTML file: no scripts, no requests, readable on a phone and in the dark.

All texts pass through `text`, which escapes them: names, queries and passages come from documents that nobody checked.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

from midmask.choice import wording
from midmask.choice.highlight import excerpt, highlight, marked_html
from midmask.choice.picture import NARROW, WIDE, drawable, front, picture
from midmask.choice.report_style import style_sheet
from midmask.choice.report_text import GAINS, by_reason, dropped, given_up_note, table_note
from midmask.choice.verdict import Example, SystemEstimate, Verdict
from midmask.choice.wording import duration, signed

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

OPEN_EXAMPLES = 3
"""Examples of each kind that are shown at once; the others open on demand."""


def verdict_html(verdict: Verdict) -> str:
    """The whole page.

    Raises:
        UserError: if the recommended system is not among the verdict's systems.
    """
    sections = [
        _opening(verdict),
        _systems(verdict),
        _picture(verdict),
        _examples("Queries it wins", "won", verdict.won),
        _examples("Queries it loses", "lost", verdict.lost),
        _limits(verdict),
        _belief(verdict),
        _queries(verdict),
        _use(verdict),
    ]
    title = text(f"{verdict.corpus}: which middle training?")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{style_sheet()}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def text(value: str) -> str:
    """The text, escaped for content and for attributes."""
    return escape(wording.readable(value))


def _unbroken(value: str) -> str:
    """A sentence as `text`, in which no line ends between a number and its unit."""
    return re.sub(
        r"(?<=\d) (?=(?:s|min|h|days)\b)|(?<=\d h) (?=\d)|(?<=\d min) (?=\d)", "\N{NO-BREAK SPACE}", text(value)
    )


def _opening(verdict: Verdict) -> str:
    taken = verdict.recommended
    made, expected = ("baseline", "what gains are over"), ("baseline", "what gains are over")
    if taken.label != verdict.baseline:
        made = signed(taken.made_gain), wording.made_interval(verdict, taken)
        expected = signed(taken.gain), wording.gain_interval_words(verdict, taken)
    spent = f"{duration(verdict.spent_seconds)} of {duration(verdict.budget_seconds)} spent on all"
    training = "nothing was trained for it; " if taken.training == "none" else ""
    facts = [
        (f"Gain in {verdict.measure}, {verdict.queries.test:,} made queries", *made),
        ("Gain expected for people's queries", *expected),
        ("Computing", duration(taken.seconds), f"{training}{spent}"),
        ("Index", wording.size(taken.bytes_per_passage), "per passage"),
    ]
    shown = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)} <small>{text(more)}</small></dd></div>"
        for name, value, more in facts
    )
    reason = f"<p>{text(verdict.recommendation.reason)}</p>" if verdict.recommendation.reason else ""
    return (
        f'<header>\n<p class="kicker"><bdi>{text(verdict.corpus)}</bdi>, {verdict.passages:,} passages: which middle '
        f"training?</p>\n<h1>{_unbroken(wording.headline(verdict))}</h1>\n"
        f'<p class="lede">{_unbroken(wording.certainty(verdict))}</p>\n{reason}'
        f'<dl class="facts">{shown}</dl>\n</header>\n'
    )


def _section(title: str, *content: str) -> str:
    return f"<section>\n<h2>{text(title)}</h2>\n{''.join(content)}</section>\n"


def _systems(verdict: Verdict) -> str:
    rest = ""
    if verdict.given_up:
        table = systems_table(verdict, verdict.given_up, given_up_note(verdict))
        many = "1 system" if len(verdict.given_up) == 1 else f"{len(verdict.given_up)} systems"
        why = _list(f"<b><bdi>{text(labels)}</bdi></b>: {text(one)}" for labels, one in dropped(verdict).items())
        rest = f"<details><summary>{many} given up before the test</summary>{table}{why}</details>\n"
    return _section(
        "Systems", systems_table(verdict, verdict.finalists, table_note(verdict)), rest, _not_tried(verdict)
    )


def systems_table(verdict: Verdict, systems: Sequence[SystemEstimate], note: str) -> str:
    """A row for each system. Roles are written out because small screens show rows as blocks, which hides them."""
    heads = ["Rank", "System", *(name.capitalize() for name in GAINS), "Computing", "Per passage"]
    head = "".join(
        f'<th role="columnheader" scope="col"{" class=name" if at == 1 else ""}>{text(name)}</th>'
        for at, name in enumerate(heads)
    )
    rows = "".join(_row(verdict, one, heads[2:]) for one in systems)
    return (
        f'<table class="systems" role="table"><caption>{text(note)}</caption><thead role="rowgroup">'
        f'<tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">{rows}</tbody></table>\n'
    )


def _row(verdict: Verdict, one: SystemEstimate, names: Sequence[str]) -> str:
    taken, baseline = one == verdict.recommended, one.label == verdict.baseline
    gains = [(one.made_gain, one.made_low, one.made_high), (one.gain, one.gain_low, one.gain_high)]
    cells = [
        *("baseline" if baseline else _with_ends(*map(signed, gain)) for gain in gains),
        text(duration(one.seconds)),
        text(wording.size(one.bytes_per_passage)),
    ]
    shown = "".join(
        f'<td role="cell" data-label="{text(name)}"><span>{cell}</span></td>'
        for name, cell in zip(names, cells, strict=True)
    )
    tag = ' <span class="tag">take this</span>' if taken else ""
    return (
        f'<tr role="row"{" class=taken" if taken else ""}><td role="cell">{one.rank}</td>'
        f'<th role="rowheader" scope="row" class="name"><bdi>{text(one.label)}</bdi>{tag}</th>{shown}</tr>\n'
    )


def _with_ends(value: str, low: str, high: str) -> str:
    return f"{value} <small>[{low}, {high}]</small>"


def _not_tried(verdict: Verdict) -> str:
    if not verdict.not_tried:
        return ""
    items = [f"<b><bdi>{text(labels)}</bdi></b>: {text(why)}" for labels, why in by_reason(verdict.not_tried).items()]
    return f"<details><summary>Not tried ({len(verdict.not_tried)})</summary>{_list(items)}</details>\n"


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>\n"


def _picture(verdict: Verdict) -> str:
    if not drawable(verdict):
        return ""
    (wide, unnamed), (narrow, more) = picture(verdict, WIDE), picture(verdict, NARROW)
    if verdict.recommended.label == verdict.baseline:
        keys = [("taken", "recommended, and the baseline")]
    else:
        keys = [("taken", "recommended"), ("baseline", "baseline")]
    keys += [("finalist", "other finalists")]
    keys += [("given-up wide", "given up early, on dev queries")] if verdict.given_up else []
    keys += [("front", "no finalist gains more for less")] if len(front(verdict)) > 1 else []
    legend = "".join(
        f'<span{" class=wide" if "wide" in kind else ""}><i class="key {kind}"></i>{name}</span> '
        for kind, name in keys
    )
    left_out = [one.label for one in verdict.systems if one not in drawable(verdict)]
    bars = f"Bars are {wording.interval_level(verdict)}s."
    lost = f" Not drawn, since a number is not known: {', '.join(left_out)}." if left_out else ""
    return _section(
        "Gain against cost",
        f'<figure>{wide}{narrow}<figcaption><p class="keys">{legend}</p><p>{text(bars + lost)}'
        f'<span class="wide">{text(_without_label(unnamed))}</span>'
        f'<span class="narrow">{text(_without_label(more))}</span></p></figcaption></figure>\n',
    )


def _without_label(systems: Sequence[SystemEstimate]) -> str:
    names = ", ".join(one.label for one in systems)
    return f" Without a label, for lack of room: {names}." if systems else ""


def _examples(title: str, kind: str, examples: Sequence[Example]) -> str:
    if not examples:
        return ""
    shown = [_example(kind, one) for one in examples]
    rest = "".join(shown[OPEN_EXAMPLES:])
    more = f"<details><summary>{len(shown) - OPEN_EXAMPLES} more</summary>{rest}</details>\n" if rest else ""
    return _section(title, *shown[:OPEN_EXAMPLES], more)


def _example(kind: str, one: Example) -> str:
    ranks = "".join(
        f"<div><dt><bdi>{text(label)}</bdi></dt><dd>{wording.rank_words(rank)}</dd></div>"
        for label, rank in one.ranks.items()
    )
    title = f"<b><bdi>{marked_html(highlight(one.title, one.query), text)}</bdi></b> " if one.title else ""
    found = excerpt(one.text, one.query)
    before, after = "… " if found.before else "", " …" if found.after else ""
    passage = f"{title}{before}<bdi>{marked_html(found.parts, text)}</bdi>{after}"
    whole = ""
    if found.before or found.after:
        content = marked_html(highlight(one.text, one.query), text)
        content = f"<blockquote><p><bdi>{content}</bdi></p></blockquote>"
        whole = f"<details><summary>The whole passage</summary>{content}</details>"
    return (
        f'<article class="{kind}"><h3><bdi>{text(one.query)}</bdi></h3><dl class="ranks">{ranks}'
        f"<div><dt>made from</dt><dd>{text(one.source)}</dd></div></dl>"
        f"<blockquote><p>{passage}</p></blockquote>{whole}</article>\n"
    )


def _limits(verdict: Verdict) -> str:
    return _section(
        "What this does not show",
        _list(map(text, verdict.limits)) if verdict.limits else "<p>No limits were recorded.</p>\n",
    )


def _belief(verdict: Verdict) -> str:
    return _section("How far to believe it", *(f"<p>{text(one)}</p>\n" for one in wording.belief(verdict.calibration)))


def _queries(verdict: Verdict) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="name"><bdi>{text(name)}</bdi></th><td>{count:,}</td></tr>'
        for name, count in verdict.queries.source.items()
    )
    return _section(
        "The queries",
        f"<p>{text(wording.query_sentence(verdict.queries))}</p>\n"
        '<table class="narrow"><thead><tr><th scope="col" class="name">Made from</th><th scope="col">Queries kept</th>'
        f"</tr></thead><tbody>{rows}</tbody></table>\n",
    )


def _use(verdict: Verdict) -> str:
    again = _code(verdict.command)
    if not verdict.model:
        use = f"<p>{text(verdict.recommended.label)} has no model: nothing was trained for it.</p>\n"
    else:
        lines = wording.loading_lines(verdict)
        python = _code("\n".join(lines)) if lines else f"<p>{wording.NO_LOADER}</p>\n"
        about = f"<p>{text(sentence)}</p>\n" if (sentence := wording.about_model(verdict)) else ""
        search = _code(wording.search_command(verdict)) + _code("\n".join(wording.search_lines(verdict)))
        use = search + about + python
    return _section("Use the model", use) + _section("Make it again", again)


def _code(content: str) -> str:
    return f"<pre><code>{text(content)}</code></pre>\n"
