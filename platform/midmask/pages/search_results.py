"""Ranked lists as cards: what was found, where it comes from, how its rank differs, and a thumb to judge it."""

import hashlib
import re
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from midmask.choice.excerpts import excerpt, highlight, marked_html
from midmask.choice.judgements import Judgements, JudgementStore
from midmask.corpora.documents.passages import provenance_of
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text

if TYPE_CHECKING:
    from midmask.choice.side_by_side import SideBySide


SHOWN = 10
"""Results of a list."""

LONGEST_TEXT = 4000
"""Characters of a whole passage that are shown."""

STYLE = """<style>
[class*="st-key-hit-"] {padding: .7rem .9rem .45rem; gap: .15rem;}
[class*="st-key-hit-"] [data-testid="stElementContainer"]:has(.stFeedback, [data-testid="stFeedback"]) {align-self: end;
  margin-top: -1.65rem; z-index: 1;}
.mm-hit {font-size: .9rem; overflow-wrap: anywhere;}
.mm-hit .head {display: flex; gap: .5rem; align-items: baseline;}
.mm-hit .rank {font-weight: 700; opacity: .8; font-variant-numeric: tabular-nums; min-width: 1.1rem;}
.mm-hit .path {font-weight: 600; flex: 1; color: light-dark(#0f766e, #2dd4bf);}
.mm-hit .change {font-size: .75rem; font-weight: 600; white-space: nowrap; border-radius: .6rem; padding: 0 .45rem;
  background: rgba(128,128,128,.14);}
.mm-hit .change.up {color: light-dark(#0f766e, #2dd4bf); background: rgba(15,118,110,.13);}
.mm-hit .change.down {color: light-dark(#b45309, #fbbf24); background: rgba(202,138,4,.14);}
.mm-hit .change.new {color: light-dark(#4338ca, #a5b4fc); background: rgba(79,70,229,.14);}
.mm-hit p {margin: .3rem 0 .35rem; white-space: pre-wrap; line-height: 1.45;}
.mm-hit mark {background: rgba(234,179,8,.28); color: inherit; border-radius: .2rem; padding: 0 .1rem;}
.mm-hit .origin {font-size: .75rem; opacity: .8; margin-right: 5.5rem;}
.mm-hit details {font-size: .8rem; margin-right: 5.5rem;}
.mm-hit summary {cursor: pointer; opacity: .8;}
.mm-side {display: flex; align-items: baseline; gap: .6rem; flex-wrap: wrap; border-bottom: 2px solid
  rgba(128,128,128,.25); padding-bottom: .3rem;}
.mm-side b {font-size: 1rem;}
.mm-side span {font-size: .78rem; opacity: .8; font-variant-numeric: tabular-nums;}
.mm-side .badge {opacity: 1; color: light-dark(#0f766e, #2dd4bf); font-weight: 600;}
.st-key-suggested {gap: .4rem;}
@media (max-width: 640px) {.st-key-lists [data-testid="stColumn"] {min-width: 100% !important;}}
</style>"""


def lists(site: "SideBySide", store: JudgementStore, query: str, left: str, right: str) -> None:
    """Both systems' results beside each other; on a phone below each other."""
    from midmask.choice.side_by_side import rank_changes

    answers = {"left": site.rank(left, query), "right": site.rank(right, query)}
    other = {"left": answers["right"].doc_ids, "right": answers["left"].doc_ids}
    known = store.read()
    with st.container(key="lists"):
        for side, label, column in zip(answers, (left, right), st.columns(2), strict=True):
            answer = answers[side]
            with column:
                st.html(_heading(site, label, answer.seconds, answer.how))
                changes = rank_changes(answer.doc_ids[:SHOWN], other[side])
                if not answer.doc_ids:
                    st.info("Nothing found: no passage shares a word with the query.")
                marks = [change(rank, one) if left != right else "" for rank, one in enumerate(changes, start=1)]
                passages = site.passages(answer.doc_ids[:SHOWN])
                for number, (doc_id, mark) in enumerate(zip(answer.doc_ids, marks, strict=False), start=1):
                    with st.container(border=True, key=f"hit-{side}-{number}"):
                        st.html(card(*passages[doc_id], query, f"{number}", mark))
                        thumb(store, known, query, doc_id, side)
    if left != right:
        st.caption(f"↑3: three ranks higher than in the other list · new: not among the {SHOWN} of the other list")


