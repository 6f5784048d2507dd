"""Tokens: the trained vocabulary, the shards, and what masks are told about a tokenizer."""

import contextlib
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import BackboneConfig
from midmask.errors import UserError
from midmask.experiment.steps import InitialConfig, initial
from midmask.tokens import TokensConfig, tokenise
from midmask.vocabulary import Vocabulary, load_tokenizer

TEXTS = [f"Unbelievable masking of passages number {i} improves the retrieval of documents." for i in range(60)]


@pytest.fixture
def corpus(tmp_path):
    place = Place(str(tmp_path / "corpus"))
    for shard, rows in enumerate((TEXTS[:40], TEXTS[40:])):
        ids = [f"d{shard}-{i}" for i in range(len(rows))]
        table = pa.table({"doc_id": ids, "title": ["A title"] * len(rows), "text": rows})
        with (place / "docs" / f"{shard:05d}.parquet").writing() as stream:
            pq.write_table(table, stream)
    queries = pa.table({"query_id": ["q1", "q2"], "text": ["retrieval masking", "x " * 100]})
    with (place / "queries.parquet").writing() as stream:
        pq.write_table(queries, stream)
    return Artifact(place, {"fingerprint": "c"})


def run(corpus, out, **fields):
    config = TokensConfig(vocabulary_size=300, max_length=16, query_length=8, **fields)
    return tokenise(config, {"corpus": corpus}, Place(str(out)))


def rows(out, name):
    return pq.read_table(out / name)["ids"].to_pylist()


def test_rows_lie_parallel_to_the_corpus_and_decode_to_its_words(corpus, tmp_path):
    result = run(corpus, tmp_path / "t")
    tokenizer = load_tokenizer(tmp_path / "t" / "tokenizer")
    first, second = rows(tmp_path / "t", "passages/00000.parquet"), rows(tmp_path / "t", "passages/00001.parquet")
    assert (len(first), len(second), result["passages"], result["queries"]) == (40, 20, 60, 2)
    decoded = tokenizer.decode(first[0], skip_special_tokens=True)
    assert TEXTS[0].lower().startswith(decoded[:20])
    assert all(row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row in first + second)
    lengths = np.load(tmp_path / "t" / "lengths.npy")
    assert lengths.tolist() == [len(row) for row in first + second]
    assert max(lengths) <= 16
    assert len(rows(tmp_path / "t", "queries.parquet")[1]) == 8


def test_a_killed_run_goes_on_with_the_shards_it_has(corpus, tmp_path):
    run(corpus, tmp_path / "a")
    written = (tmp_path / "a" / "passages" / "00000.parquet").stat().st_mtime_ns
    (tmp_path / "a" / "passages" / "00001.parquet").unlink()
    run(corpus, tmp_path / "a")
    assert (tmp_path / "a" / "passages" / "00000.parquet").stat().st_mtime_ns == written
    assert len(rows(tmp_path / "a", "passages/00001.parquet")) == 20


@pytest.mark.parametrize("written", range(6))
def test_a_run_killed_after_any_file_goes_on_to_the_same_bytes(corpus, tmp_path, monkeypatch, written):
    """Files: two of the tokenizer, two shards, the queries, the lengths."""
    whole, count = Place(str(tmp_path / "whole")), itertools.count()
    result = run(corpus, whole)

    @contextlib.contextmanager
    def write_or_die(place, write=Place.writing):
        if next(count) == written:
            raise KeyboardInterrupt
        with write(place) as stream:
            yield stream

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Place, "writing", write_or_die)
        run(corpus, tmp_path / "killed")
    assert run(corpus, tmp_path / "killed") == result
    assert {name: (Place(str(tmp_path / "killed")) / name).sha256() for name in whole.sizes()} == {
        name: (whole / name).sha256() for name in whole.sizes()
    }


def test_the_vocabulary_knows_continuations_and_specials(corpus, tmp_path):
    run(corpus, tmp_path / "t")
    folder = tmp_path / "t" / "tokenizer"
    vocabulary = Vocabulary.of(folder)
    entries = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert vocabulary.size == len(entries)
    for token, index in entries.items():
        assert bool(vocabulary.continues_V[index]) == token.startswith("##"), token
        assert bool(vocabulary.special_V[index]) == (token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")), token
    assert entries["[UNK]"] == vocabulary.unk_id


def test_a_saved_tokenizer_does_not_depend_on_what_the_process_did_before(corpus, tmp_path):
    run(corpus, tmp_path / "t")
    tokens = Artifact(Place(str(tmp_path / "t")), {"fingerprint": "t"})

    def saved(name):
        initial(InitialConfig(backbone=BackboneConfig(name="tiny")), {"tokens": tokens}, Place(str(tmp_path / name)))
        return (tmp_path / name / "model" / "tokenizer.json").read_bytes()

    load_tokenizer.cache_clear()
    before = saved("before")
    load_tokenizer(tmp_path / "t" / "tokenizer")(["a b c"], truncation=True, max_length=5, padding=True)
    assert saved("after") == before
    assert json.loads(before)["truncation"] is None


def test_a_missing_tokenizer_is_one_line(corpus, tmp_path):
    with pytest.raises(UserError, match=r"^tokens\.tokenizer = .*: no such folder$") as caught:
        run(corpus, tmp_path / "t", tokenizer=str(tmp_path / "nowhere"))
    assert "\n" not in str(caught.value)


def test_only_texts_with_more_tokens_than_a_row_are_cut(corpus, tmp_path):
    run(corpus, tmp_path / "long")
    tokenizer = load_tokenizer(tmp_path / "long" / "tokenizer")
    lengths = np.array([len(tokenizer(text)["input_ids"]) for text in TEXTS])
    longest = int(lengths.max())
    named = {"tokenizer": str(tmp_path / "long" / "tokenizer"), "query_length": 8}
    for limit in (longest, longest - 1):
        config = TokensConfig(max_length=limit, **named)
        result = tokenise(config, {"corpus": corpus}, Place(str(tmp_path / f"{limit}")))
        assert result["cut_share"] == pytest.approx(float((lengths > limit).mean()), abs=1e-4)
    queries = pq.read_table(tmp_path / f"{longest}" / "queries.parquet")
    assert queries["cut"].to_pylist() == [len(tokenizer("retrieval masking")["input_ids"]) > 8, True]


def test_a_prompt_stands_before_the_title(corpus, tmp_path):
    run(corpus, tmp_path / "t", titles=True, passage_prompt="find ", query_prompt="ask ")
    tokenizer = load_tokenizer(tmp_path / "t" / "tokenizer")
    passage, query = rows(tmp_path / "t", "passages/00000.parquet")[0], rows(tmp_path / "t", "queries.parquet")[0]
    assert tokenizer.decode(passage[1:-1]).replace(" ", "").startswith("findatitle")
    assert tokenizer.decode(query[1:-1]).replace(" ", "").startswith("ask")
