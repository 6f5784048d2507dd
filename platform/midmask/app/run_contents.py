"""The contents of the tracked runs of steps and systems: tags, metrics, files, and collections and models as inputs.

    prepare ─► tokenise ─► pretrain ─► finetune ─► encode ─► search ─► evaluate
    dataset                model       model                           dataset (eval), model

A walk back from a step ends at models, so a fine-tuning reads its own corpus and one pre-trained model, not what that
was trained on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from midmask.core.config import flatten
from midmask.corpora.config import CorpusConfig
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.costs import costs_of
from midmask.experiment.graph import Step, model_step
from midmask.experiment.report import usual_measure
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import AdoptConfig, TrainingConfig
from midmask.store.artifact import RECORD, Artifact, load
from midmask.store.place import Place
from midmask.store.pretrained import PRETRAINED, installed_folder
from midmask.store.tables import read_table
from midmask.tracking.lineage import Dataset, TrackedModel
from midmask.tracking.names import (
    ARTIFACT,
    RECIPE_FILE,
    artifact_key,
    collection_key,
    made_here_key,
    metric_key,
    queries_key,
)
from midmask.tracking.runs import TrackedRun
from midmask.training.trace import trace_summary


def behind(step: Step) -> tuple[list[Step], list[Step]]:
    """The nearest (collections, models) upstream of a step, each once; a collection is its own nearest."""
    collections: dict[str, Step] = {step.fingerprint: step} if step.kind.is_collection else {}
    models: dict[str, Step] = {}
    waiting = _read(step)
    while waiting:
        source = waiting.pop(0)
        if source.kind.model:
            models[source.fingerprint] = source
        elif source.kind.is_collection:
            collections[source.fingerprint] = source
        else:
            waiting += _read(source)
    return list(collections.values()), list(models.values())


def _read(step: Step) -> list[Step]:
    """The inputs of a step without `like`, which only lends its vocabulary, and without health inputs."""
    left_out = ("like", *step.kind.unread_inputs)
    return [source for name, source in step.inputs.items() if name not in left_out]


def datasets_of(steps: Iterable[Step], storage: Place) -> list[Dataset]:
    """The collections that these steps read, each once, with all that it was read for as its context."""
    datasets: dict[str, Dataset] = {}
    for step in steps:
        context = step.kind.context
        for source in behind(step)[0]:
            dataset = datasets.setdefault(source.fingerprint, _dataset(source, storage, context))
            if context not in dataset.context.split(", "):
                datasets[source.fingerprint] = replace(dataset, context=f"{dataset.context}, {context}")
    return list(datasets.values())


def all_datasets(targets: Iterable[Step], storage: Place) -> list[Dataset]:
    """The collections of everything that is trained and evaluated for these steps."""
    steps = {step.fingerprint: step for target in targets for step in target.upstream() if step.kind.context != "data"}
    return datasets_of(steps.values(), storage)


def _dataset(source: Step, storage: Place, context: str) -> Dataset:
    place = source.place(storage)
    result = load(place).result if (place / RECORD).exists() else {}
    counts = {name: value for name, value in result.items() if isinstance(value, int) and not isinstance(value, bool)}
    assert isinstance(source.config, CorpusConfig), source.name
    return Dataset(collection_name(source), source.fingerprint, source.config.name, context, counts)


def collection_name(source: Step) -> str:
    """The name of a collection in metrics and tables."""
    assert isinstance(source.config, CorpusConfig), source.name
    return source.config.short_name


def model_of(step: Step, storage: Place, tags: Mapping[str, str]) -> TrackedModel:
    """The model that a step makes, under the name of its run.

    Args:
        tags: of the recipe (`run_contents.base_tags`).
    """
    assert step.kind.model is not None, step.name
    return TrackedModel(
        name=run_name(step.name, tags, step.fingerprint),
        step=step.name,
        fingerprint=step.fingerprint,
        kind=step.kind.model,
        place=str(step.place(storage)),
        params=flatten(step.config),
        tags=tags,
    )


def run_name(stage: str, tags: Mapping[str, str], identity: str) -> str:
    """`pretrain-retromae-tiny-c0ffee`: stage, recipe, backbone if there is one, and how the fingerprint begins."""
    backbone = tags["midmask.backbone"].rstrip("/").rsplit("/", 1)[-1]
    about = [tags["midmask.recipe"], *([] if backbone in ("", "none") else [backbone])]
    return "-".join([stage, *about, identity[:6]])


def step_name(step: Step, tags: Mapping[str, str]) -> str:
    """The name of a step's run. What is done before any model is there bears the collection's name, not a recipe's."""
    collections, models = behind(step)
    if models or step.kind.model or "bm25" in (tags["midmask.recipe"], step.name):
        return run_name(step.name, tags, step.fingerprint)
    return "-".join([step.name, "+".join(map(collection_name, collections)), step.fingerprint[:6]])


