"""A recipe as a graph of steps: each step has its config, its inputs and its fingerprint.

Two recipes that agree on a step's config and inputs share the step: a sweep's trials share corpus and tokens, and a
baseline computed yesterday is found today. What a fingerprint follows from is settled here: the contents of the files
and folders that a recipe names, and what `precision = auto` means on this machine. Where steps run is decided elsewhere
(`backend`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from midmask.core.config import flatten, override
from midmask.corpora import CorpusConfig, corpus_identity
from midmask.corpora.writer import export_beir
from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.precision import Precision, processor_precision
from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig
from midmask.exchange.passage_files import write_spans
from midmask.experiment.graph import Step
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import (
    bm25_ranking,
    evaluation_step,
    folder_content,
    fused_ranking,
    mining_step,
    ranking,
    tokens_like,
)
from midmask.experiment.steps import InitialConfig, MergeConfig, PretrainConfig, untuned_config
from midmask.experiment.training_steps import (
    Stages,
    Survey,
    collections_content,
    pretraining_tokens,
    stages_content,
)
from midmask.mining.mine import MineConfig
from midmask.queries.document_spans import SpansConfig, span_texts
from midmask.queries.pseudo_queries import PseudoQueriesConfig
from midmask.queries.word_statistics import StatisticsConfig
from midmask.retrieve.index import IndexFields
from midmask.retrieve.search import PoolFields
from midmask.store.artifact import load
from midmask.store.place import Place


@dataclass(frozen=True)
class Contents:
    """Fingerprints of the files and folders that a recipe names."""

    corpus: Mapping[str, Any]
    pretrain_on: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    backbone: Mapping[str, Any]
    objective: Mapping[str, Any]
    spans: Mapping[str, Any]
    pseudo_queries: Mapping[str, Any]
    stages: Mapping[str, Any]


def contents_of(recipe: Recipe, survey: Survey) -> Contents:
    """Reads the fingerprints of the files and folders that the recipe names.

    Raises:
        UserError: if the corpus is not there, or a source of spans, pseudo-queries, negatives or scores.
    """
    objective = recipe.objective
    return Contents(
        corpus=survey.find(corpus_identity, recipe.corpus),
        pretrain_on=collections_content(recipe, survey),
        tokenizer=survey.find(folder_content, recipe.tokens.tokenizer),
        backbone=survey.find(folder_content, recipe.backbone.name),
        objective={place: survey.find(folder_content, place) for place in objective.places()} if objective else {},
        spans=survey.find(SpansConfig.content, recipe.spans),
        pseudo_queries=survey.find(PseudoQueriesConfig.content, recipe.pseudo_queries),
        stages=stages_content(recipe, survey),
    )


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
    """The steps of one recipe by role; `spans`, `pseudo_queries` and `initial` whether they are needed or not."""

    survey: Survey = field(compare=False)  # what was read for the plan
    corpus: Step  # of fine-tuning and evaluation, as `tokens`
    tokens: Step
    pretraining_tokens: Step  # `tokens`, unless the recipe names other collections or fine-tuning has one of its own
    spans: Step
    pseudo_queries: Step
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
        return _tokens_of(corpus, self.tokens, self.survey)

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
    tuned_on: CorpusConfig | None = None,
) -> Plan:
    """The steps of a recipe.

    Args:
        survey: the same for all recipes of a job, so that each place is read once; none: one for this recipe.
        share: with less than 1, middle training stops after that share of its steps, as a rung of a sweep.
        resume: the pre-training of a smaller share, to go on from.
        tuned_on: the collection of fine-tuning and evaluation in place of the recipe's corpus. The middle training is
            the recipe's, and its tokenizer reads this collection too.
    """
    survey = survey or Survey()
    precision: Precision = survey.find(find_precision, recipe.backbone)["precision"]
    recipe = settle_precision(recipe, precision)
    held = contents_of(recipe, survey)
    corpus = Step("prepare", recipe.corpus, content=held.corpus)
    tokens = Step("tokenise", recipe.tokens, {"corpus": corpus}, content=held.tokenizer)
    read = pretraining_tokens(recipe, tokens, held.pretrain_on)
    both = {"corpus": read.inputs.get("corpus", corpus), "tokens": read}
    derived = {
        "spans": Step("spans", recipe.spans, both, content=held.spans),
        "pseudo_queries": Step("pseudo_queries", recipe.pseudo_queries, both, content=held.pseudo_queries),
        "weights": _weights(recipe, read),
    }
    untrained = InitialConfig(backbone=recipe.backbone, seed=recipe.pretrain.seed)
    initial = Step("initial", untrained, {"tokens": tokens}, content=held.backbone)
    always = {"corpus": corpus, "tokens": read, **({"probed": tokens} if read is not tokens else {})}
    pretrained = _plan_pretraining(recipe, always, derived, held, share, resume)
    start = _merged(recipe, pretrained, initial)
    tuned = tokens if tuned_on is None else _tokens_of(tuned_on, tokens, survey)
    stages = Stages(recipe, tuned, start, held.backbone, held.tokenizer, held.stages).steps()
    untuned = Step("untuned", untuned_config(recipe), {"start": start or initial, "tokens": tuned})
    return Plan(
        survey,
        tuned.inputs["corpus"],
        tuned,
        read,
        derived["spans"],
        derived["pseudo_queries"],
        initial,
        pretrained,
        untuned,
        stages,
        precision,
    )


def _tokens_of(corpus: CorpusConfig, like: Step, survey: Survey) -> Step:
    """A collection as a model reads it that was trained on the tokens `like`."""
    collection = Step("prepare", corpus, content=survey.find(corpus_identity, corpus))
    return tokens_like(like, like.config, collection)  # type: ignore[arg-type]


def rungs(recipe: Recipe, shares: tuple[float, ...], survey: Survey) -> list[Plan]:
    """One plan per share of the pre-training, ascending, each going on where the one before it stopped."""
    plans: list[Plan] = []
    for share in sorted(shares):
        plans.append(plan(recipe, survey, share=share, resume=plans[-1].pretrained if plans else None))
    return plans


def _merged(recipe: Recipe, pretrained: Step | None, initial: Step) -> Step | None:
    """What fine-tuning begins with: the middle training's encoder, or its mean with what it began as."""
    if pretrained is None or not recipe.merge:
        return pretrained
    return Step("merge", MergeConfig(start_share=recipe.merge), {"start": pretrained, "initial": initial})


