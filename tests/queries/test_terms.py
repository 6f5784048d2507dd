"""Term weights against slow references: word counts, idf, BM25, a frozen encoder's attention, and a file's."""

import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from midmask import masking
from midmask.core.config import Config
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.objectives.pretraining.mlm import MLM
from midmask.queries.terms import WEIGH, WeighConfig
from midmask.queries.word_statistics import STATISTICS, StatisticsConfig, shard_words, token_ids
from midmask.store.artifact import Artifact, produce
from midmask.store.place import Place
from midmask.store.sharded import Sharded
from midmask.text import tokens
from midmask.text.tokens import TokensConfig
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.support.objectives.reference import Reference
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
        low, high = (0, highest * 2.3) if source == "bm25" else (lowest, highest)
        raw = min_max(raw) if scaling == "passage" else [(w - low) / (high - low) for w in raw]
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
    names = {part: f"{at}.attention.self.{part}" for part in ("query", "key", "value")}
    names |= {"attention_out": f"{at}.attention.output.dense", "attention_norm": f"{at}.attention.output.LayerNorm"}
    names |= {"feed_in": f"{at}.intermediate.dense", "feed_out": f"{at}.output.dense"}
    names["feed_norm"] = f"{at}.output.LayerNorm"
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


VECTORS: list[dict[str, Any]] = [
    {"id": "d1-1", "vector": {"The": 1.0, "words": 4.0, "absent": 9.0}},
    {"id": "d0-0", "contents": "", "vector": {"masking": 3.0, "words,": 2.0, "passages": 1.0, ",": 5.0}},
    {"id": "nowhere", "vector": {"the": 1.0}}, {"id": "d1-0", "vector": {"stemming": 2.5}},
    {"id": "d0-1", "vector": {}}, {"id": "d1-1", "vector": {"the": 2.0}},
]  # fmt: skip


def written(path: Path, rows: list[dict[str, Any]], *, broken: str = "") -> WeighConfig:
    lines = "".join(json.dumps(row) + "\n" for row in rows) + broken
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return WeighConfig(source=f"file:{path}")


def from_file(inputs: Inputs, weights: dict[str, dict[str, float]]) -> list[list[float]]:
    """By word text, straight from the tokenizer's pieces, before scaling."""
    tokenizer = load_tokenizer((inputs["tokens"].place / "tokenizer").local())
    names = [f"d{shard}-{i}" for shard, texts in enumerate(SHARDS) for i in range(len(texts))]
    rows = []
    for name, ids in zip(names, passages(inputs), strict=True):
        spelled = []
        for word in words(ids, vocabulary_of(inputs)):
            pieces = tokenizer.convert_ids_to_tokens(list(word))
            spelled += ["".join(piece.removeprefix("##") for piece in pieces)] * len(word)
        rows.append([0.0, *(weights.get(name, {}).get(text, 0.0) for text in spelled), 0.0])
    return rows


KNOWN = {"d0-0": {"masking": 3.0, "words": 2.0, "passages": 1.0, ",": 5.0}, "d1-0": {"stemming": 2.5}}
KNOWN["d1-1"] = {"the": 2.0, "words": 4.0}


def test_terms_are_words_in_lower_case_and_what_is_not_used_is_counted(inputs, tmp_path):
    bad = 'no json\n{"id": "d0-0"}\n{"id": "d0-2", "vector": {"a": Infinity}}\n'
    config = written(tmp_path / "v.jsonl.gz", VECTORS, broken=bad).model_copy(update={"scaling": "corpus"})
    artifact = made(tmp_path / "w", WEIGH, config, inputs)
    unscaled = [[weight * 9.0 for weight in row] for row in weights_of(artifact)]  # 9, of "absent", is the highest
    assert [pytest.approx(row, abs=1e-5) for row in from_file(inputs, KNOWN)] == unscaled
    result = artifact.result
    assert result["passages_without_weights"] == 7 - 4
    assert (result["terms"], result["unknown_terms"]) == (4 + 1 + 3, 1)
    assert result["file"] == {"lines": 9, "kept": 5, "unknown id": 1, "malformed line": 2, "weight not finite": 1}
    assert len(Place(str(tmp_path / "w")).local().joinpath("quarantine.jsonl").read_text().splitlines()) == 4


def test_scaling_within_the_passage_counts_words_without_a_weight_as_nothing(inputs, tmp_path):
    found = weights_of(made(tmp_path / "w", WEIGH, written(tmp_path / "v.jsonl", VECTORS), inputs))
    for row, raw in zip(found, from_file(inputs, KNOWN), strict=True):
        assert row == pytest.approx([0.0, *min_max(raw[1:-1]), 0.0])


def test_weights_as_they_are_must_lie_between_0_and_1(inputs, tmp_path):
    rows = [{"id": "d1-1", "vector": {"the": 0.25, "words": 1.0}}]
    config = written(tmp_path / "v.jsonl", rows).model_copy(update={"scaling": "none"})
    assert weights_of(made(tmp_path / "w", WEIGH, config, inputs)) == from_file(inputs, {"d1-1": rows[0]["vector"]})
    config = written(tmp_path / "b.jsonl", [*rows, {"id": "d0-0", "vector": {"the": 1.5}}])
    with pytest.raises(UserError, match=r"line 2: the weight of 'the' is 1\.5, not in \[0, 1\]"):
        made(tmp_path / "b", WEIGH, config.model_copy(update={"scaling": "none"}), inputs)


def test_a_scaling_that_a_source_cannot_have_is_refused():
    for source, scaling, choice in (("bm25", "none", "passage or corpus"), ("attention", "corpus", "passage")):
        with pytest.raises((ValidationError, UserError), match=f"choose {choice}"):
            WeighConfig(source=source, scaling=scaling)
