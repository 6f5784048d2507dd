"""Fingerprints of the files and folders that a recipe names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midmask.corpora import corpus_identity
from midmask.derived.pseudo_queries import pseudo_queries_content
from midmask.derived.span_documents import spans_content
from midmask.derived.terms import WeighConfig, weigh_content
from midmask.experiment.consistency import judge_content
from midmask.experiment.finetuning import stages_content
from midmask.experiment.pretraining import collections_content
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import folder_content
from midmask.experiment.survey import Survey


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
    judge: Mapping[str, Any]
    weights: Mapping[str, Any]
    stages: Mapping[str, Any]


def contents_of(recipe: Recipe, survey: Survey) -> Contents:
    """Reads the fingerprints of the files and folders that the recipe names.

    Raises:
        UserError: if the corpus is not there, or a source of spans, pseudo-queries, term weights, negatives or scores,
            or the judge of pseudo-queries.
    """
    objective = recipe.objective
    weighed = objective is not None and objective.reads().term_weights
    return Contents(
        corpus=survey.find(corpus_identity, recipe.corpus),
        pretrain_on=collections_content(recipe, survey),
        tokenizer=survey.find(folder_content, recipe.tokens.tokenizer),
        backbone=survey.find(folder_content, recipe.backbone.name),
        objective={place: survey.find(folder_content, place) for place in objective.places()} if objective else {},
        spans=survey.find(spans_content, recipe.spans),
        pseudo_queries=survey.find(pseudo_queries_content, recipe.pseudo_queries),
        judge=survey.find(judge_content, recipe.pseudo_queries),
        weights=survey.find(weigh_content, weigh_config(recipe)) if weighed else {},
        stages=stages_content(recipe, survey),
    )


def weigh_config(recipe: Recipe) -> WeighConfig:
    """The weighing's config with the encoder that is asked for; others leave it, and the backbone, out of account."""
    attends = recipe.weights.kind == "attention"
    encoder = (recipe.weights.encoder or recipe.backbone.name) if attends else None
    return recipe.weights.model_copy(update={"encoder": encoder})
