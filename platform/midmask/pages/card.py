"""A system's card: what it is, its curves, its model, and the commands that search with it and make it again."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from html import escape

import streamlit as st

from midmask.core.redaction import redacted
from midmask.core.words import MISSING
from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, inputs_of
from midmask.leaderboard.board import HEADS, Board, BoardLine, detail, number, rank_text
from midmask.leaderboard.rows import LeaderboardRow
from midmask.leaderboard.training import PHASES, trainings
from midmask.pages import training
from midmask.pages.context import PageContext, run_of
from midmask.pages.look import choice, draw, link, table
from midmask.pages.training import Overlay, panel
from midmask.store.artifact import Artifact
from midmask.tracking.names import EXECUTOR
from midmask.tracking.reading import TrackedRow

KEY = "system"
WHERE = {"process": "the process of their trial", "ray train": "workers of Ray Train"}

SOME = 8
"""Names of fields in a sentence."""

LONGEST_WAIT = 180
"""Seconds; the recipes' code takes a few to load."""

COMMITS = ("midmask.commit", "mlflow.source.git.commit")
"""Tags with the commit of the code, the first that a run has."""


def show(board: Board, context: PageContext) -> None:
    """The choice of a system, which the table's names make too, and the card of the one that is chosen."""
    names = {line.entry.name: line for line in board.lines}
    st.subheader("One system")
    line = names.get(choice("System", KEY, [MISSING, *names], label_visibility="collapsed"))
    if line is None:
        st.caption("Click a name in the table, or choose here: what it is, its model, and the command that makes it.")
        return
    row = newest(line, board)
    run = run_of(context, row)
    place = artifact_place(run, row.corpus, row.split)
    artifacts = artifacts_behind(place) if place else []
    with st.container(border=True, key="card"):
        st.html(facts(board, line, context))
        curves(artifacts, context)
        models(artifacts, row)
        if st.toggle("The command that makes it again", key="card_rerun"):
            again(context, row, run, artifacts)


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


def curves(artifacts: Sequence[Artifact], context: PageContext) -> None:
    """The loss of each training behind the system, where the store still has its run."""
    tracked = [(artifact.record["step"], run) for artifact in artifacts if (run := _training_of(artifact, context))]
    for column, (phase, run) in zip(st.columns(len(tracked)) if tracked else (), tracked, strict=True):
        own = training.read(context, run, phase, ["loss"])
        alone = Overlay([own], [run.name], [[]], across="steps", smoothing=1)
        with column:
            draw(panel(alone, f"Loss, {phase}", "loss", log=False), f"card_{phase}_{run.run_id}", 240)


def _training_of(artifact: Artifact, context: PageContext) -> TrackedRow | None:
    runs = trainings(context.runs, artifact.record["step"]) if artifact.record["step"] in PHASES else []
    return next((run for run in runs if run.tags.get("midmask.fingerprint") == artifact.fingerprint), None)


def models(artifacts: Sequence[Artifact], row: LeaderboardRow) -> None:
    """Draws the commands that load the system's model and search with it."""
    trained = [artifact for artifact in artifacts if artifact.record["step"] in ("finetune", "adopt", "pretrain")]
    if not trained:
        st.caption("It has no model folder: nothing was trained for it, or the storage is not reachable from here.")
        return
    folder = str(trained[-1].place / "model")
    corpus = next((name for artifact in artifacts if (name := _corpus_name(artifact))), row.corpus)
    st.markdown("Its model, for sentence-transformers and for a search from the terminal:")
    st.code(shlex.join(["midmask", "search", folder, "--corpus", corpus]), language="bash", wrap_lines=True)


def _corpus_name(artifact: Artifact) -> str:
    """The name of the collection that a step prepared; empty for any other step."""
    return str(artifact.record["config"].get("name", "")) if artifact.record["step"] == "prepare" else ""


def again(context: PageContext, row: LeaderboardRow, run: TrackedRow, artifacts: Sequence[Artifact]) -> None:
    """Draws the command that repeats the run, and the settings in which its result would differ."""
    split = str(artifacts[-1].result.get("split", "")) if artifacts else ""  # a slice of a split lies with it
    wanted = {"tags": run.tags, "params": run.params, "split": split or row.split, **_elsewhere(run, artifacts)}
    found = worked_out(json.dumps(wanted, sort_keys=True))
    if "error" in found:
        st.warning(f"The command cannot be worked out: {found['error']}")
        return
    command = shlex.join(["python", *found["arguments"], "--tracking-uri", redacted(context.uri)])
    st.code(command, language="bash", wrap_lines=True)
    if found["differs"]:
        st.warning("With this command, these settings would differ from the run's: " + _some(found["differs"]))
    if found["newer"]:
        st.caption(f"Fields that the run did not have yet are left as they are now: {_some(found['newer'])}.")
    commit = next((run.tags[name] for name in COMMITS if run.tags.get(name)), "")
    at = f", at commit {commit}" if commit else ""
    st.caption(
        f"In the project's folder{at}. With `--dry-run` it prints steps and fingerprints; the evaluation's was "
        f"{row.fingerprint}. What the storage holds is not computed again."
    )


def _some(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(names[:SOME]) + (f" and {len(names) - SOME} more" if len(names) > SOME else "")


def _elsewhere(run: TrackedRow, artifacts: Sequence[Artifact]) -> dict[str, str]:
    """Flags for a collection that was only searched, and for a model that came from a folder."""
    searched = inputs_of(artifacts[-1]).get("corpus") if artifacts else None
    name = next((_corpus_name(artifact) for artifact in artifacts if artifact.address == searched), "")
    adopted = [artifact for artifact in artifacts if artifact.record["step"] == "adopt"]
    model = str(adopted[0].record["config"]["folder"]) if adopted else ""
    return {"zero_shot": name if name != run.params.get("corpus.name", name) else "", "model": model}


@st.cache_data(max_entries=64, show_spinner="Working out the command: the recipes take a few seconds to load")
def worked_out(wanted: str) -> dict[str, list[str] | str]:
    """`app.rerun` in a process of its own, since recipes load torch, which no page does."""
    command = [sys.executable, "-m", "midmask.app.rerun"]
    done = subprocess.run(command, input=wanted, capture_output=True, text=True, timeout=LONGEST_WAIT, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no reason was given"])[-1]}
    return dict(json.loads(done.stdout))
