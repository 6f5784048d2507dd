"""Term weights against slow references: word counts, idf and BM25."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.core.config import Config
from midmask.masking.words import find_words
from midmask.queries.terms import STATISTICS, WEIGH, StatisticsConfig, WeighConfig, shard_words
from midmask.store.artifact import Artifact, produce
from midmask.store.place import Place
from midmask.store.sharded import Sharded
from midmask.text import tokens
from midmask.text.tokens import TokensConfig
from midmask.text.vocabulary import Vocabulary
from tests.support.objectives.texts import CLS, MASK, PAD, SEP, UNK, small_vocabulary, token_rows

Inputs = dict[str, Artifact]

SHARDS = [
    ["The masking of words, the masking of passages.", "A retrieval system finds passages; it ranks them.", ""],
    ["Stemming retrieval mastery", "the the the the words", "Zebra okapi quagga: passages of the zoologists", "of of"],
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
    return list(pq.read_table(inputs["tokens"].place.local() / "passages")["ids"].to_pylist())


def weights_of(artifact: Artifact) -> list[list[float]]:
    return list(pq.read_table(artifact.place.local() / "weights")["weights"].to_pylist())


def token_ids(word: bytes) -> list[int]:
    return list(np.frombuffer(word, "<i4").tolist())


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


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    return small_inputs(tmp_path_factory.mktemp("terms"))


def test_words_are_those_that_masks_know():
    generator = np.random.default_rng(0)
    vocabulary = small_vocabulary()
    texts = [generator.integers(UNK, 60, length).tolist() for length in (0, 1, 7, 30, 18)]
    texts.append([50, 51, MASK, 52, SEP, 53, PAD, 54, UNK, 55])
    rows = [[CLS, *text, SEP] for text in texts] + [[], [50], [51, 52], [SEP]]
    found = shard_words(pa.array(rows, pa.list_(pa.int32())), vocabulary)
    per_row: list[list[tuple[int, ...]]] = [[] for _ in rows]
    for row, word in zip(found.passage_U.tolist(), found.word_U.tolist(), strict=True):
        per_row[row].append(tuple(token_ids(found.words[word].as_py())))
    assert per_row == [words(row, vocabulary) for row in rows]
    known = find_words(token_rows(texts), vocabulary)
    for row, ids in enumerate(rows[: len(texts)]):
        starts = known.start_BL[row][known.candidate_BL[row]].tolist()
        real = [token for token in ids if not vocabulary.special_V[token]]
        grouped = [[t for s, t in zip(starts, real, strict=True) if s == start] for start in dict.fromkeys(starts)]
        assert [tuple(word) for word in grouped] == per_row[row]


def test_statistics_count_passages_and_words(inputs):
    vocabulary = vocabulary_of(inputs)
    texts = [words(ids, vocabulary) for ids in passages(inputs)]
    expected = Counter(word for text in texts for word in set(text))
    table = pq.read_table(inputs["statistics"].place.local() / "words.parquet").to_pydict()
    found = {tuple(token_ids(word)): count for word, count in zip(table["word"], table["passages"], strict=True)}
    assert found == expected and max(map(len, found)) > 1 and table["word"] == sorted(table["word"])
    result = inputs["statistics"].result
    assert (result["passages"], result["words"]) == (7, sum(map(len, texts)))
    assert result["words_per_passage"] == pytest.approx(sum(map(len, texts)) / 7)


@pytest.mark.parametrize("source", ["idf", "bm25"])
def test_weights_equal_the_formulas(inputs, tmp_path, source):
    config = WeighConfig(source=source, k1=1.3, b=0.6)
    found = weights_of(made(tmp_path / "w", WEIGH, config, inputs))
    vocabulary = vocabulary_of(inputs)
    rows = passages(inputs)
    texts = [words(ids, vocabulary) for ids in rows]
    count = Counter(word for text in texts for word in set(text))
    mean = sum(map(len, texts)) / len(texts)

    def idf(n: int) -> float:
        return math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))

    for row, ids, text in zip(found, rows, texts, strict=True):
        raw = [idf(count[word]) for word in text]
        if source == "bm25":
            tf = [text.count(word) for word in text]
            norm = 1.3 * (1 - 0.6 + 0.6 * len(text) / mean)
            raw = [w * f * 2.3 / (f + norm) for w, f in zip(raw, tf, strict=True)]
        assert row == pytest.approx(by_token(min_max(raw), ids, vocabulary), abs=1e-6)
        assert len(row) == len(ids) and all(0 <= weight <= 1 for weight in row)
    assert max(map(max, found)) > 0.5
