"""A recipe as a graph of steps: each step has its config, its inputs and its fingerprint.

Two recipes that agree on a step's config and inputs share the step: a sweep's trials share corpus and tokens, and a
baseline computed yesterday is found today. What a fingerprint follows from is settled here: the contents of the files
and folders that a recipe names, and what `precision = auto` means on this machine. Where steps run is decided elsewhere
(`backend`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from midmask.core.config import flatten, override
from midmask.corpora.config import CorpusConfig
from midmask.corpora.documents.passages import splitter
from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.precision import Precision, processor_precision
from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.changes import as_folder_reads
from midmask.experiment.graph import Step
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import (
    adopted,
    bm25_ranking,
    evaluation_step,
    fused_ranking,
    mining_step,
    ranking,
    tokens_like,
)
from midmask.experiment.steps import InitialConfig, PretrainConfig, untuned_config
from midmask.experiment.training_steps import Stages, Survey, pretraining_tokens
from midmask.mining.mine import MineConfig
from midmask.queries.pseudo_queries import PseudoQueriesConfig
from midmask.queries.terms import StatisticsConfig
from midmask.retrieve.encode import EncodeConfig
from midmask.retrieve.index import IndexFields
from midmask.retrieve.search import PoolFields
from midmask.store.artifact import load
from midmask.store.place import Place
from midmask.store.pretrained import model_folder


def find_precision(backbone: BackboneConfig) -> Mapping[str, Precision]:
    """What `auto` stands for with a backbone, as {"precision": …}: bf16, or still auto, which the device decides."""
    try:
        return processor_precision(shape_of(backbone).width)
    except UserError:  # a backbone that is not there is refused by `Recipe.check`
        return {"precision": "auto"}


def settle_precision(recipe: Recipe, precision: Precision) -> Recipe:
    """The recipe with this in place of every `auto`, but for teachers, whose encoders are others."""
    if precision == "auto":
        return recipe
    fields = [path for path, value in flatten(recipe).items() if path.endswith(".precision") and value == "auto"]
    return override(recipe, {path: precision for path in fields if ".teacher." not in path})


@dataclass(frozen=True)
class Plan:
    """The steps of one recipe by role; `initial` whether it is needed or not."""

    survey: Survey = field(compare=False)  # what was read for the plan
    corpus: Step  # of fine-tuning and evaluation, as `tokens`
    tokens: Step
    pretraining_tokens: Step  # `tokens`, unless the recipe names other collections or fine-tuning has one of its own
    initial: Step  # the encoder before any training
    pretrained: Step | None
    untuned: Step  # what fine-tuning begins with, as a retriever
    stages: tuple[Step, ...]  # in order
    precision: Precision  # what `auto` stands for

    @property
    def trainings(self) -> dict[str, Step]:
        """The trainings in order: `pretrain`, unless the recipe has no middle training, then `finetune.0`, …"""
        middle = {} if self.pretrained is None else {"pretrain": self.pretrained}
        return {**middle, **{f"finetune.{number}": stage for number, stage in enumerate(self.stages)}}

    def evaluation(self, config: EvaluateConfig, *, model: Step | None = None, on: Step | None = None) -> Step:
        """The evaluation of an encoder: the last stage's, unless another is given.

        Args:
            on: tokens of another collection (`elsewhere`); none: the one that was trained on.
        """
        tokens = on or self.tokens
        config = config.settled(self.precision)
        ranked = ranking(tokens, model or self.stages[-1], config, judged="any")
        if config.bm25_share:
            ranked = fused_ranking(ranked, self._bm25_ranking(config, tokens), config)
        return evaluation_step(ranked, tokens.inputs["corpus"], config)

    def bm25_evaluation(self, config: EvaluateConfig, *, on: Step | None = None) -> Step:
        """BM25 on the recipe's corpus, ranked to the same depth: a row of its own beside the trained systems, whatever
        index those are searched with.

        Args:
            on: tokens of another collection (`elsewhere`).
        """
        tokens = on or self.tokens
        changes = {"bm25_share": 0.0, "fusion": "rrf", **IndexFields().model_dump(), **PoolFields().model_dump()}
        words = config.model_copy(update=changes)
        return evaluation_step(self._bm25_ranking(words, tokens), tokens.inputs["corpus"], words)

    def _bm25_ranking(
        self, config: EvaluateConfig | MineConfig, tokens: Step, judged: Literal["any", "relevant"] = "any"
    ) -> Step:
        titles: bool = self.tokens.config.titles  # type: ignore[attr-defined]
        return bm25_ranking(tokens.inputs["corpus"], config, titles=titles, judged=judged)

    def elsewhere(self, corpus: CorpusConfig) -> Step:
        """The tokens of a collection that is only searched ("zero-shot"), by the tokenizer of the training.

        Raises:
            UserError: if the collection is not there.
        """
        return tokens_like(self.tokens, self.tokens.config, self.survey.collection(corpus))  # type: ignore[arg-type]

    def mining(self, config: MineConfig, *, model: Step | None) -> Step:
        """Hard negatives from the ranking of an encoder, or of BM25 if there is none."""
        config = config.settled(self.precision)
        if model is None:
            ranked = self._bm25_ranking(config, self.tokens, judged="relevant")
        else:
            ranked = ranking(self.tokens, model, config, judged="relevant")
        return mining_step({"ranked0": ranked}, self.corpus, config)


def plan(
    recipe: Recipe,
    survey: Survey | None = None,
    *,
    share: float = 1.0,
    resume: Step | None = None,
) -> Plan:
    """The steps of a recipe.

    Args:
        survey: the same for all recipes of a job, so that each place is read once; none: one for this recipe.
        share: with less than 1, middle training stops after that share of its steps, as a rung of a sweep.
        resume: the pre-training of a smaller share, to go on from.
    """
    survey = survey or Survey()
    precision: Precision = survey.find(find_precision, recipe.backbone)["precision"]
    recipe = settle_precision(recipe, precision)
    corpus = survey.collection(recipe.corpus)
    tokens = Step("tokenise", recipe.tokens, {"corpus": corpus}, content=survey.folder(recipe.tokens.tokenizer))
    read = pretraining_tokens(recipe, tokens, survey)
    both = {"corpus": read.inputs["corpus"], "tokens": read}
    queries = recipe.pseudo_queries
    derived = {
        "spans": Step("spans", recipe.spans, both, content=splitter()),
        "pseudo_queries": Step(
            "pseudo_queries", queries, both, content=survey.find(PseudoQueriesConfig.content, queries)
        ),
        "weights": _weights(recipe, read),
    }
    untrained = InitialConfig(backbone=recipe.backbone, seed=recipe.pretrain.seed)
    initial = Step("initial", untrained, {"tokens": tokens}, content=survey.folder(recipe.backbone.name))
    pretrained = _plan_pretraining(recipe, {"corpus": corpus, "tokens": read}, derived, survey, share, resume)
    stages = Stages(recipe, tokens, pretrained, survey).steps()
    untuned = Step("untuned", untuned_config(recipe), {"start": pretrained or initial, "tokens": tokens})
    return Plan(survey, corpus, tokens, read, initial, pretrained, untuned, stages, precision)


def rungs(recipe: Recipe, shares: tuple[float, ...], survey: Survey) -> list[Plan]:
    """One plan per share of the pre-training, ascending, each going on where the one before it stopped."""
    plans: list[Plan] = []
    for share in sorted(shares):
        plans.append(plan(recipe, survey, share=share, resume=plans[-1].pretrained if plans else None))
    return plans


def _weights(recipe: Recipe, tokens: Step) -> Step:
    """Term weights, from the words of the collection that the middle training reads."""
    statistics = Step("statistics", StatisticsConfig(), {"tokens": tokens})
    return Step("weigh", recipe.weights, {"tokens": tokens, "statistics": statistics})


def _plan_pretraining(
    recipe: Recipe,
    always: Mapping[str, Step],
    derived: Mapping[str, Step],
    survey: Survey,
    share: float,
    resume: Step | None,
) -> Step | None:
    """The pre-training, with `always` and, of the derived artifacts, those that are read."""
    if recipe.objective is None:
        return None
    steps = recipe.pretrain.steps
    stop = None if share >= 1 else max(1, round(share * steps))
    config = PretrainConfig(
        backbone=recipe.pretrained_backbone,
        objective=recipe.objective,
        train=recipe.pretrain,
        stop_after=stop,
        excerpt=recipe.excerpt,
    )
    form = recipe.objective.row_form()
    names = {form.rows, "weights"} if form.term_weights else {form.rows}
    inputs = {**always, **{name: step for name, step in derived.items() if name in names}}
    if form.teacher is not None:
        inputs["vectors"] = _teacher_vectors(recipe, form.teacher, always["tokens"].inputs["corpus"], survey)
    places = {place: survey.folder(place) for place in recipe.objective.places()}
    content = {**survey.folder(recipe.backbone.name), **places}
    return Step("pretrain", config, inputs, content=content, resume=resume, path="pretrain")


def _teacher_vectors(recipe: Recipe, name: str, corpus: Step, survey: Survey) -> Step:
    """The dense vectors of a collection's passages by an encoder from elsewhere. It reads them by its own tokenizer and
    as far as it can, with titles where the recipe has them.
    """
    folder, content = model_folder(name, field="objective.teacher").absolute(), survey.folder(name)
    whole = recipe.model_copy(update={"excerpt": None})
    read = as_folder_reads(whole, folder, ("tokens.titles",)).tokens.model_copy(update={"tokenizer": name})
    tokens = Step("tokenise", read, {"corpus": corpus}, content=content)
    config = EncodeConfig(side="passages", threads=recipe.evaluation.threads)
    return Step("encode", config, {"model": adopted(str(folder), content), "tokens": tokens})


def keep_stages(trainings: Mapping[str, Step], storage: Place, folder: Place) -> None:
    """Copies each finished training's model into a folder of its name, with the heads that the next one drops."""
    for name, step in trainings.items():
        (folder / name).upload((load(step.place(storage)).place / "model").local())
