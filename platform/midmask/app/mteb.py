"""Results of MTEB as rows of the leaderboard, a run for each model with all its tasks; the models' ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from midmask.app.run_contents import FOLDER_TAGS
from midmask.core.config import fingerprint
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.ranks import TaskRank, task_ranks
from midmask.exchange.mteb_files import MAIN, MtebResult, read_result, result_files
from midmask.tracking.names import collection_key, metric_key
from midmask.tracking.runs import Tracker

STEP = "import_mteb"


@dataclass(frozen=True)
class MtebModel:
    """A model in one revision, with its results."""

    name: str
    revision: str
    results: Mapping[Path, MtebResult]  # file -> its contents, one task each

    @property
    def values(self) -> dict[str, float]:
        """`COLLECTION SPLIT` -> nDCG@10."""
        return {
            f"{result.corpus(subset)} {split}": measures[MAIN]
            for result in self.results.values()
            for (split, subset), measures in result.measures.items()
            if MAIN in measures
        }


@dataclass(frozen=True)
class MtebImport:
    """The outcome of an import of MTEB results."""

    models: Sequence[MtebModel]
    written: int  # number of models that are new on the leaderboard
    others: Sequence[Path]  # files of tasks other than retrieval


def import_results(places: Sequence[Path], tracking_uri: str, folder: Path) -> MtebImport:
    """Writes what these files and folders hold into a store of tracked runs, unless it is there.

    Args:
        folder: of the runs' files, where the store is a file.

    Raises:
        UserError: for a place that is not there, a damaged file, or one of another layout; nothing is imported then.
    """
    models, others = read_models(result_files([place.expanduser() for place in places]))
    with Tracker(tracking_uri, folder) as tracker:
        return MtebImport(models, track_models(models, tracker), others)


def read_models(files: Sequence[Path]) -> tuple[list[MtebModel], list[Path]]:
    """The models of these files, in order of their first; and the files of tasks of another kind than retrieval.

    Raises:
        UserError: as `read_result`; for two files of one model, revision and task; and where no file is of retrieval.
    """
    by_model: dict[tuple[str, str], dict[Path, MtebResult]] = {}
    others = []
    for file in files:
        result = read_result(file)
        if not result.measures:
            others.append(file)
            continue
        results = by_model.setdefault((result.model, result.revision), {})
        for earlier, earlier_result in results.items():
            if earlier_result.task == result.task:
                raise UserError(f"{earlier} and {file}: both are {result.model} on {result.task}; give one of them")
        results[file] = result
    if not by_model:
        raise UserError(f"{others[0]}: no retrieval task among {len(others):,} files; they need scores as ndcg_at_10")
    return [MtebModel(*key, results) for key, results in by_model.items()], others


def track_models(models: Sequence[MtebModel], tracker: Tracker) -> int:
    """Writes a run for each model whose results are not tracked yet; returns their number."""
    written = 0
    for model in models:
        contents = {f"{result.task}/{result.dataset_revision}": _plain(result) for result in model.results.values()}
        identity = fingerprint({"model": model.name, "revision": model.revision, "results": contents})
        if tracker.find(identity, step=STEP).finished is None:
            _track(model, identity, tracker)
            written += 1
    return written


@dataclass(frozen=True)
class TaskRanking:
    """Ranks of models over the tasks that all of them have."""

    tasks: Sequence[str]  # that all ranked models have
    ranks: Mapping[str, TaskRank]  # by model name, the best first
    others: Sequence[str]  # models that lack one of the tasks


def rank_models(models: Sequence[MtebModel]) -> TaskRanking:
    """The models' ranks over tasks that all of them have: of the sets of tasks that single models have, the one that
    most results belong to (tasks × models with all of them). No ranks where no two models share such a set.
    """
    values = {_called(model, models): model.values for model in models}

    def whole(tasks: frozenset[str]) -> list[str]:
        return [name for name, model_values in values.items() if tasks <= model_values.keys()]

    sets = dict.fromkeys(frozenset(model_values) for model_values in values.values() if model_values)
    tasks = max(
        (task_set for task_set in sets if len(whole(task_set)) > 1),
        key=lambda task_set: len(whole(task_set)) * len(task_set),
        default=None,
    )
    if tasks is None:
        return TaskRanking([], {}, list(values))
    ranked = {name: {task: values[name][task] for task in sorted(tasks)} for name in whole(tasks)}
    return TaskRanking(sorted(tasks), task_ranks(ranked, MAIN), [name for name in values if name not in ranked])


def _called(model: MtebModel, models: Sequence[MtebModel]) -> str:
    alone = sum(other.name == model.name for other in models) == 1
    return model.name if alone else f"{model.name} {model.revision[:8]}"


def _track(model: MtebModel, identity: str, tracker: Tracker) -> None:
    """Writes one run for a model. A collection is identified by its revision in MTEB, so it gets its own column: a
    folder of the same name may hold other passages and judgements.
    """
    about = {"midmask.job": "import-mteb", "midmask.step": STEP, "midmask.fingerprint": identity}
    tags = {**FOLDER_TAGS, **about, "midmask.recipe": model.name, "midmask.representation": "MTEB"}
    with tracker.run(f"mteb-{model.name}", tags=tags, params={"mteb.revision": model.revision}) as run:
        for file, result in model.results.items():
            for (split, subset), measures in result.measures.items():
                corpus = result.corpus(subset)
                run.log({metric_key(corpus, split, name): value for name, value in measures.items()}, step=0)
                run.tag({collection_key(corpus): f"mteb:{result.dataset_revision}"})
            run.log_file(file, "mteb")


def _plain(result: MtebResult) -> dict[str, Mapping[str, float]]:
    return {f"{split}/{subset}": measures for (split, subset), measures in result.measures.items()}


SHOWN = 8
"""Names that a list shows; the others are only counted."""


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
        [name, str(row.rank), f"{row.allowed.best}-{row.allowed.worst}", f"{row.mean:.4f}"]
        for name, row in ranking.ranks.items()
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
    """The first `SHOWN` names, and the number of the others."""
    more = f" and {len(names) - SHOWN:,} others" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more
