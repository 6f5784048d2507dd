"""What is told of imported results of MTEB: how many there are, and the models' ranks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from midmask.app.mteb_rows import MtebModel
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.task_ranks import TaskRank
from midmask.exchange.mteb_files import MAIN

SHOWN = 3
"""Names of files that were left out."""


def import_sentence(models: Sequence[MtebModel], written: int, others: Sequence[Path]) -> str:
    """Args: written: how many models are new on the leaderboard. others: files of other tasks than retrieval."""
    results = sum(len(model.results) for model in models)
    text = f"Models: {len(models):,}, with {results:,} results; new on the leaderboard: {written:,}."
    if others:
        listed = ", ".join(str(file) for file in others[:SHOWN]) + (" …" if len(others) > SHOWN else "")
        text += f" Left out, since they are of another kind than retrieval: {len(others):,} ({listed})."
    return text


def rank_table(tasks: Sequence[str], ranks: Mapping[str, TaskRank]) -> str:
    """Rank, mean and the ranks that the tests allow, the best model first."""
    if not tasks:
        return "The models share no task, so they are not ranked."
    rows = [
        [name, str(one.rank), f"{one.allowed.best}-{one.allowed.worst}", f"{one.mean:.4f}"]
        for name, one in ranks.items()
    ]
    head = ["model", "rank", "ranks allowed", f"mean {MAIN}"]
    caption = (
        f"Over the {len(tasks):,} collections that all have: {', '.join(tasks)}. Ranks allowed: those that Wilcoxon's "
        "signed-rank tests over collections leave (all pairs, Holm, 0.05); of fewer than six collections, all."
    )
    return f"{markdown(head, rows)}\n\n{caption}"
