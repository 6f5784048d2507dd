"""A system's card: what it is, its trainings, its model, and the commands that search with it and make it again."""

import shlex
from collections.abc import Sequence

import streamlit as st

from midmask.core.redaction import redacted
from midmask.core.words import MISSING
from midmask.evaluation.rendering import markdown_text
from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, command_again, corpus_name
from midmask.leaderboard.board import COSTS, HEADS, RECALLS, Board, cost_text, measured, rank_text
from midmask.leaderboard.entries import Entry
from midmask.leaderboard.rows import LeaderboardRow
from midmask.leaderboard.store_view import StoreView
from midmask.pages.look import choice, link
from midmask.store.artifact import Artifact
from midmask.tracking.names import RECIPE_FILE
from midmask.tracking.reading import TrackedRow, artifact_file

KEY = "system"
TRAININGS = ("pretrain", "finetune", "teach", "generator")
"""Steps that train."""


def show(board: Board, store: StoreView) -> None:
    """The choice of a system, and the card of the one that is chosen."""
    names = {entry.name: entry for entry in board.systems.values()}
    st.subheader("One system")
    entry = names.get(choice("System", KEY, [MISSING, *names], label_visibility="collapsed"))
    if entry is None:
        st.caption("Choose one: what it is, its model, and the command that makes it.")
        return
    row = max(entry.runs(board.view.places).values(), key=lambda row: row.run.started)
    place = artifact_place(row.run, row.place.corpus, row.place.split)
    artifacts = artifacts_behind(place) if place else []
    with st.container(border=True, key="card"):
        st.table(facts(board, entry, row.run, store) | trainings(artifacts, store), border="horizontal", alt="system")
        models(artifacts, row)
        if st.toggle("The command that makes it again", key="card_rerun"):
            again(store, row, artifacts)


def facts(board: Board, entry: Entry, run: TrackedRow, store: StoreView) -> dict[str, str]:
    """Labels, settings, ranks, measures and costs: what each is -> Markdown.

    Args:
        run: the system's newest.
    """
    known = {head: entry.labels[name] for name, head in HEADS.items()} | {"Settings": entry.note}
    known[f"Rank by {board.ranked.head}"] = rank_text(board, entry)
    known |= {column.head: measured(board, entry, column) for column in board.columns}
    paid = {name: board.cost(entry, name) for name in (*COSTS, *RECALLS)}
    known |= {name: cost_text(name, cost) for name, cost in paid.items() if cost is not None}
    runs = sorted(entry.runs(board.view.places).values(), key=lambda row: row.seed.rjust(9))
    links = " · ".join(link(store.link(row.run), row.seed.strip() or row.run.run_id[:8]) for row in runs)
    return {head: markdown_text(text) for head, text in known.items() if text} | {"Runs, by seed": links}


def trainings(artifacts: Sequence[Artifact], store: StoreView) -> dict[str, str]:
    """Links to the runs of the trainings behind the system, where MLflow draws their curves; as Markdown."""
    runs = {run.tags.get("midmask.fingerprint"): run for run in store.runs if run.status == "finished"}
    links = [
        link(store.link(run), artifact.record["step"])
        for artifact in artifacts
        if artifact.record["step"] in TRAININGS and (run := runs.get(artifact.fingerprint))
    ]
    return {"Trainings, with their curves": " · ".join(links)} if links else {}


def models(artifacts: Sequence[Artifact], row: LeaderboardRow) -> None:
    """Draws the commands that load the system's model and search with it."""
    trained = [artifact for artifact in artifacts if artifact.record["step"] in ("finetune", "adopt", "pretrain")]
    if not trained:
        st.caption("It has no model folder: nothing was trained for it, or the storage is not reachable from here.")
        return
    folder = str(trained[-1].place / "model")
    corpus = next((name for artifact in artifacts if (name := corpus_name(artifact))), row.place.corpus)
    st.markdown("Its model, for sentence-transformers and for a search from the terminal:")
    st.code(shlex.join(["midmask", "search", folder, "--corpus", corpus]), language="bash", wrap_lines=True)


def again(store: StoreView, row: LeaderboardRow, artifacts: Sequence[Artifact]) -> None:
    """Draws the command that evaluates the system again, from the recipe that its run has saved."""
    run = row.run
    recipe = artifact_file(store.uri, run.run_id, RECIPE_FILE)
    if recipe is None:
        st.warning(f"The run has no {RECIPE_FILE}: it was made before runs saved their recipes. Its params name all.")
        return
    split = str(artifacts[-1].result.get("split", "")) if artifacts else ""  # a slice of a split lies with it
    arguments = command_again(run, str(recipe), split or row.place.split, artifacts)
    command = shlex.join(["python", *arguments, "--tracking-uri", redacted(store.uri)])
    st.code(command, language="bash", wrap_lines=True)
    commit = run.tags.get("mlflow.source.git.commit", "")
    at = f", at commit {commit}" if commit else ""
    evaluated = artifacts[-1].fingerprint if artifacts else row.tag("fingerprint")
    st.caption(
        f"In the project's folder{at}. With `--dry-run` it prints steps and fingerprints; the evaluation's was "
        f"{evaluated}. What the storage holds is not computed again."
    )