def base_tags(job: str, recipe: Recipe) -> dict[str, str]:
    """The tags that every run of a job bears."""
    return {
        "midmask.job": job,
        "midmask.recipe": recipe.name,
        "midmask.objective": recipe.objective.name if recipe.objective else "none",
        "midmask.corpus": recipe.corpus.short_name,
        "midmask.pretrain_on": pretraining_sources(recipe),
        "midmask.backbone": recipe.backbone.name,
        "midmask.protocol": recipe.protocol,
        "midmask.representation": recipe.evaluation.name_of(recipe.representation.label),
        "midmask.seed": str(recipe.stages[-1].train.seed),
    }


def pretraining_sources(recipe: Recipe) -> str:
    """Short names of what the middle training reads, joined by +; "corpus" if that is the corpus itself, "none" if
    there is no middle training.
    """
    if recipe.objective is None:
        return "none"
    return "+".join(name.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1] for name in recipe.pretrain_on) or "corpus"


BM25_TAGS = {
    **dict.fromkeys(("midmask.recipe", "midmask.representation"), "bm25"),
    **dict.fromkeys(("midmask.objective", "midmask.pretrain_on", "midmask.backbone", "midmask.protocol"), "none"),
}
"""Tags of BM25's runs, in place of those of the recipe that it is held against."""


FOLDER_TAGS = dict.fromkeys(
    ("midmask.objective", "midmask.pretrain_on", "midmask.backbone", "midmask.protocol", "midmask.seed"), ""
)
"""Tags of an evaluated model folder, in place of a recipe's: how it was trained is not known."""

RUN_FILE_TAGS = {**FOLDER_TAGS, "midmask.representation": "run file"}
"""Tags of runs with another tool's ranked list; `midmask.recipe` is its system's name."""


def artifact_tag(artifact: Artifact) -> dict[str, str]:
    return {ARTIFACT: str(artifact.address)}


MODEL_PARAM = "model.fingerprint"
"""The param of an evaluated folder's contents, which tells folders of one name apart."""


def step_tags(step: Step) -> dict[str, str]:
    """The tags of one step's run. BM25 is a system of its own, whatever recipe it is held against, and so is a folder
    that was evaluated in place of a recipe's last stage.
    """
    tags = {"midmask.step": step.name, "midmask.fingerprint": step.fingerprint}
    if isinstance(step.config, EvaluateConfig):
        tags["midmask.split"] = step.config.split
    if is_bm25(step):
        return {**tags, **BM25_TAGS}
    folder = evaluated_folder(step)
    if folder is None:
        return tags
    assert isinstance(folder.config, AdoptConfig), folder.name
    return {**tags, **FOLDER_TAGS, "midmask.recipe": folder_name(folder.config.folder)}


def is_bm25(step: Step) -> bool:
    """Whether a step is BM25's search, or the evaluation of it."""
    return "bm25" in (step.name, *(source.name for source in step.inputs.values()))


def is_run_file(step: Step) -> bool:
    """Whether a step evaluates a ranked list of another tool."""
    return "ranked" in step.inputs and step.inputs["ranked"].name == "read_run"


def step_params(step: Step) -> dict[str, str]:
    """Params of one step's run beside those of its recipe."""
    folder = evaluated_folder(step)
    return {} if folder is None else {MODEL_PARAM: folder.fingerprint}


def evaluated_folder(step: Step) -> Step | None:
    """The folder whose vectors an evaluation searched; None for what was trained here, and for other steps."""
    model = model_step(step) if isinstance(step.config, EvaluateConfig) else None
    return model if model is not None and model.name == "adopt" else None


def folder_name(folder: str) -> str:
    """The name of a model folder as a system: the name of a pre-trained backbone, else the end of its path."""
    place = Path(folder)
    named = next((name for name in PRETRAINED if installed_folder(name) == place), None)
    return named or (f"{place.parent.name}/{place.name}" if place.name == "model" else place.name)


def log_result(run: TrackedRun, step: Step, artifact: Artifact, storage: Place, tags: Mapping[str, str]) -> None:
    """A finished step in its own run: an evaluation as `log_evaluation` has it; of any other step the model or the
    collection that it made, and of a training its curve. What a step counted is in its record and the job's output.

    Args:
        tags: of the recipe.
    """
    if step.name == "evaluate":
        log_evaluation(run, step, storage, tags)
        return
    if step.kind.trains:
        log_curve(run, step, artifact, first=step.resume.optimiser_steps if step.resume else 0)
    if step.kind.model:
        run.log_output_model(model_of(step, storage, tags), step.optimiser_steps)
    elif step.kind.is_collection:
        run.log_inputs(datasets_of([step], storage))
    run.tag(artifact_tag(artifact))


