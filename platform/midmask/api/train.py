"""`midmask.train`: a recipe on a corpus, in this process or on a Ray cluster."""

from collections.abc import Mapping
from pathlib import Path

from midmask.api.catalogue import as_changes, check_paths, recipe_named
from midmask.api.corpus import Corpus
from midmask.api.run import Run
from midmask.api.storage import compute, open_store, runner_in
from midmask.corpora import CorpusConfig, judged_splits
from midmask.errors import UserError
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.needed_splits import refuse_missing_splits
from midmask.experiment.plan import Plan, plan
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import override


def train(
    recipe: str,
    corpus: Corpus,
    *,
    protocol: str | None = None,
    backbone: str | Path | None = None,
    seed: int | None = None,
    settings: Mapping[str, object] | None = None,
    storage: str | Path | None = None,
    ray: bool = False,
    progress: bool = True,
) -> Run:
    """Trains a recipe's encoder: its middle training on all documents of the corpus, then, if the corpus has queries
    and judgements to train on, its fine-tuning. What is in the store already is not computed again.

    Args:
        recipe: a name of `midmask.list_recipes()`, such as "retromae"; "none" has no middle training.
        protocol: fine-tuning in place of the recipe's own, a name of `midmask.list_protocols()`.
        backbone: Hugging Face folder or cached hub id to start from; none: a tiny encoder with fresh weights.
        seed: of everything random; none: the recipe's.
        settings: dotted path -> value, such as {"pretrain.steps": 2000}; `midmask.settings(recipe)` lists the paths,
            which are those of the jobs' --set.
        storage: folder or URI of the store; none: MIDMASK_STORAGE, else `midmask-store` in the working directory.
        ray: on the cluster that RAY_ADDRESS names (else on a local Ray), with a training worker for each GPU. The
            result is the same.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for an unknown recipe, protocol or setting, with the nearest name; for an impossible value; or if the
            recipe has nothing to train on in this corpus.
    """
    if not isinstance(corpus, Corpus):
        raise UserError(
            f"corpus: a {type(corpus).__name__}; make a corpus of it, with midmask.Corpus.from_texts(texts) or "
            "midmask.Corpus.from_folder(path)"
        )
    place = open_store(storage)
    made = _recipe(recipe, corpus.in_store(place), protocol, backbone, seed, settings)
    planned = plan(made)
    model = _model(made, planned, protocol)
    refuse_missing_splits([model])
    runner = runner_in(place, ray=ray, progress=progress)
    return Run(made, planned, model, compute(runner, model), runner)


def _recipe(
    name: str,
    corpus: CorpusConfig,
    protocol: str | None,
    backbone: str | Path | None,
    seed: int | None,
    settings: Mapping[str, object] | None,
) -> Recipe:
    """The recipe with all that was asked for; settings are last, so they win."""
    recipe = recipe_named(name, protocol)
    changes = as_changes(settings)
    check_paths(recipe, changes)
    if backbone is not None:
        changes = {"backbone.name": str(backbone), **changes}
    if seed is not None:
        changes = {**recipe.all_seeds(seed), **changes}
    made = apply_changes(override(recipe, {"corpus": corpus.model_dump()}), changes)
    made.check()
    return made


def _model(recipe: Recipe, planned: Plan, protocol: str | None) -> Step:
    """The step whose model the run gives: the last stage's, or, without queries to train on, the middle training's.

    Raises:
        UserError: if there is nothing to train.
    """
    if "train" in judged_splits(recipe.corpus):
        return planned.stages[-1]
    needs = "Corpus.from_texts(texts, queries=…, relevant=…) gives it some"
    if protocol is not None:
        raise UserError(f"protocol = {protocol!r}: {recipe.corpus.short_name} has no queries to fine-tune on; {needs}")
    if planned.pretrained is None:
        raise UserError(
            f"recipe {recipe.name!r} has no middle training, and {recipe.corpus.short_name} has no queries to fine-tune"
            f" on; {needs}, or choose a recipe such as 'retromae'"
        )
    return planned.untuned
