"""A recipe as a graph of steps: what is computed, from what, under which fingerprint. Where it runs is not said here.

Two recipes that agree on a step's config and inputs share the step: a sweep's trials share corpus and tokens, and a
baseline computed yesterday is found today.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from midmask.corpora import corpus_identity
from midmask.derived.pseudo_queries import pseudo_queries_content
from midmask.derived.sentences import splitter
from midmask.derived.terms import WeighConfig, weigh_content
from midmask.derived.words import StatisticsConfig
from midmask.evaluate.retriever import EvaluateConfig
from midmask.identity import file_fingerprint
from midmask.recipes.schema import Recipe, StageConfig
from midmask.recipes.step import Step as Step
from midmask.retrieve.bm25 import Bm25Config
from midmask.retrieve.encode import EncodeConfig
from midmask.retrieve.mine import MineConfig
from midmask.retrieve.search import SearchConfig
from midmask.steps import AdoptConfig, FinetuneConfig, InitialConfig, PretrainConfig


@dataclass(frozen=True)
class Plan:
    """The steps of one recipe by role, `stages` in order; `spans`, `pseudo_queries` and `initial` (the encoder before
    any training) whether they are needed or not.
    """

    corpus: Step
    tokens: Step
    spans: Step
    pseudo_queries: Step
    initial: Step
    pretrained: Step | None
    stages: tuple[Step, ...]

    def evaluation(self, config: EvaluateConfig, *, model: Step | None = None) -> Step:
        """The evaluation of an encoder: the last stage's, unless another is given."""
        ranked = ranking(self.tokens, model or self.stages[-1], config, judged="any")
        return Step("evaluate", config, {"ranked": ranked, "corpus": self.corpus})

    def mining(self, config: MineConfig, *, model: Step | None = None) -> Step:
        """Hard negatives from a search with an encoder: the last stage's, unless another is given."""
        return mining(self.tokens, model or self.stages[-1], config)


def ranking(
    tokens: Step, model: Step, wanted: EvaluateConfig | MineConfig, *, judged: Literal["any", "relevant"]
) -> Step:
    """The search of a split's queries with an encoder. Whatever is evaluated or mined with a model, its passages are
    encoded once.
    """
    passages = EncodeConfig(side="passages", length=wanted.passage_length, threads=wanted.threads)
    queries = EncodeConfig(
        side="queries",
        split=wanted.split,
        judged=judged,
        max_queries=wanted.max_queries,
        length=wanted.query_length,
        threads=wanted.threads,
    )
    encoder = {"model": model, "tokens": tokens}
    encoded = {
        "passages": Step("encode", passages, encoder),
        "queries": Step("encode", queries, {**encoder, "corpus": tokens.inputs["corpus"]}),
    }
    config = SearchConfig(depth=wanted.depth, index=wanted.index, threads=wanted.threads)
    return Step("search", config, {**encoded, "tokens": tokens})


def mining(tokens: Step, model: Step, config: MineConfig) -> Step:
    """Hard negatives from the ranking of an encoder."""
    ranked = ranking(tokens, model, config, judged="relevant")
    return Step("mine", config, {"ranked": ranked, "corpus": tokens.inputs["corpus"]})


def adopted(folder: str) -> Step:
    """A model folder from elsewhere as a step; its identity is its files' contents."""
    return Step("adopt", AdoptConfig(folder=folder), content=_folder_content(folder))


@dataclass(frozen=True)
class Contents:
    """What the places that a recipe names hold, by fingerprint. The driver looks once; other nodes may not see them."""

    corpus: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    backbone: Mapping[str, Any]
    objective: Mapping[str, Any]
    pseudo_queries: Mapping[str, Any]
    weights: Mapping[str, Any]


def contents_of(recipe: Recipe) -> Contents:
    """Reads what the recipe's paths hold.

    Raises:
        UserError: if the corpus is not there, or a source of pseudo-queries or of term weights that is read.
    """
    weighed = recipe.objective is not None and recipe.objective.reads().term_weights
    return Contents(
        corpus=corpus_identity(recipe.corpus),
        tokenizer=_folder_content(recipe.tokens.tokenizer),
        backbone=_folder_content(recipe.backbone.name),
        objective={place: _folder_content(place) for place in recipe.objective.places()} if recipe.objective else {},
        pseudo_queries=pseudo_queries_content(recipe.pseudo_queries),
        weights=weigh_content(_weighing(recipe)) if weighed else {},
    )


