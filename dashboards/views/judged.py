"""What the judgements so far say, beside the verdict's estimate."""

import shlex
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from look import NONE, table
from midmask.choice.interleaving import BlindPreference, interleaving_preference
from midmask.choice.judged import MEASURE, judged_pair, judged_systems, plain_words
from midmask.choice.judgements import JudgementStore
from midmask.errors import UserError
from views.results import plain

if TYPE_CHECKING:
    from midmask.choice.side_by_side import SideBySide


def panel(site: "SideBySide", store: JudgementStore, left: str, right: str) -> None:
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
    st.html(_systems(site, rows))
    st.caption(
        f"{MEASURE} over {next(iter(rows.values())).queries:,} queries with a relevant result. Results without a "
        "judgement count as not relevant, so a system whose first ten were judged less (column Judged) looks worse; "
        "Judge next evens that out."
    )
    _others(site)
    _command(site, store)


def blind_words(found: BlindPreference, left: str, right: str) -> str:
    """What blind comparisons of a pair say, in a sentence."""
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


def _systems(site: "SideBySide", rows: dict) -> str:
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
                (f"{estimate.gain:+.3f}" if estimate else NONE, "num"),
                (f"{estimate.gain_low:+.3f} to {estimate.gain_high:+.3f}" if estimate else NONE, "num quiet"),
            ]
        )
    return table(heads, lines, "judged systems")


def _others(site: "SideBySide") -> None:
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
                    site.open(label, lambda text, label=label: line.caption(plain(f"{label}: {text}")))
                except UserError as error:
                    status.error(plain(f"{label}: {error}"))
                    return
        st.rerun()


def _command(site: "SideBySide", store: JudgementStore) -> None:
    with st.expander("Evaluate any model on your judgements"):
        st.markdown("The judgements are a BEIR collection. In the shell:")
        model = shlex.quote(str(site.model_of(site.recommended) or "MODEL"))
        corpus = shlex.quote(f"beir:{store.folder}")
        st.code(f"midmask evaluate --model {model} --corpus {corpus} --split test", language="bash", wrap_lines=True)
