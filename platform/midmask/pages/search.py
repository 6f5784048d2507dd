"""A verdict's systems, asked by hand: two ranked lists side by side, with a thumb for each passage, which is kept."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from midmask.choice.judgements import JudgementStore
from midmask.errors import UserError
from midmask.pages.context import PageContext
from midmask.pages.look import choice
from midmask.pages.search_results import STYLE, lists, plain

if TYPE_CHECKING:  # brings torch, which the other pages do not need
    from midmask.choice.side_by_side import SideBySide


LONGEST = 500
"""Characters of a typed query."""

SUGGESTED = 4
"""Made queries that are offered while nothing is typed."""


def show(context: PageContext) -> None:
    if context.verdict is None:
        st.info("No verdict was named. Start the dashboard with the folder that `midmask choose` wrote:")
        st.code("midmask ui --verdict FOLDER", language="bash", wrap_lines=True)
        return
    try:
        site, store = _opened(context.verdict)
    except UserError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.html(STYLE)
    query, left, right = controls(site)
    for label, why in site.missing.items():
        st.caption(f":material/link_off: {plain(f'{label} cannot be asked: {why}.')}")
    if not prepared(site, (left, right)):
        return
    if site.quarantined:
        st.caption(f":material/warning: {site.quarantined:,} passages cannot be read; no system finds them.")
    if query:
        lists(site, store, query, left, right)
    else:
        suggestions(site)
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
    first, second = st.columns(2)
    others = (site.baseline, *site.systems)
    with first:
        left = choice("Left", "left", _first(site.systems, site.recommended))
    with second:
        right = choice("Right", "right", _first(site.systems, next(one for one in others if one != site.recommended)))
    return " ".join((query or "").split()), left, right


def _first(labels: tuple[str, ...], chosen: str) -> list[str]:
    """The labels with one of them at the front, if it is among them."""
    return sorted(labels, key=lambda label: label != chosen)


def prepared(site: "SideBySide", labels: tuple[str, ...]) -> bool:
    """Loads systems, with lines on how far it is; whether all of them could be loaded."""
    for label in dict.fromkeys(labels):
        if site.is_open(label):
            continue
        place = st.empty()
        try:
            with place.status(f"Preparing {plain(label)}", expanded=True):
                site.open(label, _writer(st.empty()))
        except UserError as error:
            place.error(plain(f"{label}: {error}"), icon=":material/error:")
            return False
        place.empty()
    return True


def _writer(line: DeltaGenerator) -> Callable[[str], None]:
    def write(text: str) -> None:
        line.caption(plain(text))

    return write


def suggestions(site: "SideBySide") -> None:
    made = list(site.made_queries.values())[:SUGGESTED]
    if not made:
        st.info("Type a query above.")
        return
    st.caption("Type a query above, or try one that was made of the documents for the verdict:")
    with st.container(key="suggested"):
        for number, text in enumerate(made):
            st.button(plain(text), key=f"suggested {number}", on_click=_ask_for, args=(text,), icon=":material/search:")


def _ask_for(text: str) -> None:
    st.session_state["q"] = text


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
