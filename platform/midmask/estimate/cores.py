"""Steps without a model, which run on CPU cores: how many texts they read, how fast, and what they write."""

from typing import Any

from midmask.estimate.storage import BM25_INDEX, BM25_WORDS, NEAR_DUPLICATES, NEGATIVE, QUERY, RANKED, RUN, TEXT, TOKEN
from midmask.estimate.volumes import Volumes
from midmask.experiment.step import Step

VOCABULARY_PER_SECOND = 2_000
"""Passages from which a core trains a tokenizer in a second."""
SENTENCES = 5
"""Of a passage, where its pseudo-queries are not made yet."""


def vocabulary_seconds(step: Step, volumes: Volumes) -> float:
    """Of the process that trains a tokenizer, if this step does."""
    config: Any = step.config
    if step.name != "tokenise" or config.tokenizer is not None or "like" in step.inputs:
        return 0.0
    most: int = config.vocabulary_passages
    return min(volumes.texts(step).volume.passages, most) / VOCABULARY_PER_SECOND


def bm25_size(step: Step, volumes: Volumes) -> tuple[int, int]:
    """Passages and queries of a step `bm25`."""
    config: Any = step.config
    volume = volumes.corpus(step.inputs["corpus"])
    if "asked" in step.inputs:
        return volume.passages, count_pairs(step.inputs["asked"], volumes)
    return volume.passages, sum(volume.of_split(split, config.max_queries) for split in config.splits)


def count_pairs(listed: Step, volumes: Volumes) -> int:
    """Queries of a step `list_pairs`: from the record of the pseudo-queries, or guessed by their source."""
    pairs = listed.inputs["pairs"]
    if (done := volumes.find_finished(pairs)) is not None:
        return int(done.result["queries"])
    config: Any = pairs.config
    each: int = {"sentences": SENTENCES, "neighbours": 2, "model": config.per_passage}.get(config.kind, 1)
    return each * volumes.texts(pairs.inputs["tokens"]).volume.passages


def read_and_written(step: Step, volumes: Volumes) -> tuple[float, float]:
    """The texts that a step reads, and the bytes that it writes."""
    config: Any = step.config
    if step.name in ("prepare", "join"):
        volume = volumes.corpus(step)
        characters = volume.passages * volume.mean_characters
        return volume.passages + volume.queries, TEXT * characters + QUERY * volume.queries
    if step.name in ("tokenise", "read_tokens"):
        texts = volumes.texts(step)
        passages, queries = texts.volume.passages, texts.volume.queries
        return passages + queries, TOKEN * (passages * texts.tokens + queries * texts.query_tokens)
    if step.name in ("spans", "pseudo_queries", "statistics", "weigh"):
        texts = volumes.texts(step.inputs["tokens"])
        return texts.volume.passages, 4 * texts.tokens * texts.volume.passages
    if step.name in ("list_pairs", "keep_pairs"):
        return read_and_written(step.inputs["pairs"], volumes)
    if step.name == "fuse":
        _, queries = bm25_size(step.inputs["bm25"], volumes)
        return queries, RANKED * queries * config.depth
    if step.name == "bm25_index":
        counted, size = read_and_written(step.inputs["words"], volumes)
        return counted, size * BM25_INDEX / BM25_WORDS
    return _corpus_work(step, volumes, config) if "corpus" in step.inputs else (0.0, 0.0)


def _corpus_work(step: Step, volumes: Volumes, config: Any) -> tuple[float, float]:
    volume = volumes.corpus(step.inputs["corpus"])
    characters = volume.passages * volume.mean_characters
    if step.name == "queries":
        return volume.passages, TEXT * characters + QUERY * config.max_queries
    if step.name == "near_duplicates":
        return volume.passages, NEAR_DUPLICATES * characters
    if step.name == "bm25_words":
        return volume.passages, BM25_WORDS * characters
    if step.name == "bm25":
        passages, queries = bm25_size(step, volumes)
        return passages, RANKED * queries * min(config.depth, passages)
    queries = volume.of_split(getattr(config, "split", "train"), getattr(config, "max_queries", None))
    ranked = queries * min(getattr(config, "depth", 0), volume.passages)
    return queries, RUN * ranked if step.name == "evaluate" else NEGATIVE * queries * getattr(config, "per_query", 1)
