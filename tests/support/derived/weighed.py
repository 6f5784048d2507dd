"""A small corpus with its tokens and word statistics, and words spelled out slowly, for tests of term weights."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midmask import tokens
from midmask.artifact import Artifact, Place, produce
from midmask.derived.words import STATISTICS, StatisticsConfig
from midmask.identity import Config
from midmask.sharded import Sharded
from midmask.tokens import TokensConfig
from midmask.vocabulary import Vocabulary

Inputs = dict[str, Artifact]

SHARDS = [
    ["The masking of words, the masking of passages.", "A retrieval system finds passages; it ranks them.", ""],
    [
        "Stemming retrieval mastery",
        "the the the the words",
        "Zebra quagga okapi: the passages of zoologists",
        "of of of",
    ],
]


def made(place: Path, step: Sharded, config: Config, inputs: Inputs) -> Artifact:
    return produce(Place(str(place)), {"fingerprint": place.name}, lambda out: step(config, inputs, out))


def small_inputs(folder: Path) -> Inputs:
    """Artifacts `corpus` (two shards), `tokens`, `statistics`. The vocabulary knows the words of two passages only."""
    corpus = Place(str(folder / "corpus"))
    for shard, texts in enumerate(SHARDS):
        ids = [f"d{shard}-{i}" for i in range(len(texts))]
        table = pa.table({"doc_id": ids, "title": [""] * len(texts), "text": texts})
        with (corpus / "docs" / f"{shard:05d}.parquet").writing() as stream:
            pq.write_table(table, stream)
    with (corpus / "queries.parquet").writing() as stream:
        pq.write_table(pa.table({"query_id": pa.array([], pa.string()), "text": pa.array([], pa.string())}), stream)
    inputs = {"corpus": Artifact(corpus, {"fingerprint": "c", "result": {}})}
    config = TokensConfig(vocabulary_size=200, vocabulary_passages=2, max_length=24)
    inputs["tokens"] = made(folder / "tokens", tokens.tokenise, config, inputs)
    inputs["statistics"] = made(folder / "statistics", STATISTICS, StatisticsConfig(), inputs)
    return inputs


def vocabulary_of(inputs: Inputs) -> Vocabulary:
    return Vocabulary.of((inputs["tokens"].place / "tokenizer").local())


def passages(inputs: Inputs) -> list[list[int]]:
    return _rows(inputs["tokens"], "passages", "ids")


def weights_of(artifact: Artifact) -> list[list[float]]:
    return _rows(artifact, "weights", "weights")


def _rows(artifact: Artifact, folder: str, column: str) -> list[list]:
    names = sorted((artifact.place.local() / folder).iterdir())
    return [row for name in names for row in pq.read_table(name)[column].to_pylist()]


def words(ids: list[int], vocabulary: Vocabulary) -> list[tuple[int, ...]]:
    """A word is a token and the continuations right after it; special tokens are no words and end one."""
    found: list[list[int]] = []
    inside = False
    for token in ids:
        special = bool(vocabulary.special_V[token])
        if inside and not special and bool(vocabulary.continues_V[token]):
            found[-1].append(token)
        elif not special:
            found.append([token])
        inside = not special
    return [tuple(word) for word in found]


def by_token(values: list[float], ids: list[int], vocabulary: Vocabulary) -> list[float]:
    """A value for each word as one for each token, 0 at specials."""
    each = iter([value for value, word in zip(values, words(ids, vocabulary), strict=True) for _ in word])
    return [0.0 if bool(vocabulary.special_V[token]) else next(each) for token in ids]


def min_max(values: list[float]) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
