"""Term weights against slow references: word counts, idf, BM25, a frozen encoder's attention."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from midmask import masking
from midmask.derived.terms import WEIGH, WeighConfig
from midmask.derived.words import shard_words, token_ids
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives.pretraining.mlm import MLM
from tests.support.derived.weighed import (
    Inputs,
    by_token,
    made,
    min_max,
    passages,
    small_inputs,
    vocabulary_of,
    weights_of,
    words,
)
from tests.support.objectives.reference import Reference
from tests.support.objectives.texts import CLS, MASK, PAD, SEP, UNK, small_vocabulary, token_rows


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
    known = masking.find_words(token_rows(texts), vocabulary)
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


@pytest.mark.parametrize("scaling", ["passage", "corpus"])
@pytest.mark.parametrize("source", ["idf", "bm25"])
def test_weights_from_counts_equal_the_formulas(inputs, tmp_path, source, scaling):
    config = WeighConfig(source=source, scaling=scaling, k1=1.3, b=0.6)
    found = weights_of(made(tmp_path / "w", WEIGH, config, inputs))
    vocabulary = vocabulary_of(inputs)
    rows = passages(inputs)
    texts = [words(ids, vocabulary) for ids in rows]
    count = Counter(word for text in texts for word in set(text))
    mean = sum(map(len, texts)) / len(texts)

    def idf(n: int) -> float:
        return math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))

    highest, lowest = idf(min(count.values())), idf(max(count.values()))
    for row, ids, text in zip(found, rows, texts, strict=True):
        raw = [idf(count[word]) for word in text]
        if source == "bm25":
            tf = [text.count(word) for word in text]
            norm = 1.3 * (1 - 0.6 + 0.6 * len(text) / mean)
            raw = [w * f * 2.3 / (f + norm) for w, f in zip(raw, tf, strict=True)]
        if scaling == "passage":
            raw = min_max(raw)
        elif source == "bm25":
            raw = [w / (highest * 2.3) for w in raw]
        else:
            raw = [(w - lowest) / (highest - lowest) for w in raw]
        assert row == pytest.approx(by_token(raw, ids, vocabulary), abs=1e-6)
        assert len(row) == len(ids) and all(0 <= weight <= 1 for weight in row)
    assert max(map(max, found)) > 0.5


@pytest.fixture(scope="module")
def encoder(inputs, tmp_path_factory) -> Path:
    """A Hugging Face folder with random weights of wide spread, so that attention is far from even."""
    folder = tmp_path_factory.mktemp("encoder")
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.1), vocabulary_of(inputs), seed=3)
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if "query.weight" in name or "key.weight" in name:
                parameter.mul_(3)
    backbone.save(folder, (inputs["tokens"].place / "tokenizer").local())
    return folder


def received(reference: Reference, ids: list[int], looks: str) -> list[float]:
    """What each token receives in layer 2, by hand: softmax(q · k / sqrt(64)) of each head, averaged."""
    states, everything = reference.embed(ids), [[True] * len(ids)] * len(ids)
    at = "backbone.model.bert.encoder.layer.0"
    ends = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    ends += ("attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
    parts = ("query", "key", "value", "attention_out", "attention_norm", "feed_in", "feed_out", "feed_norm")
    names = {part: f"{at}.{end}" for part, end in zip(parts, ends, strict=True)}
    states = reference.layer(names, states, states, everything)
    queries, keys = (
        [reference.linear(f"backbone.model.bert.encoder.layer.1.attention.self.{kind}", x) for x in states]
        for kind in ("query", "key")
    )
    totals = [0.0] * len(ids)
    lookers = [0] if looks == "cls" else list(range(len(ids)))
    for looker in lookers:
        for head in (slice(0, 64), slice(64, 128)):
            scores = [math.exp(float((queries[looker][head] @ key[head]).detach()) / 8) for key in keys]
            totals = [t + s / sum(scores) / 2 / len(lookers) for t, s in zip(totals, scores, strict=True)]
    return totals


@pytest.mark.parametrize(("looks", "pieces"), [("cls", "mean"), ("cls", "max"), ("all", "sum")])
def test_attention_is_that_of_the_last_layer(inputs, encoder, tmp_path, looks, pieces):
    options = {"attention_from": looks, "attention_pieces": pieces, "encoder": str(encoder)}
    config = WeighConfig.model_validate({"source": "attention", "scaling": "none", **options})
    found = weights_of(made(tmp_path / "raw", WEIGH, config, inputs))
    vocabulary = vocabulary_of(inputs)
    backbone = build_backbone(BackboneConfig(name=str(encoder), dropout=0.0), vocabulary, seed=0)
    reference = Reference(MLM(MLM.Config(), backbone, vocabulary), heads=2, layers=2, pad_id=vocabulary.pad_id)
    combine = {"mean": lambda v: sum(v) / len(v), "max": max, "sum": sum}[pieces]
    for row, ids in zip(found, passages(inputs), strict=True):
        seen = zip(received(reference, ids, looks), ids, strict=True)
        each = iter([value for value, token in seen if not vocabulary.special_V[token]])
        values = [combine([next(each) for _ in word]) for word in words(ids, vocabulary)]
        assert row == pytest.approx(by_token(values, ids, vocabulary), abs=1e-6)
    again = made(tmp_path / "scaled", WEIGH, config.model_copy(update={"scaling": "passage"}), inputs)
    for row, scaled, ids in zip(found, weights_of(again), passages(inputs), strict=True):
        real = [place for place, token in enumerate(ids) if not vocabulary.special_V[token]]
        assert [scaled[place] for place in real] == pytest.approx(min_max([row[place] for place in real]), abs=1e-5)