def thumb(store: JudgementStore, known: Judgements, query: str, doc_id: str, side: str) -> None:
    """Draws the two thumbs of a result. They show what is kept, which other sessions change too."""
    name = hashlib.sha256(f"{query}/{doc_id}".encode()).hexdigest()[:12]
    key = f"thumb-{side}-{name}"
    st.session_state[key] = known.grade(query, doc_id)
    st.feedback("thumbs", key=key, on_change=_keep, args=(store, key, query, doc_id))


def _keep(store: JudgementStore, key: str, query: str, doc_id: str) -> None:
    """Keeps the thumb that was given; one that was taken back withdraws the judgement."""
    try:
        store.judge(query, doc_id, st.session_state[key])
    except UserError as error:
        st.error(plain(str(error)), icon=":material/error:")


def _heading(site: "SideBySide", label: str, seconds: float, how: str) -> str:
    notes = [("badge", "recommended")] if label == site.recommended else []
    notes += [("badge", "baseline")] if label == site.baseline else []
    notes += [("", how), ("time", f"{1000 * seconds:.0f} ms")]
    spans = "".join(f'<span class="{kind}">{escape(text)}</span>' for kind, text in notes)
    return f'<div class="mm-side"><b>{escape(label)}</b>{spans}</div>'


def change(rank: int, ranks: int | None) -> str:
    """HTML of a rank change: "new" for a result that the other list does not show.

    Args:
        rank: in this list, from 1. ranks: how many ranks higher it stands here; None: the other list lacks it.
    """
    if ranks is None or rank + ranks > SHOWN:
        there = "not among its first 100" if ranks is None else f"rank {rank + ranks} there"
        return f'<span class="change new" title="{there}">new</span>'
    if ranks == 0:
        return '<span class="change" title="the same rank there">=</span>'
    kind, arrow = ("up", "↑") if ranks > 0 else ("down", "↓")
    return f'<span class="change {kind}" title="rank {rank + ranks} there">{arrow}{abs(ranks)}</span>'


def plain(text: str) -> str:
    """A text as a label shows it: neither Markdown nor Streamlit's names of icons and colours are drawn."""
    return re.sub(r":(?=\S)", r"\:", markdown_text(text))


def card(doc_id: str, title: str, text: str, query: str, rank: str, mark: str) -> str:
    """A result as HTML; all that is the document's or the user's is escaped.

    Args:
        mark: HTML of its own.
    """
    file, place = _place(doc_id)
    shown = excerpt(text, query)
    whole = ""
    if shown.before or shown.after:
        cut = text[:LONGEST_TEXT] + ("…" if len(text) > LONGEST_TEXT else "")
        whole = (
            f"<details><summary>Whole passage</summary><p>{marked_html(highlight(cut, query), escape)}</p></details>"
        )
    head = marked_html(highlight(title or file, query), escape)
    before, after = "… " if shown.before else "", " …" if shown.after else ""
    return (
        f'<article class="mm-hit" data-doc="{escape(doc_id)}">'
        f'<div class="head"><span class="rank">{escape(rank)}</span><span class="path">{head}</span>{mark}</div>'
        f"<p>{before}{marked_html(shown.parts, escape)}{after}</p>"
        f'<div class="origin" title="{escape(doc_id)}">{escape(file + place)}</div>'
        f"{whole}</article>"
    )


def _place(doc_id: str) -> tuple[str, str]:
    """The file that an id names, and where in it the passage lies, in words; an id of another form is its own file."""
    origin = provenance_of(doc_id)
    if origin is None:
        return doc_id, ""
    row = "" if origin.row is None else f" · row {origin.row:,}"
    span = "" if origin.start is None else f" · characters {origin.start:,} to {origin.end:,}"
    return origin.file, row + span
