"""The leaderboard: evaluated systems × corpora × measures, with what they cost; below, what has not finished."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from html import escape

import streamlit as st

from context import PageContext
from look import link, live_table, table
from midmask.evaluation.escaping import markdown_text
from midmask.leaderboard.board import Board, View, board_of
from midmask.leaderboard.cells import key, meanings, shared
from midmask.leaderboard.entries import Entry
from midmask.leaderboard.export import as_csv, as_markdown
from midmask.leaderboard.html import document
from midmask.leaderboard.html import table as board_table
from midmask.leaderboard.marks import Marks, marks_of
from midmask.leaderboard.rows import unfinished
from midmask.tracking import redacted
from views import card, cost_chart
from views.choosing import address, choose, order_by

PER_PAGE = 100
MOST_UNFINISHED = 50


def show(context: PageContext) -> None:
    if context.entries:
        systems(context)
    else:
        nothing(context)
    troubles(context)


def systems(context: PageContext) -> None:
    view = choose(context.entries)
    if not view.places:
        st.info("No system was evaluated on this split of this corpus. Choose another.")
        return
    board = board_of(context.entries, view, lambda shown: compared(_key(shown, view), shown, view, context))
    if not board.lines:
        st.info("No system matches these choices. Loosen a filter, or show the trials of sweeps.")
        return
    start = PER_PAGE * (page_number(len(board.lines)) - 1)
    lines = board.lines[start : start + PER_PAGE]
    live_table(board_table(board, lines, context.link), "board", order=order_by, opened=card.open_card)
    of = f"Systems {start + 1:,} to {start + len(lines):,} of {len(board.lines):,} · {key(board)}."
    st.caption(markdown_text(" ".join([of, *shared(board)])))
    with st.expander("How to read this table"):
        st.markdown("\n".join(f"- {markdown_text(one)}" for one in meanings(board)))
    exports(board, context)
    cost_chart.show(board)
    card.show(board, context)


def page_number(count: int) -> int:
    pages = -(-count // PER_PAGE)
    if pages == 1:
        return 1
    return int(st.number_input(f"Page, of {pages}", 1, pages, key="page", bind="query-params", width=140))


@st.cache_resource(max_entries=64, show_spinner="Comparing the systems")
def compared(key: str, _shown: Sequence[Entry], _view: View, _context: PageContext) -> Marks:
    """Tests of all pairs, worked out once for the same runs: `key` tells them, and all else that matters."""
    return marks_of(_shown, _view.places, _view.measures, _context.per_query, _view.marks)


def _key(shown: Sequence[Entry], view: View) -> str:
    """As one text: Streamlit would take long to hash thousands of ids."""
    runs = [(entry.name, sorted(entry.runs(view.places))) for entry in shown]
    return repr((runs, view.places, view.measures, view.marks))


def exports(board: Board, context: PageContext) -> None:
    """The whole of the shown view, all its pages, as files."""
    whole = partial(document, board, source=redacted(context.uri), address=address(), when=datetime.now(UTC))
    files = [
        ("CSV", partial(as_csv, board), "csv"),
        ("Markdown", partial(as_markdown, board), "md"),
        ("HTML", whole, "html"),
    ]
    with st.container(horizontal=True):
        for name, content, end in files:
            icon = ":material/download:"
            st.download_button(
                name, content, f"leaderboard.{end}", f"text/{name.lower()}", on_click="ignore", icon=icon
            )
        with st.popover("Address", icon=":material/link:"):
            st.code(address(), language=None, wrap_lines=True)


def nothing(context: PageContext) -> None:
    st.info("Nothing has been evaluated in this store yet. Run the demo, or any job that evaluates:")
    command = f"python jobs/sweep_mask_ratio.py --tracking-uri {redacted(context.uri)}"
    st.code(f"make demo\n{command}", language="bash", wrap_lines=True)


def troubles(context: PageContext) -> None:
    """What runs now, failed, or was killed: half a run ranks nowhere."""
    left = unfinished(context.runs)
    if not left:
        return
    st.subheader("Not finished")
    lines = [
        [
            (escape(run.name), ""),
            (escape(run.tags.get("midmask.step", "")), ""),
            (f'<span class="mm-status {escape(run.status)}">{escape(run.status)}</span>', ""),
            (f"{run.started:%Y-%m-%d %H:%M}", "quiet"),
            (link(context.link(run), run.run_id[:8]), ""),
        ]
        for run in left[:MOST_UNFINISHED]
    ]
    heads = [(text, "") for text in ("Run", "Step", "Status", "Started (UTC)", "MLflow")]
    st.html(table(heads, lines, "unfinished"))
    st.caption(
        f"{len(left)} runs, the newest {len(lines)} shown. Progress shows which of the running ones live; the same "
        "command, run again, goes on where a job stopped."
    )
