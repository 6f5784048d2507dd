"""The steps of the consistency filter of pseudo-queries: which judge ranks, and which pairs it leaves (E5, Wang et al.
2022).

    pseudo_queries ─► list_pairs ─► encode, search (or bm25) ─► keep_pairs ─► middle training
                   ─► middle training on all pairs ─► untuned ──┘    with judged_by = middle_training
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midmask.derived.kept_pairs import PAIRS, KeepPairsConfig, ListPairsConfig
from midmask.derived.pseudo_queries import BM25, MIDDLE_TRAINING, PseudoQueriesConfig
from midmask.encoders.representation import Representation
from midmask.experiment.model_folder import as_folder_reads
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted, bm25_ranking, folder_content, ranking
from midmask.experiment.step import Step
from midmask.experiment.untuned import untuned_config
from midmask.mining.mine import MineConfig
from midmask.pretrained import model_folder


def judge_content(config: PseudoQueriesConfig) -> Mapping[str, Any]:
    """Fingerprints of the files of the model that judges pairs; empty if none does.

    Raises:
        UserError: if the model is not there.
    """
    return {} if _names_no_model(config) else folder_content(str(_folder(config)))


def kept_pairs(recipe: Recipe, pairs: Step, rank: int, trained: Step | None, content: Mapping[str, Any]) -> Step:
    """The step whose pseudo-queries the middle training reads: those of `pairs` that the filter keeps.

    Args:
        pairs: the step `pseudo_queries`. rank: the recipe's `keep_rank`. trained: the middle training on all pairs,
            which is part of the plan only if it judges. content: what `judge_content` found.

    Raises:
        UserError: if the judge is no model folder, or one that midmask cannot read.
    """
    config, evaluation = recipe.pseudo_queries, recipe.evaluation
    tokens = _judges_tokens(recipe, pairs, content)
    asked = Step("list_pairs", ListPairsConfig(max_length=config.max_length), {"pairs": pairs, "tokens": tokens})
    search = MineConfig(split=PAIRS, depth=rank, precision=evaluation.precision, threads=evaluation.threads)
    if config.judged_by == BM25:
        corpus, titles = pairs.inputs["corpus"], recipe.tokens.titles
        lists = bm25_ranking(corpus, search, titles=titles, judged="any", asked=asked)
    else:
        lists = ranking(tokens, _judge(recipe, tokens, trained, content), search, judged="any", asked=asked)
    return Step("keep_pairs", KeepPairsConfig(rank=rank), {"pairs": pairs, "ranked": lists})


def _judges_tokens(recipe: Recipe, pairs: Step, content: Mapping[str, Any]) -> Step:
    """The collection as the judge reads it: a model with its own tokenizer, lengths and prompts."""
    if _names_no_model(recipe.pseudo_queries):
        return pairs.inputs["tokens"]
    config = as_folder_reads(recipe, _folder(recipe.pseudo_queries), ()).tokens
    return Step("tokenise", config, {"corpus": pairs.inputs["corpus"]}, content=content)


def _judge(recipe: Recipe, tokens: Step, trained: Step | None, content: Mapping[str, Any]) -> Step:
    """The encoder that judges. That of a middle training is scored by the cosine of its sentence vectors."""
    if recipe.pseudo_queries.judged_by != MIDDLE_TRAINING:
        return adopted(str(_folder(recipe.pseudo_queries)), content)
    assert trained is not None, "Recipe refuses this judge without a middle training"
    cosine = Representation(dense=recipe.backbone.sentence_vector, normalise=True)
    config = untuned_config(recipe).model_copy(update={"representation": cosine})
    return Step("untuned", config, {"start": trained, "tokens": tokens})


def _names_no_model(config: PseudoQueriesConfig) -> bool:
    return config.judged_by in (None, BM25, MIDDLE_TRAINING)


def _folder(config: PseudoQueriesConfig) -> Path:
    """Raises UserError if the judge is a model that is not there."""
    choices = (BM25, MIDDLE_TRAINING)
    return model_folder(str(config.judged_by), field="pseudo_queries.judged_by", choices=choices).absolute()
