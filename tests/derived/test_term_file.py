"""Term weights from a file: what is matched, what is counted, what is refused; and what the config refuses."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from midmask.artifact import Place
from midmask.derived.terms import WEIGH, WeighConfig, weigh_content
from midmask.errors import UserError
from midmask.vocabulary import load_tokenizer
from tests.support.derived.weighed import SHARDS, Inputs, made, passages, small_inputs, vocabulary_of, weights_of, words

VECTORS: list[dict[str, Any]] = [
    {"id": "d1-1", "vector": {"The": 1.0, "words": 4.0, "absent": 9.0}},
    {"id": "d0-0", "contents": "", "vector": {"masking": 3.0, "words,": 2.0, "passages": 1.0, ",": 5.0}},
    {"id": "nowhere", "vector": {"the": 1.0}},
    {"id": "d1-0", "vector": {"stemming": 2.5}},
    {"id": "d0-1", "vector": {}},
    {"id": "d1-1", "vector": {"the": 2.0}},
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    return small_inputs(tmp_path_factory.mktemp("file"))


def written(path: Path, rows: list[dict[str, Any]], *, broken: str = "") -> WeighConfig:
    lines = "".join(json.dumps(row) + "\n" for row in rows) + broken
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return WeighConfig(source=f"file:{path}")


def expected(inputs: Inputs, weights: dict[str, dict[str, float]]) -> list[list[float]]:
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


KNOWN = {
    "d0-0": {"masking": 3.0, "words": 2.0, "passages": 1.0, ",": 5.0},
    "d1-0": {"stemming": 2.5},
    "d1-1": {"the": 2.0, "words": 4.0},
}


def test_terms_are_words_in_lower_case_and_what_is_not_used_is_counted(inputs, tmp_path):
    bad = 'no json\n{"id": "d0-0"}\n{"id": "d0-2", "vector": {"a": Infinity}}\n'
    config = written(tmp_path / "v.jsonl.gz", VECTORS, broken=bad).model_copy(update={"scaling": "corpus"})
    artifact = made(tmp_path / "w", WEIGH, config, inputs)
    unscaled = [[weight * 9.0 for weight in row] for row in weights_of(artifact)]  # 9, of "absent", is the highest
    assert [pytest.approx(row, abs=1e-5) for row in expected(inputs, KNOWN)] == unscaled
    result = artifact.result
    assert result["passages_without_weights"] == 7 - 4
    assert (result["terms"], result["unknown_terms"]) == (4 + 1 + 3, 1)
    assert result["file"] == {"lines": 9, "kept": 5, "unknown id": 1, "malformed line": 2, "weight not finite": 1}
    assert len(Place(str(tmp_path / "w")).local().joinpath("quarantine.jsonl").read_text().splitlines()) == 4


def test_scaling_within_the_passage_counts_words_without_a_weight_as_nothing(inputs, tmp_path):
    found = weights_of(made(tmp_path / "w", WEIGH, written(tmp_path / "v.jsonl", VECTORS), inputs))
    for row, raw in zip(found, expected(inputs, KNOWN), strict=True):
        real = raw[1:-1]
        low, high = (min(real), max(real)) if real else (0.0, 0.0)
        assert row == pytest.approx([0.0, *((w - low) / (high - low) if high > low else 0.0 for w in real), 0.0])


def test_weights_as_they_are_must_lie_between_0_and_1(inputs, tmp_path):
    rows = [{"id": "d1-1", "vector": {"the": 0.25, "words": 1.0}}]
    config = written(tmp_path / "v.jsonl", rows).model_copy(update={"scaling": "none"})
    found = weights_of(made(tmp_path / "w", WEIGH, config, inputs))
    assert found == expected(inputs, {"d1-1": rows[0]["vector"]})
    config = written(tmp_path / "b.jsonl", [*rows, {"id": "d0-0", "vector": {"the": 1.5}}])
    with pytest.raises(UserError, match=r"line 2: the weight of 'the' is 1\.5, not in \[0, 1\]"):
        made(tmp_path / "b", WEIGH, config.model_copy(update={"scaling": "none"}), inputs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "tfidf"}, "did you mean 'idf'"),
        ({"source": "file"}, "Write file:PATH"),
        ({"source": "idf:x"}, "unknown weights.source"),
        ({"source": "bm25", "scaling": "none"}, r"not in \[0, 1\]; choose passage or corpus"),
        ({"source": "attention", "scaling": "corpus"}, "choose passage"),
        ({"k1": -1.0}, "k1"),
        ({"b": 1.5}, "b\n"),
    ],
)
def test_an_impossible_config_is_refused(fields, message):
    with pytest.raises((ValidationError, UserError), match=message):
        WeighConfig(**fields)


def test_what_a_source_holds_is_its_identity(tmp_path):
    first = weigh_content(written(tmp_path / "v.jsonl", VECTORS))
    assert weigh_content(WeighConfig()) == {}
    assert weigh_content(written(tmp_path / "v.jsonl", VECTORS[:3])) != first
    for encoder in (None, str(tmp_path)):
        with pytest.raises(UserError, match="needs a trained encoder; name a model, such as minilm"):
            weigh_content(WeighConfig(source="attention", encoder=encoder))
