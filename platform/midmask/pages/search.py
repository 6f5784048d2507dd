"""A verdict's systems, asked by hand: two ranked lists side by side, with a thumb for each passage, which is kept."""

import hashlib
import re
import shlex
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from midmask.choice.judgements import Judgements, JudgementStore
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown_text
from midmask.pages.look import TEMPLATES, choice, first
from midmask.queries.source_classes import FUNCTION_WORDS
from midmask.retrieve.bm25.index import WORD

if TYPE_CHECKING:  # brings torch, which the other pages do not need
    from midmask.choice.side_by_side import SideBySide


LONGEST = 500
"""Characters of a typed query."""

SHOWN = 10
"""Results of a list."""

LONGEST_TEXT = 4000
"""Characters of a passage that are shown."""

_hit = TEMPLATES.get_template("hit.html.jinja")


def show(verdict: str | None) -> None:
    """
    Args:
        verdict: the folder of a verdict; None if none was named.
    """
    if verdict is None:
        st.info("No verdict was named. Start the dashboard with the folder that `midmask choose` wrote:")
        st.code("midmask leaderboard --verdict FOLDER", language="bash", wrap_lines=True)
        return
    try:
        site, store = _opened(verdict)
    except UserError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    query, left, right = controls(site)
    if not prepared(site, (left, right)):
        return
    if query:
        lists(site, store, query, left, right)
    else:
        st.info("Type a query above.")
    show_judged(site, store)


def _opened(folder: str) -> tuple["SideBySide", JudgementStore]:
    """The verdict's systems and judgements, for all sessions; another verdict in the same folder is opened anew.

    Raises:
        UserError: if there is no verdict.
    """
    from midmask.choice.side_by_side import FILE

    file = Path(folder).expanduser().absolute() / FILE
    return _open(str(file.parent), file.stat().st_mtime_ns if file.exists() else 0)


@st.cache_resource(max_entries=2, show_spinner="Opening the verdict")
def _open(folder: str, written: int) -> tuple["SideBySide", JudgementStore]:
    from midmask.choice.side_by_side import SideBySide

    site = SideBySide(folder)
    return site, JudgementStore(site.folder, site.collection)


def controls(site: "SideBySide") -> tuple[str, str, str]:
    """Draws what can be chosen: query, left, right. All of it lies in the page's address."""
    query = st.text_input(
        "Search the collection",
        key="q",
        type="search",
        max_chars=LONGEST,
        placeholder=f"Ask {site.verdict.passages:,} passages",
        bind="query-params",
        icon=":material/search:",
        label_visibility="collapsed",
    )
    one_side, other_side = st.columns(2)
    others = (site.baseline, *site.systems)
    with one_side:
        left = choice("Left", "left", first(site.recommended, site.systems))
    with other_side:
        other = next(system for system in others if system != site.recommended)
        right = choice("Right", "right", first(other, site.systems))
    return " ".join((query or "").split()), left, right


def prepared(site: "SideBySide", labels: tuple[str, ...]) -> bool:
    """Loads systems, which may have to encode the collection first; whether all of them could be loaded."""
    for label in dict.fromkeys(labels):
        try:
            with st.spinner(f"Preparing {plain(label)}: the first time this encodes the collection", show_time=True):
                site.open(label)
        except UserError as error:
            st.error(plain(f"{label}: {error}"), icon=":material/error:")
            return False
    return True


def show_judged(site: "SideBySide", store: JudgementStore) -> None:
    """How many judgements are kept, where, and the command that evaluates a model on them."""
    queries, relevant, others = store.read().counts()
    st.caption(
        f"{queries:,} judged {'query' if queries == 1 else 'queries'} · {relevant:,} relevant · {others:,} not "
        f"relevant · kept in {plain(str(store.folder))}"
    )
    if relevant:
        with st.expander("Evaluate any model on your judgements"):
            st.markdown("They are a BEIR collection; what was not judged counts as not relevant. In the shell:")
            model = shlex.quote(str(site.model_of(site.recommended) or "MODEL"))
            corpus = shlex.quote(f"beir:{store.folder}")
            command = f"midmask evaluate --model {model} --corpus {corpus} --split test"
            st.code(command, language="bash", wrap_lines=True)


def lists(site: "SideBySide", store: JudgementStore, query: str, left: str, right: str) -> None:
    """Both systems' results beside each other; on a phone below each other."""
    answers = {"left": site.search(left, query, SHOWN), "right": site.search(right, query, SHOWN)}
    known = store.read()
    with st.container(key="lists"):
        for side, label, column in zip(answers, (left, right), st.columns(2), strict=True):
            with column:
                st.html(_heading(site, label))
                if not answers[side]:
                    st.info("Nothing found: no passage shares a word with the query.")
                for number, hit in enumerate(answers[side], start=1):
                    with st.container(border=True, key=f"hit-{side}-{number}"):
                        st.html(card(hit.doc_id, hit.title, hit.text, query, f"{number}"))
                        thumb(store, known, query, hit.doc_id, side)


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


def _heading(site: "SideBySide", label: str) -> str:
    roles = {"recommended": site.recommended, "baseline": site.baseline}
    spans = "".join(f'<span class="badge">{role}</span>' for role, system in roles.items() if label == system)
    return f'<div class="mm-side"><b>{escape(label)}</b>{spans}</div>'


def plain(text: str) -> str:
    """A text as a label shows it: neither Markdown nor Streamlit's names of icons and colours are drawn."""
    return re.sub(r":(?=\S)", r"\:", markdown_text(text))


def card(doc_id: str, title: str, text: str, query: str, rank: str) -> str:
    """A result as HTML; all that is the document's or the user's is escaped."""
    cut = text[:LONGEST_TEXT] + ("…" if len(text) > LONGEST_TEXT else "")
    head, passage = (highlight(shown, query) for shown in (title or doc_id, cut))
    return _hit.render(doc_id=doc_id, rank=rank, head=head, passage=passage)


class TextPart(NamedTuple):
    """A part of a text, marked if it is a word of the query."""

    text: str
    marked: bool


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


def _matches(text: str, query: str) -> list[tuple[int, int]]:
    import Stemmer

    stem = Stemmer.Stemmer("english").stemWord
    words = re.findall(WORD, query.lower())
    stems = {stem(word) for word in words if word not in FUNCTION_WORDS} or {stem(word) for word in words}
    return [match.span() for match in re.finditer(WORD, text) if stem(match.group().lower()) in stems]
