"""The collections of the middle training, where they are not the corpus of fine-tuning and evaluation.

    several collections    prepare, prepare, … ─► join ─► tokenise
    one collection         prepare ─► tokenise
    tokens:FOLDER          read_tokens

All with the corpus's tokenizer, so that systems that are compared have one vocabulary.
"""

from collections.abc import Mapping
from typing import Any

from midmask.corpora import CorpusConfig, JoinConfig, corpus_identity
from midmask.derived.given_tokens import ReadTokensConfig, tokens_content
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import tokens_like
from midmask.experiment.step import Step
from midmask.experiment.survey import Survey


def collections_content(recipe: Recipe, survey: Survey) -> dict[str, Any]:
    """Fingerprints of the collections of `pretrain_on`, by their names as given; empty without a middle training.

    Raises:
        UserError: for a collection or folder that is not there.
    """
    if recipe.objective is None:
        return {}
    if recipe.given_tokens:
        return {recipe.pretrain_on[0]: survey.find(tokens_content, recipe.given_tokens)}
    return {name: survey.find(corpus_identity, _collection(recipe, name)) for name in recipe.pretrain_on}


def pretraining_tokens(recipe: Recipe, tokens: Step, held: Mapping[str, Any]) -> Step:
    """The tokens that the middle training reads, with the vocabulary of the corpus's `tokens`: these, unless
    collections of its own are named.

    Args:
        held: what `collections_content` found.
    """
    if not held:
        return tokens
    if recipe.given_tokens:
        (content,) = held.values()
        asked = ReadTokensConfig(folder=recipe.given_tokens, max_length=recipe.tokens.max_length)
        return Step("read_tokens", asked, {"like": tokens}, content=content)
    prepared = [Step("prepare", _collection(recipe, name), content=held[name]) for name in recipe.pretrain_on]
    collection = prepared[0] if len(prepared) == 1 else _join_corpora(prepared)
    is_corpus = collection.fingerprint == tokens.inputs["corpus"].fingerprint
    return tokens if is_corpus else tokens_like(tokens, recipe.tokens, collection)


def _join_corpora(prepared: list[Step]) -> Step:
    names = tuple(step.config.short_name for step in prepared)  # type: ignore[attr-defined]
    return Step("join", JoinConfig(names=names), {f"corpus{number}": step for number, step in enumerate(prepared)})


def _collection(recipe: Recipe, name: str) -> CorpusConfig:
    """A collection by name; it is read as the corpus is (`max_passages`, `max_characters`, …)."""
    return recipe.corpus.model_copy(update={"name": name})