def log_curve(
    run: TrackedRun, step: Step, artifact: Artifact, *, first: int = 0, before: int = 0, if_begun: bool = False
) -> None:
    """Logs from a training's trace those of its reports that the run lacks: a kill or a long outage has lost them.

    Args:
        first: optimiser steps of the training that this one continues, which has another run.
        before: optimiser steps of earlier trainings in the same run.
        if_begun: whether to log nothing of a curve of which the run has no point.
    """
    assert isinstance(step.config, TrainingConfig), step.name
    stop, interval = step.optimiser_steps, step.config.train.log_every

    def points(logged: Collection[int]) -> Iterator[tuple[int, dict[str, float]]]:
        trace = None
        if if_begun and not any(before < at <= before + stop for at in logged):
            return
        for at in sorted({*range(first - first % interval + interval, stop, interval), stop}):
            if at + before not in logged:
                if trace is None:
                    trace = read_table(artifact.place / "trace.parquet").drop_columns(["rows"])
                begin = max(first, (at - 1) // interval * interval)
                window = trace.slice(begin, at - begin).to_pylist()
                yield at + before, metric_keys(step.name, trace_summary(window))

    run.log_lacking(f"{step.name}/loss", points)


def log_evaluation(run: TrackedRun, step: Step, storage: Place, tags: Mapping[str, str]) -> None:
    """What a run gets of a finished evaluation; a slice is like a split, by its own name.

        metrics CORPUS/SPLIT/MEASURE                   means
        metrics of `Costs`                             none for a run file, whose search's costs are not known
        per_query/CORPUS.SPLIT.parquet                 values of each query
        runs/CORPUS.SPLIT.trec.gz                      the ranked list
        tags midmask.artifact[/CORPUS/SPLIT]           the artifact, by which pages find texts, lists and traces
        tags midmask.collection/…, midmask.queries/…   tell columns of the leaderboard apart

    Args:
        tags: of the recipe.
    """
    artifact = load(step.place(storage))
    result = artifact.result
    corpus, split = result["corpus"], result["split"]
    run.tag({collection_key(corpus): step.inputs["corpus"].fingerprint})
    log_inputs(run, step, storage, tags)
    parts = {split: result, **result.get("slices", {})}
    folder = artifact.place.local()
    for part, part_result in parts.items():
        values = part_result["measures"]
        run.log({metric_key(corpus, part, measure): value for measure, value in values.items()}, step=0)
        run.log_file(folder / "per_query" / f"{corpus}.{part}.parquet", "per_query")
        run.tag(
            {artifact_key(corpus, part): str(artifact.address), queries_key(corpus, part): str(part_result["queries"])}
        )
    run.log_file(folder / "runs" / f"{corpus}.{split}.trec.gz", "runs")
    if not is_run_file(step):  # what another tool's list has cost is not known
        run.log(costs_of(step, storage).metrics(), step=0)
    run.tag(artifact_tag(artifact))
    if result["split_made_here"]:
        run.tag({made_here_key(corpus, part): "true" for part in parts})


def main_measure(result: Mapping[str, Any]) -> dict[str, float]:
    """The metric that a job's run has of an evaluation: MLflow shows that run alone until it is unfolded."""
    name = usual_measure(result["measures"])
    return {metric_key(result["corpus"], result["split"], name): result["measures"][name]}


def log_inputs(run: TrackedRun, step: Step, storage: Place, tags: Mapping[str, str]) -> None:
    """The collections and models that a step reads, as the run's inputs."""
    run.log_inputs(datasets_of([step], storage))
    for source in behind(step)[1]:
        run.log_input_model(model_of(source, storage, tags))


def log_recipe(run: TrackedRun, recipe: Recipe) -> None:
    """Saves the whole recipe in the run, so that `--recipe FILE` makes its result again."""
    run.log_text(recipe.model_dump_json(indent=1), RECIPE_FILE)


def log_report(run: TrackedRun, text: str) -> None:
    """A job's tables in its own run: as a file, and at the top of the run's page."""
    run.log_text(text, "report.md")
    run.describe(text)


def metric_keys(step: str, values: Mapping[str, float]) -> dict[str, float]:
    """Metric keys of a step's report: `pretrain/loss`, `finetune/tokens_per_second`."""
    return {f"{step}/{name.removeprefix('train/')}": value for name, value in values.items()}
