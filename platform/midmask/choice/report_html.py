"""A verdict as one HTML file: no scripts, no requests, readable on a phone and in the dark.

All texts pass through `text`, which escapes them: names, queries and passages come from documents that nobody checked.
The words of a query are marked in its passages (`excerpt`), here and on the page of searches.

Colours are of Okabe and Ito (2008), which colour-blind readers tell apart. Text has a contrast of 4.5 or more with what
it stands on, shapes one of 3 or more (WCAG 2.2, AA).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from midmask.choice import report_text
from midmask.choice.picture import NARROW, WIDE, drawable, front, picture
from midmask.choice.report_text import GAINS, by_reason, dropped, given_up_note, signed, table_note
from midmask.choice.verdict import Example, SystemEstimate, Verdict
from midmask.core.words import duration, size
from midmask.queries.plain_sources import FUNCTION_WORDS
from midmask.retrieve.bm25.words import WORD

LIGHT = {
    "paper": "#fdfcf9",
    "panel": "#f4f2ec",
    "ink": "#1d1f23",
    "quiet": "#5a5e66",
    "line": "#dcd8cf",
    "mark": "#fbe3ab",
    "accent": "#0072b2",
    "front": "#009e73",
    "base": "#d55e00",
    "other": "#5a5e66",
}

DARK = {
    "paper": "#14161a",
    "panel": "#1d2026",
    "ink": "#ebe8e1",
    "quiet": "#abb0b8",
    "line": "#383c44",
    "mark": "#5e4300",
    "accent": "#56b4e9",
    "front": "#009e73",
    "base": "#e69f00",
    "other": "#abb0b8",
}


def style_sheet() -> str:
    """The text of the page's only `<style>`."""
    light, dark = (" ".join(f"--{name}: {value};" for name, value in each.items()) for each in (LIGHT, DARK))
    return (
        f":root {{color-scheme: light dark; {light}}}\n@media (prefers-color-scheme: dark) {{:root {{{dark}}}}}\n"
        + (f"{PAGE}{TABLE}{PICTURE}{EXAMPLES}{SMALL}")
    )


PAGE = """
* {box-sizing: border-box;}
html {-webkit-text-size-adjust: 100%; text-size-adjust: 100%;}
body {margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.6 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere;}
main {max-width: 62rem; margin: 0 auto; padding: 4.5rem 2rem 6rem;}
h1, h2, h3 {text-wrap: balance;}
h1 {font: 500 clamp(1.7rem, 1.1rem + 2.3vw, 2.75rem)/1.2 ui-serif, "Iowan Old Style", Charter, Georgia, serif;
  letter-spacing: -.012em; margin: 0 0 1.25rem; max-width: 26em;}
h2 {font: 500 1.5rem/1.25 ui-serif, "Iowan Old Style", Charter, Georgia, serif; margin: 4rem 0 1rem;}
h3 {font-size: 1rem; font-weight: 600; margin: 2rem 0 .5rem;}
p, ul, dl, figure {margin: 0 0 1rem;}
p, li {max-width: 44rem;}
.kicker {font-size: .875rem; color: var(--quiet); margin-bottom: 1.25rem;}
.lede {font-size: 1.15rem; line-height: 1.55;}
.note, figcaption {font-size: .875rem; color: var(--quiet); max-width: 48rem;}
ul {padding-left: 1.2rem;}
li {margin-bottom: .35rem;}
.facts {display: grid; grid-template-columns: repeat(4, 1fr); gap: 1px; background: var(--line);
  border: solid var(--line); border-width: 1px 0; margin: 2.5rem 0 0;}
.facts div {background: var(--paper); padding: 1rem 1rem 1rem 0;}
.facts div + div {padding-left: 1.25rem;}
dt {font-size: .8125rem; color: var(--quiet);}
dd {margin: 0; font-variant-numeric: tabular-nums;}
.facts dd {font-size: 1.35rem; line-height: 1.3;}
.facts dd small {display: block; font-size: .8125rem; color: var(--quiet);}
pre {background: var(--panel); border-radius: .5rem; padding: .9rem 1.1rem; overflow-x: auto; max-width: 100%;
  font: .875rem/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap; margin: 0 0 1rem;}
details {border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); margin: 1.5rem 0;}
details + details {border-top: 0; margin-top: -1.5rem;}
summary {cursor: pointer; padding: .75rem 0; color: var(--accent);}
summary:focus-visible, pre:focus-visible {outline: 2px solid var(--accent); outline-offset: 2px;}
"""

