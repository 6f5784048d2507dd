"""Spans against the texts that they are cut from."""

import random
from collections import Counter
from collections.abc import Iterable
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import chisquare

from midmask.core.batch import TokenRows
from midmask.corpora.documents.passages import sentences
from midmask.masking.words import recurring as recurring_ends
from midmask.queries.document_spans import SPANS, Document, SpansConfig, cut_into_spans, overlap
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from tests.support.corpora.collections import contents
from tests.support.queries.documents import (
    DOCUMENTS,
    SPAN_LENGTH,
    SPAN_LIMIT,
    made_spans,
    text_of,
    titled,
    tokens_of,
)


def joined(pieces: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(pieces))


def greedily(pieces: list[list[int]]) -> list[list[int]]:
    """The slow way: a long sentence in windows; a span is closed when the next one does not fit."""
    cut = [piece[at : at + SPAN_LIMIT] for piece in pieces for at in range(0, len(piece), SPAN_LIMIT)]
    spans: list[list[int]] = [[]]
    for piece in cut:
        if spans[-1] and len(spans[-1]) + len(piece) > SPAN_LIMIT:
            spans.append([])
        spans[-1] = spans[-1] + piece
    return spans


def test_a_document_is_cut_at_its_sentences_and_loses_nothing(inputs, tmp_path):
    result, documents = made_spans(inputs, tmp_path)
    lone = 0
    for number in range(DOCUMENTS):
        expected = greedily([tokens_of(inputs, sentence) for sentence in sentences(text_of(number))])
        if len(expected) < 2:
            lone += 1
            assert f"d{number}" not in documents
            continue
        rows = documents[f"d{number}"]
        assert [row["ids"][1:-1] for row in rows] == expected
        assert joined(expected) == tokens_of(inputs, text_of(number))
    assert 0 < lone < DOCUMENTS
    assert (result["documents"], result["documents_of_one_span"]) == (DOCUMENTS, lone)
    assert result["documents_in_pairs"] == len(documents) and result["spans"] == sum(map(len, documents.values()))
    starts = np.load(tmp_path / "starts.npy")
    assert np.diff(starts).tolist() == [len(rows) for rows in documents.values()] and starts[0] == 0
    assert not (tmp_path / "sharing.npy").exists() and "sharing" not in rows[0]


def test_spans_that_share_a_phrase_are_noted(inputs, tmp_path):
    """Against `recurring` of each two spans. Words of 60 in sentences of 14 seldom recur in pairs by chance."""
    _, documents = made_spans(inputs, tmp_path, documents="titles", recurring=True)
    vocabulary = Vocabulary.of(Path(str(inputs["tokens"].place)) / "tokenizer")
    for rows in list(documents.values())[::5]:
        texts = [token_rows_of(row["ids"]) for row in rows]
        for number, row in enumerate(rows):
            shared = [bool(recurring_ends(texts[number], text, vocabulary, 2, 10).any()) for text in texts]
            assert row["sharing"] == [other for other, is_shared in enumerate(shared) if is_shared and other != number]
    having = sum(any(row["sharing"] for row in rows) for rows in documents.values())
    assert 0 < having < len(documents)
    counts = [len(row["sharing"]) for rows in documents.values() for row in rows]
    assert np.load(tmp_path / "sharing.npy").tolist() == counts


def token_rows_of(ids: list[int]) -> TokenRows:
    return TokenRows(torch.tensor([ids]), torch.tensor([len(ids)]), torch.zeros(1, dtype=torch.int64))


def test_an_overlap_is_the_text_across_the_spans_end(inputs, tmp_path):
    """It begins within its span and goes on for as long as there is room and text."""
    _, documents = made_spans(inputs, tmp_path)
    for rows in documents.values():
        spans = [row["ids"][1:-1] for row in rows]
        whole, end = joined(spans), 0
        for row, span in zip(rows, spans, strict=True):
            start, end = end, end + len(span)
            context = row["overlap_ids"][1:-1]
            if row is rows[-1]:
                begins = [at for at in range(len(whole)) if whole[at : at + len(context)] == context]
                assert any(at < start < at + len(context) <= end for at in begins)
            else:
                assert any(whole[at : at + SPAN_LIMIT] == context for at in range(start, end))


