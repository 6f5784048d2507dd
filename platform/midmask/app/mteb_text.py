"""What is told of imported results of MTEB: how many there are, and the models' ranks."""

from collections.abc import Sequence

from midmask.app.mteb_rows import MtebImport, TaskRanking
from midmask.evaluation.rendering import markdown
from midmask.exchange.mteb_files import MAIN

SHOWN = 8
"""Names that a list has; of the others, their number."""


def import_sentence(found: MtebImport) -> str:
    """How many models and results there are, and how many files were left out."""
    results = sum(len(model.results) for model in found.models)
    text = f"Models: {len(found.models):,}, with {results:,} results; new on the leaderboard: {found.written:,}."
    if left := found.others:
        text += f" Left out, since they are of another kind than retrieval: {len(left):,} ({_listed(left)})."
    return text


def rank_table(ranking: TaskRanking) -> str:
    """Rank, mean and the ranks that the tests allow, the best model first."""
    if not ranking.ranks:
        return "No two models have all tasks of one of them, so none is ranked."
    rows = [
        [name, str(one.rank), f"{one.allowed.best}-{one.allowed.worst}", f"{one.mean:.4f}"]
        for name, one in ranking.ranks.items()
    ]
    head = ["model", "rank", "ranks allowed", f"mean {MAIN}"]
    caption = (
        f"Collections that all of these have: {len(ranking.tasks):,} ({_listed(ranking.tasks)}). Ranks allowed: "
        "those that Wilcoxon's signed-rank tests over collections leave (all pairs, Holm, 0.05); of fewer than six "
        "collections, all."
    )
    if ranking.others:
        caption += f" Not ranked, since they lack one of the collections: {_listed(ranking.others)}."
    return f"{markdown(head, rows)}\n\n{caption}"


def _listed(names: Sequence[object]) -> str:
    """The first of them, and how many there are."""
    more = f" and {len(names) - SHOWN:,} others" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more