TABLE = """
table {border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9375rem;
  margin: 0 0 1rem;}
caption {text-align: left; font-size: .875rem; color: var(--quiet); padding-bottom: .5rem;}
th, td {text-align: right; padding: .6rem 0 .6rem 1.25rem; border-bottom: 1px solid var(--line);
  vertical-align: baseline; font-weight: 400;}
thead th {font-size: .8125rem; color: var(--quiet); border-bottom-color: var(--quiet); vertical-align: bottom;}
th:first-child, td:first-child {padding-left: 0; width: 2.2rem; text-align: left;}
th.name, td.name {text-align: left;}
tbody th {font-weight: 500;}
td small {display: block; color: var(--quiet); font-size: .8125rem;}
.systems td {white-space: nowrap;}
tr.taken th, tr.taken td:first-child {font-weight: 700; color: var(--accent);}
.tag {font-size: .75rem; font-weight: 500; border: 1px solid currentColor; border-radius: 1rem; padding: .05rem .5rem;
  margin-left: .4rem; white-space: nowrap;}
table.narrow {width: auto; min-width: 18rem;}
table.narrow th:first-child {width: auto;}
"""

PICTURE = """
figure {margin: 0 0 1rem;}
svg.picture {display: block; width: 100%; height: auto; overflow: visible;}
svg.narrow, span.narrow {display: none;}
svg text {fill: var(--ink);}
svg .tick, svg .axis {fill: var(--quiet); font-size: .92em;}
svg .axis {font-weight: 500;}
.grid {stroke: var(--line); stroke-width: 1;}
.break {fill: none; stroke: var(--quiet); stroke-width: 1.2;}
.zero {stroke: var(--quiet); stroke-width: 1;}
.front {fill: none; stroke: var(--front); stroke-width: 2; stroke-linejoin: round; opacity: .9;}
.bar {stroke: var(--other); stroke-width: 1.6; stroke-linecap: round;}
.bar.taken {stroke: var(--accent); stroke-width: 2.4;}
.bar.baseline {stroke: var(--base);}
.bar.given-up {stroke-width: 1; stroke-dasharray: 2 3;}
.point circle, .point rect {stroke: var(--paper); stroke-width: 1.5; fill: var(--other);}
.point.taken circle {fill: var(--accent);}
.point.baseline rect {fill: var(--base);}
.point.given-up circle {fill: var(--paper); stroke: var(--other);}
.leader {stroke: var(--quiet); stroke-width: .8;}
svg .label {paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round;}
svg .label.taken {fill: var(--accent); font-weight: 700;}
svg .label.given-up {fill: var(--quiet);}
.key {display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin: 0 .3em 0 0;
  background: var(--other);}
.key.taken {background: var(--accent);}
.key.baseline {background: var(--base); border-radius: 0;}
.key.given-up {background: none; border: 1.5px solid var(--other);}
.key.front {background: var(--front); height: .2em; width: 1.2em; border-radius: 0; vertical-align: middle;
  opacity: 1;}
figcaption p {margin: .4rem 0 0;}
.keys span {white-space: nowrap; margin-right: 1.2em;}
"""

