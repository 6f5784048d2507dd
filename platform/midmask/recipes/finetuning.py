"""The stages of a recipe as steps.

    rankings ─► mine ─► teach ─► score ─┐
                 └──────────────────────┴─► finetune ─► the rankings of the next stage

With a teacher margin a teacher looks at all candidates before any is chosen, and then it must be one from elsewhere.
"""

from collections.abc import Mapping
from typing import Any

from midmask.recipes.schema import Recipe
from midmask.recipes.searching import adopted, bm25_ranking, folder_content, ranking
from midmask.recipes.stage import Source, StageConfig
from midmask.recipes.step import Step
from midmask.retrieve.near_duplicates import NearDuplicatesConfig
from midmask.steps import FinetuneConfig
from midmask.teacher.teach import TeacherConfig


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
        inputs["negatives"] = mined = mining(recipe, stage, tokens, before)
        if stage.teacher is not None:
            inputs["scores"] = scoring(recipe, stage.teacher, stage.mine.split, tokens, mined, pretrained)
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
    alike = Step("near_duplicates", NearDuplicatesConfig(), {"corpus": corpus})
    return Step(
        "mine", stage.mine, {**dict(zip(names, lists, strict=True)), "corpus": corpus, "near_duplicates": alike}
    )


def _listed(recipe: Recipe, stage: StageConfig, source: Source, tokens: Step, before: list[Step]) -> Step:
    """One source's list of candidates."""
    if source.kind == "bm25":
        return bm25_ranking(tokens.inputs["corpus"], stage.mine.split, stage.mine.depth, titles=recipe.tokens.titles)
    return ranking(tokens, before[-1 if source.stage is None else source.stage], stage.mine, judged="relevant")


def scoring(
    recipe: Recipe, config: TeacherConfig, split: str, tokens: Step, negatives: Step, pretrained: Step | None
) -> Step:
    """A teacher's scores of the chosen negatives and of the positives."""
    teacher = teaching(recipe, config, tokens, negatives, pretrained)
    asked = config.scoring(split, titles=recipe.tokens.titles, query_length=recipe.tokens.query_length)
    return Step("score", asked, {"teacher": teacher, "corpus": tokens.inputs["corpus"], "negatives": negatives})


def teaching(recipe: Recipe, config: TeacherConfig, tokens: Step, negatives: Step, pretrained: Step | None) -> Step:
    """The teacher: a folder from elsewhere, or a cross-encoder trained on these negatives."""
    if config.folder is not None:
        return adopted(config.folder)
    inputs = {"tokens": tokens, "corpus": tokens.inputs["corpus"], "negatives": negatives}
    backbone = config.backbone or recipe.backbone
    content = folder_content(backbone.name)
    if config.backbone is None and pretrained is not None:
        inputs["start"], content = pretrained, {}
        backbone = backbone.model_copy(update={"name": "start"})
    asked = config.teaching(backbone, query_length=recipe.tokens.query_length)
    return Step("teach", asked, inputs, content=content)
