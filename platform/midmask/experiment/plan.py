"""A recipe as a graph of steps: each step has its config, its inputs and its fingerprint. Where steps run is decided
elsewhere (`backend`).

Two recipes that agree on a step's config and inputs share the step: a sweep's trials share corpus and tokens, and a
baseline computed yesterday is found today.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from midmask.corpora import CorpusConfig, corpus_identity
from midmask.derived.words import StatisticsConfig
from midmask.encoders.precision import Precision
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.consistency import kept_pairs
from midmask.experiment.contents import Contents, contents_of, weigh_config
from midmask.experiment.finetuning import Stages
from midmask.experiment.merge import MergeConfig
from midmask.experiment.precision import find_precision, settle_precision
from midmask.experiment.pretraining import pretraining_tokens
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted as adopted
from midmask.experiment.searching import (
    bm25_ranking,
    evaluation_step,
    fused_ranking,
    mining_step,
    ranking,
    tokens_like,
)
from midmask.experiment.step import Step as Step
from midmask.experiment.steps import InitialConfig, PretrainConfig
from midmask.experiment.survey import Survey
from midmask.experiment.untuned import untuned_config
from midmask.mining.mine import MineConfig
from midmask.retrieve.index import IndexFields
from midmask.retrieve.pool import PoolFields


@dataclass(frozen=True)
class Plan:
    """The steps of one recipe by role, `stages` in order; `spans`, `pseudo_queries` (those that a consistency filter
    keeps, if there is one) and `initial` (the encoder before any training) whether they are needed or not.
    corpus, tokens: of fine-tuning and evaluation. pretraining_tokens: what the middle training reads: `tokens`, unless
    the recipe names other collections or fine-tuning has one of its own. untuned: what fine-tuning begins with, as a
    retriever. survey: what was read for it. precision: what `auto` stands for.
    """

    survey: Survey = field(compare=False)
    corpus: Step
    tokens: Step
    pretraining_tokens: Step
    spans: Step
    pseudo_queries: Step
    initial: Step
    pretrained: Step | None
    untuned: Step
    stages: tuple[Step, ...]
    precision: Precision

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
        own = {"bm25_share": 0.0, "fusion": "rrf", **IndexFields().model_dump(), **PoolFields().model_dump()}
        words = config.model_copy(update=own)
        return evaluation_step(self._bm25_ranking(words, tokens), tokens.inputs["corpus"], words)

    def _bm25_ranking(self, config: EvaluateConfig, tokens: Step) -> Step:
        titles: bool = self.tokens.config.titles  # type: ignore[attr-defined]
        return bm25_ranking(tokens.inputs["corpus"], config, titles=titles, judged="any")

    def elsewhere(self, corpus: CorpusConfig) -> Step:
        """The tokens of a collection that is only searched ("zero-shot"), by the tokenizer of the training.

        Raises:
            UserError: if the collection is not there.
        """
        return _tokens_of(corpus, self.tokens, self.survey)

    def mining(self, config: MineConfig, *, model: Step | None = None) -> Step:
        """Hard negatives from a search with an encoder: the last stage's, unless another is given."""
        config = config.settled(self.precision)
        ranked = ranking(self.tokens, model or self.stages[-1], config, judged="relevant")
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
        "pseudo_queries": Step("pseudo_queries", recipe.pseudo_queries.all_pairs, both, content=held.pseudo_queries),
        "weights": _weights(recipe, both, held),
    }
    untrained = InitialConfig(backbone=recipe.backbone, seed=recipe.pretrain.seed)
    initial = Step("initial", untrained, {"tokens": tokens}, content=held.backbone)
    always = {"corpus": corpus, "tokens": read, **({"probed": tokens} if read is not tokens else {})}
    if (rank := recipe.pseudo_queries.keep_rank) is not None:
        on_all_pairs = _plan_pretraining(recipe, always, derived, held, 1.0, None)
        derived["pseudo_queries"] = kept_pairs(recipe, derived["pseudo_queries"], rank, on_all_pairs, held.judge)
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


def _weights(recipe: Recipe, both: Mapping[str, Step], held: Contents) -> Step:
    """Term weights, from word counts or the source that is named."""
    config = weigh_config(recipe)
    inputs = dict(both) if config.kind == "file" else {"tokens": both["tokens"]}
    if config.needs_statistics:
        inputs["statistics"] = Step("statistics", StatisticsConfig(), {"tokens": both["tokens"]})
    return Step("weigh", config, inputs, content=held.weights)


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
    reads = recipe.objective.reads()
    wanted = {reads.rows, "weights"} if reads.term_weights else {reads.rows}
    inputs = {**always, **{name: step for name, step in derived.items() if name in wanted}}
    return Step("pretrain", config, inputs, content={**held.backbone, **held.objective}, resume=resume, path="pretrain")