def plan(recipe: Recipe, contents: Contents | None = None, *, share: float = 1.0, resume: Step | None = None) -> Plan:
    """The steps of a recipe.

    Args:
        contents: of the recipe's places, if they have been looked up already.
        share: with less than 1, middle training stops after that share of its steps, as a rung of a sweep.
        resume: the pre-training of a smaller share, to go on from.
    """
    held = contents or contents_of(recipe)
    corpus = Step("prepare", recipe.corpus, content=held.corpus)
    tokens = Step("tokenise", recipe.tokens, {"corpus": corpus}, content=held.tokenizer)
    both = {"corpus": corpus, "tokens": tokens}
    derived = {
        "spans": Step("spans", recipe.spans, both, content=splitter()),
        "pseudo_queries": Step("pseudo_queries", recipe.pseudo_queries, both, content=held.pseudo_queries),
        "weights": _weights(recipe, both, held),
    }
    untrained = InitialConfig(backbone=recipe.backbone, seed=recipe.pretrain.seed)
    initial = Step("initial", untrained, {"tokens": tokens}, content=held.backbone)
    pretrained = _pretrained(recipe, both, derived, held, share, resume)
    stages: list[Step] = []
    for stage in recipe.stages:
        stages.append(_stage(recipe, stage, tokens, held, pretrained, stages))
    return Plan(corpus, tokens, derived["spans"], derived["pseudo_queries"], initial, pretrained, tuple(stages))


def rungs(recipe: Recipe, shares: tuple[float, ...], contents: Contents | None = None) -> list[Plan]:
    """One plan per share of the pre-training, ascending, each going on where the one before it stopped."""
    plans: list[Plan] = []
    for share in sorted(shares):
        plans.append(plan(recipe, contents, share=share, resume=plans[-1].pretrained if plans else None))
    return plans


def bm25_evaluation(recipe: Recipe, split: str) -> Step:
    """BM25 on the recipe's corpus, ranked to the same depth: a row of its own beside the trained systems."""
    corpus = Step("prepare", recipe.corpus, content=corpus_identity(recipe.corpus))
    config = Bm25Config(splits=(split,), depth=recipe.evaluation.depth, titles=recipe.tokens.titles)
    ranked = Step("bm25", config, {"corpus": corpus})
    evaluation = recipe.evaluation.model_copy(update={"split": split})
    return Step("evaluate", evaluation, {"ranked": ranked, "corpus": corpus})


def _weighing(recipe: Recipe) -> WeighConfig:
    """The weighing's config with the encoder that is asked for; others leave it, and the backbone, out of account."""
    attends = recipe.weights.kind == "attention"
    encoder = (recipe.weights.encoder or recipe.backbone.name) if attends else None
    return recipe.weights.model_copy(update={"encoder": encoder})


def _weights(recipe: Recipe, both: Mapping[str, Step], held: Contents) -> Step:
    """Term weights, from word counts or the source that is named."""
    config = _weighing(recipe)
    inputs = dict(both) if config.kind == "file" else {"tokens": both["tokens"]}
    if config.needs_statistics:
        inputs["statistics"] = Step("statistics", StatisticsConfig(), {"tokens": both["tokens"]})
    return Step("weigh", config, inputs, content=held.weights)


def _pretrained(
    recipe: Recipe,
    always: Mapping[str, Step],
    derived: Mapping[str, Step],
    held: Contents,
    share: float,
    resume: Step | None,
) -> Step | None:
    """The pre-training, with tokens and corpus (for a probe) and of the derived artifacts those that are read."""
    if recipe.objective is None:
        return None
    steps = recipe.pretrain.steps
    stop = None if share >= 1 else max(1, round(share * steps))
    config = PretrainConfig(
        backbone=recipe.backbone, objective=recipe.objective, train=recipe.pretrain, stop_after=stop
    )
    reads = recipe.objective.reads()
    wanted = {reads.rows, "weights"} if reads.term_weights else {reads.rows}
    inputs = {**always, **{name: step for name, step in derived.items() if name in wanted}}
    return Step("pretrain", config, inputs, content={**held.backbone, **held.objective}, resume=resume)


def _stage(
    recipe: Recipe, stage: StageConfig, tokens: Step, held: Contents, pretrained: Step | None, before: list[Step]
) -> Step:
    start = before[-1] if stage.starts_from == "previous" else pretrained
    inputs = {"tokens": tokens, "corpus": tokens.inputs["corpus"]}
    if start is not None:
        inputs["start"] = start
    if stage.negatives == "mined":
        inputs["negatives"] = mining(tokens, before[-1], stage.mine)
    config = FinetuneConfig(
        backbone=recipe.backbone if start is None else recipe.backbone.model_copy(update={"name": "start"}),
        loss=stage.loss,
        train=stage.train,
        per_query=stage.per_query,
        query_length=recipe.tokens.query_length,
        passage_length=recipe.tokens.max_length,
    )
    return Step("finetune", config, inputs, content=held.backbone if start is None else {})


def _folder_content(name: str | None) -> dict[str, Any]:
    """The files of a named local folder, by fingerprint: two folders with equal bytes are the same start."""
    if name is None or not Path(name).is_dir():
        return {}
    wanted = ("config.json", "tokenizer.json", "vocab.txt", "*.safetensors", "pytorch_model*.bin")
    found = sorted(path for pattern in wanted for path in Path(name).glob(pattern))
    return {path.name: file_fingerprint(path) for path in found}
