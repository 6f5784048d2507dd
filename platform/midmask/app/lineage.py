"""What steps read and make, for MLflow: the collections and the models that are nearest behind a step.

    prepare ─► tokenise ─► pretrain ─► finetune ─► encode ─► search ─► evaluate
    dataset                model       model                           dataset (eval), model

A walk back from a step ends at models, so a fine-tuning reads its own corpus and one pre-trained model, not what that
was trained on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from midmask.artifact import RECORD, Place, load
from midmask.corpora import CorpusConfig
from midmask.derived.given_tokens import ReadTokensConfig
from midmask.experiment.step import Step
from midmask.identity import flatten
from midmask.tracking import Dataset, TrackedModel


def behind(step: Step) -> tuple[list[Step], list[Step]]:
    """(collections, models) nearest behind a step, each once; a collection is what itself reads."""
    collections: dict[str, Step] = {step.fingerprint: step} if step.kind.is_collection else {}
    models: dict[str, Step] = {}
    waiting = _read(step)
    while waiting:
        one = waiting.pop(0)
        if one.kind.model:
            models[one.fingerprint] = one
        elif one.kind.is_collection:
            collections[one.fingerprint] = one
        else:
            waiting += _read(one)
    return list(collections.values()), list(models.values())


def _read(step: Step) -> list[Step]:
    """The inputs that are read; `like` only lends its vocabulary."""
    left_out = ("like", *step.kind.health_inputs)
    return [source for name, source in step.inputs.items() if name not in left_out]


def datasets_of(steps: Iterable[Step], storage: Place) -> list[Dataset]:
    """The collections that these steps read, each once, with all that it was read for as its context."""
    found: dict[str, Dataset] = {}
    for step in steps:
        context = step.kind.context
        for source in behind(step)[0]:
            known = found.setdefault(source.fingerprint, _dataset(source, storage, context))
            if context not in known.context.split(", "):
                found[source.fingerprint] = replace(known, context=f"{known.context}, {context}")
    return list(found.values())


def all_datasets(targets: Iterable[Step], storage: Place) -> list[Dataset]:
    """The collections of everything that is trained and evaluated for these steps."""
    steps = {step.fingerprint: step for target in targets for step in target.upstream() if step.kind.context != "data"}
    return datasets_of(steps.values(), storage)


def _dataset(source: Step, storage: Place, context: str) -> Dataset:
    place = source.place(storage)
    result = load(place).result if (place / RECORD).exists() else {}
    counts = {name: value for name, value in result.items() if isinstance(value, int) and not isinstance(value, bool)}
    return Dataset(collection_name(source), source.fingerprint, _source(source), context, counts)


def collection_name(source: Step) -> str:
    """As metrics and tables bear it."""
    if isinstance(source.config, CorpusConfig):
        return source.config.short_name
    return _source(source).rstrip("/").rsplit("/", 1)[-1]


def _source(source: Step) -> str:
    """Where it was read from: what a user would type, or the folder of given tokens."""
    if isinstance(source.config, CorpusConfig):
        return source.config.name
    assert isinstance(source.config, ReadTokensConfig), source.name
    return source.config.folder


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
    """`pretrain-retromae-tiny-c0ffee`: stage, recipe, backbone (BM25 has none) and how the fingerprint begins."""
    backbone = tags["midmask.backbone"].rstrip("/").rsplit("/", 1)[-1]
    about = [tags["midmask.recipe"], *([backbone] if backbone != "none" else [])]
    return "-".join([stage, *about, identity[:6]])


def step_name(step: Step, tags: Mapping[str, str]) -> str:
    """The name of a step's run. What is done before any model is there bears the collection's name, not a recipe's."""
    collections, models = behind(step)
    if models or step.kind.model or "bm25" in (tags["midmask.recipe"], step.name):
        return run_name(step.name, tags, step.fingerprint)
    return "-".join([step.name, "+".join(map(collection_name, collections)), step.fingerprint[:6]])