def _weights(recipe: Recipe, tokens: Step) -> Step:
    """Term weights, from the words of the collection that the middle training reads."""
    statistics = Step("statistics", StatisticsConfig(), {"tokens": tokens})
    return Step("weigh", recipe.weights, {"tokens": tokens, "statistics": statistics})


def _plan_pretraining(
    recipe: Recipe,
    always: Mapping[str, Step],
    derived: Mapping[str, Step],
    held: Contents,
    share: float,
    resume: Step | None,
) -> Step | None:
    """The pre-training, with tokens, what a probe needs, and of the derived artifacts those that are read."""
    if recipe.objective is None:
        return None
    steps = recipe.pretrain.steps
    stop = None if share >= 1 else max(1, round(share * steps))
    config = PretrainConfig(
        backbone=recipe.pretrained_backbone,
        objective=recipe.objective,
        train=recipe.pretrain,
        stop_after=stop,
        self_distillation=recipe.self_distillation,
        excerpt=recipe.excerpt,
    )
    form = recipe.objective.row_form()
    names = {form.rows, "weights"} if form.term_weights else {form.rows}
    inputs = {**always, **{name: step for name, step in derived.items() if name in names}}
    return Step("pretrain", config, inputs, content={**held.backbone, **held.objective}, resume=resume, path="pretrain")


SPANS = "spans.jsonl.gz"


def export(steps: Plan, storage: Place, folder: Place, derived: Collection[str]) -> None:
    """Writes the corpus as a BEIR folder, and into it the spans (by `exchange`), if they are among `derived`.

    The steps have to be finished.
    """
    export_beir(load(steps.corpus.place(storage)).place, folder)
    if "spans" in derived and isinstance(steps.spans.config, SpansConfig):
        inputs = {name: load(step.place(storage)) for name, step in steps.spans.inputs.items()}
        write_spans(folder / SPANS, span_texts(steps.spans.config, inputs, load(steps.spans.place(storage)).place))
