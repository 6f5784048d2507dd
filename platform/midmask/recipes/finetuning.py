"""The stages of a recipe as steps: rankings, the negatives chosen from them, and the training itself."""

from collections.abc import Mapping
from typing import Any

from midmask.recipes.schema import Recipe
from midmask.recipes.searching import bm25_ranking, ranking
from midmask.recipes.stage import Source, StageConfig
from midmask.recipes.step import Step
from midmask.steps import FinetuneConfig


def stages_of(
    recipe: Recipe, tokens: Step, pretrained: Step | None, backbone_content: Mapping[str, Any]
) -> tuple[Step, ...]:
    """The fine-tuning steps, in order.

    Args:
        pretrained: the encoder of the middle training; none: the recipe's backbone as it is, of this content.
    """
    done: list[Step] = []
    for stage in recipe.stages:
        done.append(_stage(recipe, stage, tokens, pretrained, backbone_content, done))
    return tuple(done)


def _stage(
    recipe: Recipe,
    stage: StageConfig,
    tokens: Step,
    pretrained: Step | None,
    backbone_content: Mapping[str, Any],
    before: list[Step],
) -> Step:
    start = before[-1] if stage.starts_from == "previous" else pretrained
    inputs = {"tokens": tokens, "corpus": tokens.inputs["corpus"]}
    if start is not None:
        inputs["start"] = start
    if stage.sources:
        inputs["negatives"] = mining(recipe, stage, tokens, before)
    config = FinetuneConfig(
        backbone=recipe.backbone if start is None else recipe.backbone.model_copy(update={"name": "start"}),
        representation=recipe.representation,
        loss=stage.loss,
        train=stage.train,
        per_query=stage.per_query,
        query_length=stage.query_length or recipe.tokens.query_length,
        passage_length=stage.passage_length or recipe.tokens.max_length,
    )
    return Step("finetune", config, inputs, content=backbone_content if start is None else {})


def mining(recipe: Recipe, stage: StageConfig, tokens: Step, before: list[Step]) -> Step:
    """The negatives of a stage, from all its sources: `ranked`, `ranked1`, … in their order."""
    corpus = tokens.inputs["corpus"]
    lists = [_listed(recipe, stage, source, tokens, before) for source in stage.sources]
    names = ["ranked", *(f"ranked{number}" for number in range(1, len(lists)))]
    return Step("mine", stage.mine, {**dict(zip(names, lists, strict=True)), "corpus": corpus})


def _listed(recipe: Recipe, stage: StageConfig, source: Source, tokens: Step, before: list[Step]) -> Step:
    """One source's list of candidates."""
    if source.kind == "bm25":
        return bm25_ranking(tokens.inputs["corpus"], stage.mine.split, stage.mine.depth, titles=recipe.tokens.titles)
    return ranking(tokens, before[-1 if source.stage is None else source.stage], stage.mine, judged="relevant")
