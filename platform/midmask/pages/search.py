"""A verdict's systems, asked by hand: two lists side by side, blind comparison, judging; what is judged is kept.

Judging without seeing who found what is over an interleaved list, or over one pooled passage after another. What the
judgements say so far stands beside the verdict's estimate.
"""

import shlex
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from midmask.choice.judgements import (
    FOLDER,
    MEASURE,
    BlindPreference,
    JudgedSystem,
    Judgement,
    JudgementJournal,
    JudgementStore,
    interleaving_preference,
    judged_pair,
    judged_systems,
    next_to_judge,
    plain_words,
    pool,
    query_id,
    team_draft,
)
from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.pages.context import PageContext
from midmask.pages.look import choice, table
from midmask.pages.search_results import SHOWN, STYLE, card, keep, lists, plain, results

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
    _show_notes(site, store)
    if not prepared(site, (left, right)):
        return
    if site.quarantined:
        st.caption(f":material/warning: {site.quarantined:,} passages cannot be read; no system finds them.")
    if mode == NEXT:
        next_passage(site, store)
    elif not query:
        suggestions(site)
    elif mode == BLIND:
        blind(site, store, query, left, right)
    else:
        lists(site, store, query, left, right)
    show_judged(site, store, left, right)


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


def _show_notes(site: "SideBySide", store: JudgementStore) -> None:
    """Draws notes on judgements kept, and on systems or files that cannot be used."""
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
                site.open(label, _writer(st.empty()))
        except UserError as error:
            place.error(plain(f"{label}: {error}"), icon=":material/error:")
            return False
        place.empty()
    return True


def _writer(line: DeltaGenerator, before: str = "") -> Callable[[str], None]:
    def write(text: str) -> None:
        line.caption(plain(f"{before}{text}"))

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
    found = next_to_judge(queries, lambda text: _lists_by_system(site, text), known.grades, frozenset(skipped))
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
    whole = len(pool(_lists_by_system(site, query), query, {}))
    systems = len(site.opened)
    return f"{left} of {whole} pooled results are left for it, from {systems} system{'s' if systems > 1 else ''}."


def _lists_by_system(site: "SideBySide", query: str) -> dict[str, tuple[str, ...]]:
    return {label: site.rank(label, query).doc_ids for label in site.opened}


def _judge(store: JudgementStore, given: Judgement) -> None:
    """Keeps a judgement; without a grade the passage is skipped in this session."""
    if given.grade is None:
        st.session_state[SKIPPED].add((query_id(given.query), given.doc_id))
        return
    keep(store, given)


def show_judged(site: "SideBySide", store: JudgementStore, left: str, right: str) -> None:
    """A table of the systems, sentences on the chosen pair, and the command that evaluates on the judgements."""
    known = store.read()
    st.subheader("What your judgements say", anchor=False)
    if not known.queries:
        st.caption("Nothing is judged yet. A thumb up or down at a result is kept, and moves the numbers here.")
        return
    lists = {
        label: {name: site.rank(label, text).doc_ids for name, text in known.queries.items()} for label in site.opened
    }
    rows = {row.label: row for row in judged_systems(lists, known.grades)}
    if not rows:
        st.caption("No query has a relevant result yet, so nothing can be measured.")
        return
    if left != right:
        pair = judged_pair(lists, known.grades, left, right, site.verdict.calibration.level)
        if pair:
            *counts, outcome = plain_words(pair, site.verdict)
            st.markdown(f"**{plain(outcome)}** {plain(' '.join(counts))}")
        st.markdown(plain(blind_words(interleaving_preference(known, left, right), left, right)))
    st.html(_judged_table(site, rows))
    st.caption(
        f"{MEASURE} over {next(iter(rows.values())).queries:,} queries with a relevant result. Results without a "
        "judgement count as not relevant, so a system whose first ten were judged less (column Judged) looks worse; "
        "Judge next evens that out."
    )
    _load_others(site)
    _evaluate_command(site, store)


def blind_words(found: BlindPreference, left: str, right: str) -> str:
    """A sentence on the blind comparisons of a pair."""
    if not found.wins + found.losses + found.ties:
        return "These two were not compared blind yet."
    counts = f"Blind, {left} won {found.wins}, {right} won {found.losses}, and {found.ties} were ties"
    if not found.wins + found.losses:
        return f"{counts}."
    share = f"{found.share:.0%} of the decided queries, 95% interval {found.low:.0%} to {found.high:.0%}"
    outcome = "too close to call"
    if found.significant:
        outcome = f"{left if found.wins > found.losses else right} is preferred"
    return f"{counts}: {outcome} ({left} wins {share}; sign test p = {found.p:.2g})."


def _judged_table(site: "SideBySide", rows: dict[str, JudgedSystem]) -> str:
    heads = [("System", ""), (f"Judged: {MEASURE}", "num"), ("Judged", "num")]
    heads += [("Verdict: expected gain", "num"), (f"{site.verdict.calibration.level:.0%} interval", "num")]
    best = max(row.value for row in rows.values())
    lines = []
    for label, row in rows.items():
        estimate = site.estimate(label)
        lines.append(
            [
                (escape(label), ""),
                (f"{row.value:.3f}", "num best" if row.value == best else "num"),
                (f"{row.judged:.0%}", "num quiet"),
                (f"{estimate.gain:+.3f}" if estimate else MISSING, "num"),
                (f"{estimate.gain_low:+.3f} to {estimate.gain_high:+.3f}" if estimate else MISSING, "num quiet"),
            ]
        )
    return table(heads, lines, "judged systems")


def _load_others(site: "SideBySide") -> None:
    """A button that loads the systems which were not asked yet."""
    rest = [label for label in site.systems if label not in site.opened]
    if rest and st.button(
        f"Load the other {len(rest)} system{'s' if len(rest) > 1 else ''}",
        icon=":material/add:",
        help="The first time this encodes the collection with each of them. They then join the table and the pool.",
    ):
        with st.status("Preparing the other systems") as status:
            line = st.empty()
            for label in rest:
                try:
                    site.open(label, _writer(line, f"{label}: "))
                except UserError as error:
                    status.error(plain(f"{label}: {error}"))
                    return
        st.rerun()


def _evaluate_command(site: "SideBySide", store: JudgementStore) -> None:
    with st.expander("Evaluate any model on your judgements"):
        st.markdown("The judgements are a BEIR collection. In the shell:")
        model = shlex.quote(str(site.model_of(site.recommended) or "MODEL"))
        corpus = shlex.quote(f"beir:{store.folder}")
        st.code(f"midmask evaluate --model {model} --corpus {corpus} --split test", language="bash", wrap_lines=True)
