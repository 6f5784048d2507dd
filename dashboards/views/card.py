"""One system of the leaderboard in full: what it is, its curve, its model, how to search with it and make it again."""

import shlex
from collections.abc import Sequence
from html import escape

import streamlit as st

from charts import draw
from context import PageContext
from look import NONE, choice, link, table
from midmask.leaderboard.board import HEADS, Board, BoardLine
from midmask.leaderboard.cells import detail, number
from midmask.leaderboard.lineage import Link, artifact_place, lineage
from midmask.leaderboard.ranks import rank_text
from midmask.leaderboard.rows import LeaderboardRow
from midmask.leaderboard.training import PHASES, trainings
from midmask.tracking import TrackedRow
from midmask.tracking.names import EXECUTOR
from runs import run_of
from views import lineage as lineage_page
from views import training
from views.training_plots import Overlay, panel

KEY = "system"
WHERE = {"process": "the process of their trial", "ray train": "workers of Ray Train"}


def show(board: Board, context: PageContext) -> None:
    """The choice of a system, which the table's names make too, and the card of the one that is chosen."""
    names = {line.entry.name: line for line in board.lines}
    st.subheader("One system")
    line = names.get(choice("System", KEY, [NONE, *names], label_visibility="collapsed"))
    if line is None:
        st.caption("Click a name in the table, or choose here: what it is, its model, and the command that makes it.")
        return
    row = newest(line, board)
    place = artifact_place(run_of(context, row), row.corpus, row.split)
    links = lineage(place) if place else []
    with st.container(border=True, key="card"):
        st.html(facts(board, line, context))
        curves(links, context)
        models(links, row)
        if st.toggle("The command that makes it again", key="card_rerun"):
            lineage_page.again(context, row, run_of(context, row), links)


def open_card(name: str) -> None:
    """A system's name was clicked in the table."""
    st.session_state[KEY] = name


def newest(line: BoardLine, board: Board) -> LeaderboardRow:
    """The newest of the system's runs at the board's places."""
    return max(line.entry.runs(board.view.places).values(), key=lambda row: row.started)


def facts(board: Board, line: BoardLine, context: PageContext) -> str:
    """Labels, settings, ranks, measures and costs as a table of two columns."""
    entry = line.entry
    told = {head: escape(getattr(entry, name)) for name, head in HEADS.items() if getattr(entry, name)}
    told |= {"Settings": escape(entry.note)} if entry.note else {}
    told |= {f"Rank by {board.ranked.key}": rank_text(board, line)} if board.ranked else {}
    for column in board.columns:
        small = detail(board, column, line)
        if line.cells[column.key].sorts_by is not None:
            told[column.key if column.place else column.head] = (
                f"{number(board, column, line.cells[column.key])} {small}"
            )
    told |= {"Trainings ran in": WHERE[ran]} if (ran := run_of(context, newest(line, board)).tags.get(EXECUTOR)) else {}
    runs = sorted(entry.runs(board.view.places).values(), key=lambda row: row.seed.rjust(9))
    told["Runs, by seed"] = " · ".join(link(context.link(row), row.seed.strip() or row.run_id[:8]) for row in runs)
    return table([("", ""), ("", "")], [[(head, "quiet"), (text, "wrap")] for head, text in told.items()], "system")


def curves(links: Sequence[Link], context: PageContext) -> None:
    """The loss of each training behind the system, where the store still has its run."""
    told = [(one.step, run) for one in links if (run := _training_of(one, context)) is not None]
    for column, (phase, run) in zip(st.columns(len(told)) if told else (), told, strict=True):
        own = training.read(context, run, phase, ["loss"])
        alone = Overlay([own], [run.name], [[]], across="steps", smoothing=1)
        with column:
            draw(panel(alone, f"Loss, {phase}", "loss", log=False), f"card_{phase}_{run.run_id}", 240)


def _training_of(one: Link, context: PageContext) -> TrackedRow | None:
    found = trainings(context.runs, one.step) if one.step in PHASES else []
    return next((run for run in found if run.tags.get("midmask.fingerprint") == one.fingerprint), None)


def models(links: Sequence[Link], row: LeaderboardRow) -> None:
    """Where the model lies, and what to type to search with it."""
    trained = [one for one in links if one.step in ("finetune", "adopt", "pretrain")]
    if not trained:
        st.caption("It has no model folder: nothing was trained for it, or the storage is not reachable from here.")
        return
    folder = str(trained[-1].place / "model")
    corpus = next((str(one.told["name"]) for one in links if one.step == "prepare" and "name" in one.told), row.corpus)
    st.markdown("Its model, for sentence-transformers and for a search from the terminal:")
    st.code(shlex.join(["midmask", "search", folder, "--corpus", corpus]), language="bash", wrap_lines=True)