EXAMPLES = """
article {border-left: 3px solid var(--line); padding: .1rem 0 .1rem 1.25rem; margin: 0 0 2rem;}
article.won {border-left-color: var(--accent);}
article.lost {border-left-color: var(--base);}
article h3 {font: 500 1.2rem/1.4 ui-serif, "Iowan Old Style", Charter, Georgia, serif; margin: 0 0 .35rem;}
article details {border: 0; margin: .25rem 0 0; font-size: .875rem;}
article summary {padding: .25rem 0;}
.ranks {display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 .6rem; font-size: .875rem;}
.ranks div {display: flex; gap: .4rem;}
.ranks dt {font-size: inherit;}
.ranks dd {font-weight: 600;}
blockquote {margin: 0; max-width: 44rem; font-size: .9375rem;}
blockquote p {margin: 0; white-space: pre-line;}
mark {background: var(--mark); color: var(--ink); border-radius: .2rem; padding: .05em .12em;}
.source {color: var(--quiet); font-size: .875rem;}
"""

SMALL = """
@media (max-width: 46rem) {
  body {font-size: 16px;}
  main {padding: 2.5rem 1rem 4rem;}
  h2 {margin-top: 3rem;}
  .facts {grid-template-columns: 1fr 1fr;}
  .facts div, .facts div + div {padding: .8rem .8rem .8rem 0;}
  .facts div:nth-child(even) {padding-left: .9rem;}
  table.systems, .systems tbody, .systems tr, .systems th, .systems td {display: block; width: auto;}
  .systems caption {display: block;}
  .systems thead {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);}
  .systems tr {display: grid; grid-template-columns: 1.9rem 1fr; border-bottom: 1px solid var(--line);
    padding: .8rem 0; column-gap: 0;}
  .systems th, .systems td {border: 0; padding: 0; text-align: left;}
  .systems td:first-child {grid-row: 1;}
  .systems td:nth-child(n+3) {grid-column: 2; display: flex; justify-content: space-between; gap: 1rem;
    font-size: .875rem;}
  .systems td:nth-child(n+3)::before {content: attr(data-label); color: var(--quiet); white-space: normal;}
  .systems td span {text-align: right;}
  table.narrow {width: 100%; min-width: 0;}
  svg.wide, span.wide {display: none;}
  svg.narrow {display: block;}
  span.narrow {display: inline;}
}
@media print {
  main {padding: 0; max-width: none;}
  article, tr, figure {break-inside: avoid;}
}
"""


LENGTH = 420
"""Characters of an excerpt, about."""


class TextPart(NamedTuple):
    """A part of a text, marked if it is a word of the query."""

    text: str
    marked: bool


class Excerpt(NamedTuple):
    """An excerpt of a passage, with its marked words."""

    parts: tuple[TextPart, ...]
    before: bool  # whether text before the excerpt was left out
    after: bool  # whether text after it was left out


def highlight(text: str, query: str) -> tuple[TextPart, ...]:
    """The text, cut where words of the query begin and end. Words are equal if their English stems are, as for BM25.
    Of a query of function words alone, all words are marked.
    """
    parts, end = [], 0
    for start, stop in _matches(text, query):
        parts += [TextPart(text[end:start], False), TextPart(text[start:stop], True)]
        end = stop
    parts.append(TextPart(text[end:], False))
    return tuple(part for part in parts if part.text)


def marked_html(parts: Iterable[TextPart], escaped: Callable[[str], str]) -> str:
    """The parts as HTML. escaped: makes a text safe to stand in a page."""
    texts = ((escaped(part.text), part.marked) for part in parts)
    return "".join(f"<mark>{text}</mark>" if marked else text for text, marked in texts)


