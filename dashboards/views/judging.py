"""Judging without seeing who found what: an interleaved list, and one pooled passage after another."""

from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from midmask.choice.interleaving import team_draft
from midmask.choice.judged import next_to_judge, pool
from midmask.choice.judgements import Judgement, JudgementJournal, JudgementStore, query_id
from views.results import SHOWN, card, keep, plain, results

if TYPE_CHECKING:
    from midmask.choice.side_by_side import SideBySide

SKIPPED = "skipped passages"


def blind(site: "SideBySide", store: JudgementStore, query: str, left: str, right: str) -> None:
    """Two systems' results in one list that does not say whose they are."""
    if left == right:
        st.info("Choose two different systems to compare.")
        return
    lists = {label: site.rank(label, query).doc_ids for label in (left, right)}
    picks = team_draft(lists, query, SHOWN)
    if not picks:
        empty = " and ".join(label for label, found in lists.items() if not found)
        st.info(plain(f"{empty} found nothing for this query, so there is nothing to compare."))
        return
    st.caption(
        "The results of both systems in one list, drafted in turns. Give a thumb up to what answers the query; who "
        "found it is counted without being shown."
    )
    given = Judgement(query, "", None, "blind", left, right)
    doc_ids, teams = [pick.doc_id for pick in picks], [pick.team for pick in picks]
    with st.container(key="one-list"):
        results(site, store, store.read(), given, doc_ids, [], "blind", teams)


def next_passage(site: "SideBySide", store: JudgementStore) -> None:
    """One passage to judge: of the typed queries first, then of the verdict's own test queries."""
    known = store.read()
    skipped = st.session_state.setdefault(SKIPPED, set())
    queries = list(dict.fromkeys([*known.queries.values(), *site.made_queries.values()]))
    found = next_to_judge(queries, lambda text: _lists(site, text), known.grades, frozenset(skipped))
    if found is None:
        st.success(f"All pooled results of {len(queries):,} queries are judged or skipped. Type new queries for more.")
        return
    query, left = found
    doc_id, (_, title, text) = left[0], site.passages(left[:1])[left[0]]
    st.caption(plain(f"Does this passage answer the query? {_progress(site, known, query, len(left))}"))
    with st.container(key="one-list"), st.container(border=True, key="hit-next-1"):
        st.html(f'<h4 class="mm-asked">{escape(query)}</h4>')
        st.html(card(doc_id, title, text, query, "", ""))
    buttons = {
        "Relevant": (1, ":material/thumb_up:", "y"),
        "Not relevant": (0, ":material/thumb_down:", "n"),
        "Skip": (None, ":material/skip_next:", "s"),
    }
    with st.container(horizontal=True, key="verdicts"):
        for name, (grade, icon, letter) in buttons.items():
            given = Judgement(query, doc_id, grade, "next")
            st.button(name, key=f"next {name}", icon=icon, shortcut=letter, on_click=_judge, args=(store, given))


def _progress(site: "SideBySide", known: JudgementJournal, query: str, left: int) -> str:
    whole = len(pool(_lists(site, query), query, {}))
    systems = len(site.opened)
    return f"{left} of {whole} pooled results are left for it, from {systems} system{'s' if systems > 1 else ''}."


def _lists(site: "SideBySide", query: str) -> dict[str, tuple[str, ...]]:
    return {label: site.rank(label, query).doc_ids for label in site.opened}


def _judge(store: JudgementStore, given: Judgement) -> None:
    """Keeps a judgement; without a grade the passage is skipped in this session."""
    if given.grade is None:
        st.session_state[SKIPPED].add((query_id(given.query), given.doc_id))
        return
    keep(store, given)
