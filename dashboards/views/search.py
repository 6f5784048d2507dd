"""A verdict's systems, asked by hand: two lists side by side, blind comparison, judging; what is judged is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from context import PageContext
from look import choice
from midmask.choice.judgements import FOLDER, JudgementStore
from midmask.errors import UserError
from views import judged, judging
from views.results import STYLE, lists, plain

if TYPE_CHECKING:  # brings torch, which the other pages do not need
    from midmask.choice.side_by_side import SideBySide

LONGEST = 500
"""Characters of a typed query."""

SUGGESTED = 4
"""Made queries that are offered while nothing is typed."""

MODES = SIDE_BY_SIDE, BLIND, NEXT = "Side by side", "Blind", "Judge next"


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
    query, left, right, mode = controls(site)
    _told(site, store)
    if not prepared(site, (left, right)):
        return
    if site.quarantined:
        st.caption(f":material/warning: {site.quarantined:,} passages cannot be read; no system finds them.")
    if mode == NEXT:
        judging.next_passage(site, store)
    elif not query:
        suggestions(site)
    elif mode == BLIND:
        judging.blind(site, store, query, left, right)
    else:
        lists(site, store, query, left, right)
    judged.panel(site, store, left, right)


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


def controls(site: "SideBySide") -> tuple[str, str, str, str]:
    """Draws what can be chosen: query, left, right, mode. All of it lies in the page's address."""
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
    first, second, third = st.columns([3, 3, 4])
    others = (site.baseline, *site.systems)
    with first:
        left = choice("Left", "left", _first(site.systems, site.recommended))
    with second:
        right = choice("Right", "right", _first(site.systems, next(one for one in others if one != site.recommended)))
    with third:
        mode = st.segmented_control("How", MODES, default=SIDE_BY_SIDE, required=True, key="how", bind="query-params")
    return " ".join((query or "").split()), left, right, str(mode or SIDE_BY_SIDE)


def _first(labels: tuple[str, ...], chosen: str) -> list[str]:
    """The labels with one of them at the front, if it is among them."""
    return sorted(labels, key=lambda label: label != chosen)


def _told(site: "SideBySide", store: JudgementStore) -> None:
    """What is kept, and what cannot be asked or read."""
    found = store.read()
    queries, relevant, others = found.counts()
    st.caption(
        f"{queries:,} judged {'query' if queries == 1 else 'queries'} · {relevant:,} relevant · {others:,} not "
        f"relevant · kept in {plain(str(site.folder / FOLDER))}"
    )
    if found.unreadable:
        st.warning(
            f"{found.unreadable:,} of the journal's lines cannot be read, as after a kill; they do not count.",
            icon=":material/warning:",
        )
    for label, why in site.missing.items():
        st.caption(f":material/link_off: {plain(f'{label} cannot be asked: {why}.')}")


def prepared(site: "SideBySide", labels: tuple[str, ...]) -> bool:
    """Loads systems, with lines on how far it is; whether all of them could be loaded."""
    for label in dict.fromkeys(labels):
        if label in site.opened:
            continue
        place = st.empty()
        try:
            with place.status(f"Preparing {plain(label)}", expanded=True):
                site.open(label, _line())
        except UserError as error:
            place.error(plain(f"{label}: {error}"), icon=":material/error:")
            return False
        place.empty()
    return True


def _line() -> Callable[[str], None]:
    line = st.empty()
    return lambda text: line.caption(plain(text))


def suggestions(site: "SideBySide") -> None:
    made = list(site.made_queries.values())[:SUGGESTED]
    if not made:
        st.info("Type a query above.")
        return
    st.caption("Type a query above, or try one that was made of the documents for the verdict:")
    with st.container(key="suggested"):
        for number, text in enumerate(made):
            st.button(plain(text), key=f"suggested {number}", on_click=_ask, args=(text,), icon=":material/search:")


def _ask(text: str) -> None:
    st.session_state["q"] = text
