"""Tokens of a training's texts, from its step: the mean, which its work follows, and the most, as its memory does."""

from typing import Any

from midmask.estimate.trainings import Lengths
from midmask.estimate.volumes import QUERY_TOKENS, Volumes
from midmask.experiment.step import Step
from midmask.experiment.steps import FinetuneConfig
from midmask.queries.train import GeneratorConfig
from midmask.teacher.teach import TeachConfig


def mean_lengths(step: Step, volumes: Volumes) -> Lengths:
    """Mean lengths of a step's texts, read from what is finished or from what is known of the collection."""
    config: Any = step.config
    texts = volumes.texts(step.inputs["tokens"])
    if isinstance(config, FinetuneConfig | GeneratorConfig):
        return Lengths(min(texts.tokens, config.passage_length), min(texts.query_tokens, config.query_length))
    if isinstance(config, TeachConfig):
        return Lengths(texts.tokens, min(texts.query_tokens, config.query_length))
    longest = longest_lengths(step)
    if "spans" in step.inputs:
        done = volumes.find_finished(step.inputs["spans"])
        span = done.result["tokens_per_span"] if done else min(longest.passage, texts.tokens / 2 + 1)
        return Lengths(span, span)
    if config.objective.reads().rows == "packed":
        return Lengths(longest.passage, 0.0)
    return Lengths(min(texts.tokens, longest.passage), min(longest.query, QUERY_TOKENS))


def longest_lengths(step: Step) -> Lengths:
    """The most tokens that the texts of a row have."""
    config: Any = step.config
    if isinstance(config, FinetuneConfig | GeneratorConfig):
        return Lengths(config.passage_length, config.query_length)
    if isinstance(config, TeachConfig):
        return Lengths(config.loss.max_length, config.query_length)
    if "spans" in step.inputs:
        span = step.inputs["spans"].config.span_length  # type: ignore[attr-defined]
        return Lengths(span, span)
    passage = config.excerpt or step.inputs["tokens"].config.max_length  # type: ignore[attr-defined]
    if (queries := step.inputs.get("pseudo_queries")) is None:
        return Lengths(passage, QUERY_TOKENS)
    made = queries.inputs.get("pairs", queries)  # of which a filter may have kept a part
    return Lengths(passage, made.config.max_length)  # type: ignore[attr-defined]