def excerpt(text: str, query: str, length: int = LENGTH) -> Excerpt:
    """The part of `text` with the most of the query's words, about `length` characters, highlighted; the whole text if
    it is not much longer.
    """
    if len(text) <= 1.3 * length:
        return Excerpt(highlight(text, query), False, False)
    found = _matches(text, query)
    best = max(
        (start for start, _ in found),
        key=lambda start: len({text[a:b].lower() for a, b in found if start <= a and b <= start + length}),
        default=0,
    )
    start = _word_start(text, max(0, min(best - length // 8, len(text) - length)))
    stop = _word_start(text, min(len(text), start + length))
    return Excerpt(highlight(text[start:stop].strip(), query), start > 0, stop < len(text))


def _matches(text: str, query: str) -> list[tuple[int, int]]:
    import Stemmer

    stem = Stemmer.Stemmer("english").stemWord
    asked = re.findall(WORD, query.lower())
    wanted = {stem(word) for word in asked if word not in FUNCTION_WORDS} or {stem(word) for word in asked}
    return [found.span() for found in re.finditer(WORD, text) if stem(found.group().lower()) in wanted]


def _word_start(text: str, at: int) -> int:
    """The start of the word that `at` is in; `at` itself if that word is very long."""
    start = max(text.rfind(" ", 0, at), text.rfind("\n", 0, at)) + 1
    return start if 0 < at < len(text) and at - start < 40 else at


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
    return escape(report_text.readable(value))


def _unbroken(value: str) -> str:
    """A sentence as `text`, in which no line ends between a number and its unit."""
    return re.sub(
        r"(?<=\d) (?=(?:s|min|h|days)\b)|(?<=\d h) (?=\d)|(?<=\d min) (?=\d)", "\N{NO-BREAK SPACE}", text(value)
    )


def _opening(verdict: Verdict) -> str:
    taken = verdict.recommended
    made, expected = ("baseline", "what gains are over"), ("baseline", "what gains are over")
    if taken.label != verdict.baseline:
        made = signed(taken.made_gain), report_text.made_interval(verdict, taken)
        expected = signed(taken.gain), report_text.gain_interval_words(verdict, taken)
    spent = f"{duration(verdict.spent_seconds)} of {duration(verdict.budget_seconds)} spent on all"
    training = "nothing was trained for it; " if taken.training == "none" else ""
    facts = [
        (f"Gain in {verdict.measure}, {verdict.queries.test:,} made queries", *made),
        ("Gain expected for people's queries", *expected),
        ("Computing", duration(taken.seconds), f"{training}{spent}"),
        ("Index", size(taken.bytes_per_passage), "per passage"),
    ]
    shown = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)} <small>{text(more)}</small></dd></div>"
        for name, value, more in facts
    )
    reason = f"<p>{text(verdict.recommendation.reason)}</p>" if verdict.recommendation.reason else ""
    return (
        f'<header>\n<p class="kicker"><bdi>{text(verdict.corpus)}</bdi>, {verdict.passages:,} passages: which middle '
        f"training?</p>\n<h1>{_unbroken(report_text.headline(verdict))}</h1>\n"
        f'<p class="lede">{_unbroken(report_text.certainty(verdict))}</p>\n{reason}'
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
        text(size(one.bytes_per_passage)),
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
    bars = f"Bars are {report_text.interval_level(verdict)}s."
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
        f"<div><dt><bdi>{text(label)}</bdi></dt><dd>{report_text.rank_words(rank)}</dd></div>"
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
    return _section(
        "How far to believe it", *(f"<p>{text(one)}</p>\n" for one in report_text.belief(verdict.calibration))
    )


def _queries(verdict: Verdict) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="name"><bdi>{text(name)}</bdi></th><td>{count:,}</td></tr>'
        for name, count in verdict.queries.source.items()
    )
    return _section(
        "The queries",
        f"<p>{text(report_text.query_sentence(verdict.queries))}</p>\n"
        '<table class="narrow"><thead><tr><th scope="col" class="name">Made from</th><th scope="col">Queries kept</th>'
        f"</tr></thead><tbody>{rows}</tbody></table>\n",
    )


def _use(verdict: Verdict) -> str:
    again = _code(verdict.command)
    if not verdict.model:
        use = f"<p>{text(verdict.recommended.label)} has no model: nothing was trained for it.</p>\n"
    else:
        lines = report_text.loading_lines(verdict)
        python = _code("\n".join(lines)) if lines else f"<p>{report_text.NO_LOADER}</p>\n"
        about = f"<p>{text(sentence)}</p>\n" if (sentence := report_text.about_model(verdict)) else ""
        search = _code(report_text.search_command(verdict)) + _code("\n".join(report_text.search_lines(verdict)))
        use = search + about + python
    return _section("Use the model", use) + _section("Make it again", again)


def _code(content: str) -> str:
    return f"<pre><code>{text(content)}</code></pre>\n"