def test_an_overlap_shares_one_to_half_of_the_sentences():
    document = Document("d", list(range(20)), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20])
    spans = [range(0, 4), range(4, 5), range(5, 10)]
    draws = [[overlap(document, spans, span, 9, random.Random(seed)) for seed in range(40)] for span in range(3)]
    assert {tuple(ids) for ids in draws[0]} == {tuple(range(4, 13)), tuple(range(6, 15))}
    assert {tuple(ids) for ids in draws[1]} == {tuple(range(9, 18))}, "of one sentence, the half of its tokens"
    assert {tuple(ids) for ids in draws[2]} == {tuple(range(3, 12)), tuple(range(5, 14))}


@pytest.mark.parametrize("share", [0.15, 1.0])
def test_short_spans_are_drawn_at_their_rate(share):
    """Sentences of one token fill a span exactly. A right sampler fails once in 10,000 sets of documents."""
    limit = 12
    spans = cut_into_spans(Document("d", list(range(40_000)), list(range(1, 40_001))), limit, share, random.Random(1))
    counts = Counter(len(span) for span in spans[:-1])
    expected = {length: share / (limit - 1) + (length == limit) * (1 - share) for length in range(2, limit + 1)}
    assert set(counts) <= set(expected)
    total = counts.total()
    assert chisquare([counts[n] for n in expected], [total * p for p in expected.values()]).pvalue > 1e-4


def test_drawn_limits_leave_no_span_empty_and_no_sentence_out():
    """A span holds one sentence at least, also where that is longer than the limit drawn for it."""
    random_ = random.Random(2)
    for _ in range(200):
        ends = sorted({random_.randint(1, 60) for _ in range(random_.randint(1, 12))})
        spans = cut_into_spans(Document("d", list(range(ends[-1])), ends), 60, 1.0, random_)
        assert list(chain.from_iterable(spans)) == list(range(len(ends))) and all(spans)


def test_passages_under_one_title_are_one_document(inputs, tmp_path):
    _, documents = made_spans(inputs, tmp_path, documents="titles")
    wanted = {}
    for _, run in groupby(range(DOCUMENTS), lambda number: (number // 40, titled(number) or number)):
        numbers = list(run)
        wanted[f"d{numbers[0]}"] = joined(tokens_of(inputs, text_of(number)) for number in numbers)
    assert documents.keys() <= wanted.keys() and len(documents) > 20
    for name, rows in documents.items():
        assert joined(row["ids"][1:-1] for row in rows) == wanted[name]


def test_a_killed_step_goes_on_and_gives_the_same_bytes(inputs, tmp_path):
    whole, killed, backwards = (tmp_path / name for name in ("whole", "killed", "backwards"))
    for out in (whole, killed):
        made_spans(inputs, out, short_share=0.5)
    (killed / "spans" / "00001.parquet").unlink()
    (killed / "spans" / "00001.parquet.0a1b2c3d.draft").write_bytes(b"half a shard")
    untouched = (killed / "spans" / "00000.parquet").stat().st_mtime_ns
    assert SPANS.missing(inputs, Place(str(killed))) == ["00001.parquet"]
    make = SPANS.worker(SpansConfig(span_length=SPAN_LENGTH, short_share=0.5), inputs, Place(str(backwards)))
    for name in ("00002.parquet", "00001.parquet", "00000.parquet"):
        make(name)
    for out in (killed, backwards):
        made_spans(inputs, out, short_share=0.5)
        assert contents(out) == contents(whole)
    assert (killed / "spans" / "00000.parquet").stat().st_mtime_ns == untouched


def test_words_at_sentence_ends_stay_as_the_tokenizer_cuts_them(tmp_path):
    """With a byte-level tokenizer a word's token holds the space before it: cut sentence by sentence it would not."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    text = "Red cats sleep well. Big dogs run. " * 8
    core = ByteLevelBPETokenizer()
    core.train_from_iterator([text], vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core._tokenizer, **names)
    tokenizer.save_pretrained(tmp_path / "tokens" / "tokenizer")
    (tmp_path / "corpus" / "docs").mkdir(parents=True)
    table = pa.table({"doc_id": ["d"], "title": [""], "text": [text.strip()]})
    pq.write_table(table, tmp_path / "corpus" / "docs" / "00000.parquet")
    own = {name: Artifact(Place(str(tmp_path / name)), {}) for name in ("corpus", "tokens")}
    SPANS(SpansConfig(span_length=SPAN_LENGTH, short_share=0.0), own, Place(str(tmp_path / "out")))
    rows = pq.read_table(tmp_path / "out" / "spans")["ids"].to_pylist()
    assert joined(ids[1:-1] for ids in rows) == tokenizer(text.strip(), add_special_tokens=False)["input_ids"]
    assert all(tokenizer.decode(ids[1:-1]).endswith(".") for ids in rows)
