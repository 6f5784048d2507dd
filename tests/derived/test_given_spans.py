"""Spans from a file: every line accounted for, every token kept, and written so that they are read as they were."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.derived import given
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import span_texts
from midmask.errors import UserError
from midmask.exchange.spans_file import read_spans, write_spans
from midmask.identity import override
from tests.support.derived.documents import DOCUMENTS, SPAN_LENGTH, SPAN_LIMIT, WORDS, made_spans, text_of, tokens_of

Inputs = dict[str, Artifact]


def made(inputs: Inputs, out: Path, source: str, **fields: Any) -> tuple[dict[str, Any], dict[str, list[list[int]]]]:
    """The step's result, and the ids of each document's spans, without specials."""
    result, documents = made_spans(inputs, out, source=source, **fields)
    return result, {name: [row["ids"][1:-1] for row in own] for name, own in documents.items()}


LONG = " ".join(f"{' '.join(WORDS[:4])}." for _ in range(8))
LINES = [
    {"doc_id": "d3", "spans": ["Bal dif.", "gun kel"]},
    {"doc_id": "d50", "spans": ["bal", " ", "dif fun", ""]},
    {"doc_id": "d4", "spans": ["only one"]},
    {"_id": "d3", "spans": ["a third of d3"]},
    {"doc_id": "elsewhere", "spans": ["lost", "lost too"]},
    {"doc_id": "d5", "spans": []},
    {"doc_id": "d89", "spans": ["before", LONG]},
    {"doc_id": "d6", "spans": ["one", "  "]},
]


@pytest.mark.parametrize("block", [1 << 18, 2])
def test_every_line_and_every_span_is_accounted_for(inputs, tmp_path, block, monkeypatch):
    monkeypatch.setattr(given, "BLOCK", block)
    (tmp_path / "s.jsonl").write_text("\n\n".join(map(json.dumps, LINES)))
    result, documents = made(inputs, tmp_path / "out", f"file:{tmp_path}/s.jsonl")
    asked = {"d3": ["Bal dif.", "gun kel", "a third of d3"], "d50": ["bal", "dif fun"]}
    assert {name: documents[name] for name in asked} == {
        name: [tokens_of(inputs, text) for text in texts] for name, texts in asked.items()
    }
    assert list(documents) == ["d3", "d50", "d89"], "in the order of the corpus"
    assert documents["d89"][0] == tokens_of(inputs, "before") and len(documents["d89"]) > 2
    assert all(len(ids) <= SPAN_LIMIT for ids in documents["d89"])
    assert list(chain(*documents["d89"][1:])) == tokens_of(inputs, LONG), "a long span is cut, and loses nothing"
    bad = {"blank span": 3, "unknown id": 1, "no span": 1}
    assert result["given"] == {"lines": 8, "kept": 6, **bad}
    assert [result[f"documents{name}"] for name in ("", "_of_one_span", "_in_pairs")] == [5, 2, 3]
    assert (result["spans_given"], result["passages_without_spans"]) == (9, DOCUMENTS - 5)
    quarantine = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    assert sorted((row["line"], row["kind"]) for row in quarantine) == [
        (3, "blank span"),
        (3, "blank span"),
        (9, "unknown id"),
        (11, "no span"),
        (15, "blank span"),
    ]


def test_an_overlap_goes_from_a_given_span_into_the_next(inputs, tmp_path):
    (tmp_path / "s.jsonl").write_text(json.dumps({"doc_id": "d1", "spans": ["bal dif. fun gal.", "kel kol."]}))
    made(inputs, tmp_path / "out", f"file:{tmp_path}/s.jsonl")
    first, last = pq.read_table(tmp_path / "out" / "spans").to_pylist()
    assert first["overlap_ids"][1:-1] == tokens_of(inputs, "fun gal. kel kol."), "its last sentence, and what follows"
    whole = tokens_of(inputs, "bal dif. fun gal. kel kol.")
    end = len(tokens_of(inputs, "bal dif. fun gal.")) + len(tokens_of(inputs, "kel kol.")) // 2
    assert last["overlap_ids"][1:-1] == whole[max(0, end - SPAN_LIMIT) : end]


@pytest.mark.parametrize("fields", [{}, {"documents": "titles", "short_share": 1.0}])
def test_spans_that_were_cut_here_are_written_and_read_again_as_they_were(inputs, tmp_path, fields):
    """With the tests' tokenizer a sentence's tokens do not depend on what stands before it. Windows are cut within a
    sentence of 60 words, at words here.
    """
    config = SpansConfig(**{"span_length": SPAN_LENGTH, "short_share": 0.0, **fields})
    _, cut = made(inputs, tmp_path / "cut", "cut", **{"short_share": 0.0, **fields})
    place = Place(str(tmp_path / "spans.jsonl.gz"))
    assert write_spans(place, span_texts(config, inputs, Place(str(tmp_path / "cut")))) == len(cut)
    for _, document in read_spans(place):
        texts = [tokens_of(inputs, span) for span in document.spans]
        assert list(chain(*texts)) == list(chain(*cut[document.doc_id])), "no word is lost or doubled"
    _, again = made(inputs, tmp_path / "again", f"file:{place}")
    assert again == cut
    config = SpansConfig(source=f"file:{place}", span_length=SPAN_LENGTH)
    twice = [document for document in span_texts(config, inputs, Place(str(tmp_path / "again")))]
    assert twice == [document for _, document in read_spans(place)]
    if not fields:
        assert all(" ".join(one.spans) == text_of(int(one.doc_id[1:])) for one in twice), "words, not the tokenizer's"


@pytest.mark.parametrize("source", ["sentences", "file:", "cut:x", ""])
def test_an_unknown_source_names_the_choices(source):
    with pytest.raises(UserError, match="choose cut or file:PATH"):
        override(SpansConfig(), {"source": source})
