"""Tokens: the trained vocabulary, the shards, and what masks are told of WordPiece, byte-level and SentencePiece."""

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bm25s.stopwords import STOPWORDS_EN_PLUS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from midmask.encoders.backbone import BackboneConfig
from midmask.experiment.steps import InitialConfig, initial
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import STOP_WORDS, Vocabulary, load_tokenizer, save_tokenizer, speller

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
    shards = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed").glob("passages/*")}
    assert run(corpus, tmp_path / "killed") == result
    assert {path: path.stat().st_mtime_ns for path in shards} == shards, "what was written is not made again"
    killed = Place(str(tmp_path / "killed"))
    assert all((killed / name).sha256() == (whole / name).sha256() for name in whole.sizes())


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


SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

PIECES: dict[str, list[str]] = {
    "wordpiece": [
        *("the", "##the", "The", "Ġ", "don", "theory", ",", "##,", "...", "'", "—", "of", "##s", "s", "c3", "▁")
    ],
    "byte-level": [
        *("Ġthe", "the", "ĠThe", "Ġtheory", ",", "Ġ,", "Ġ...", "âĢĶ", "Ġâ", "Ġof", "s", "##", "####", "Ã©", "Ġ", "3"),
        *("ory", "ĠI", "Ġwith", "Ġretriev"),
    ],
    "sentencepiece": ["▁the", "the", "▁The", "▁theory", ",", "▁,", "▁...", "—", "▁of", "s", "##", "é", "▁", "<0x2C>"],
}

CONTINUE = {
    "wordpiece": {"##the", "##,", "##s"},
    "byte-level": {"the", ",", "âĢĶ", "s", "##", "####", "Ã©", "3", "ory"},
    "sentencepiece": {"the", ",", "—", "s", "##", "é", "<0x2C>"},
}

STOP = {
    "wordpiece": {"the", "The", "don", "of", "s", ",", "##,", "...", "'", "—", "▁"},
    "byte-level": {"Ġthe", "ĠThe", "Ġof", "ĠI", "Ġwith", ",", "Ġ,", "Ġ...", "âĢĶ", "##", "####"},
    "sentencepiece": {"▁the", "▁The", "▁of", ",", "▁,", "▁...", "—", "##", "<0x2C>"},
}
"""Stop-words that begin a word, and punctuation; no piece that continues a word but punctuation; no half character."""


def saved(folder: Path, kind: str) -> Path:
    """A tokenizer of these very pieces."""
    entries = [*SPECIALS, *PIECES[kind]]
    if kind == "wordpiece":
        core = Tokenizer(models.WordPiece({token: i for i, token in enumerate(entries)}, unk_token="[UNK]"))
    elif kind == "byte-level":
        core = Tokenizer(models.BPE({token: i for i, token in enumerate(entries)}, [], unk_token="[UNK]"))
        core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    else:
        core = Tokenizer(models.Unigram([(token, -1.0) for token in entries], unk_id=1, byte_fallback=True))
        core.pre_tokenizer = pre_tokenizers.Metaspace()
        core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    names: dict[str, Any] = {f"{token[1:-1].lower()}_token": token for token in SPECIALS}
    PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", PIECES)
def test_stop_words_and_continuations_are_read_off_the_pieces(tmp_path: Path, kind: str) -> None:
    vocabulary = Vocabulary.of(saved(tmp_path, kind))
    tokens = load_tokenizer(tmp_path).convert_ids_to_tokens(range(vocabulary.size))
    assert set(PIECES[kind]) <= set(tokens)
    continues = {token for token in PIECES[kind] if vocabulary.continues_V[tokens.index(token)]}
    stops = {token for token in tokens if vocabulary.stop_V[tokens.index(token)]}
    assert continues == CONTINUE[kind]
    assert stops == STOP[kind]
    assert {token for token in tokens if vocabulary.special_V[tokens.index(token)]} == {*SPECIALS} - {"[UNK]"}


SPELLED = [
    ("wordpiece", ["the", "##s"], "thes"), ("wordpiece", ["Ġ", "##the"], "Ġthe"),
    ("byte-level", ["Ġthe", "ory"], "theory"), ("byte-level", ["the", "âĢĶ", "s"], "the—s"),
    ("sentencepiece", ["▁the", "s"], "thes"), ("sentencepiece", ["▁the", "<0x2C>"], "the,"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "pieces", "text"), SPELLED)
def test_words_are_spelled_without_the_tokenizers_marks(tmp_path, kind, pieces, text) -> None:
    assert speller(load_tokenizer(saved(tmp_path, kind)))(pieces) == text


def test_a_tokenizer_without_marks_has_words_of_one_token(tmp_path: Path) -> None:
    entries = {token: i for i, token in enumerate([*SPECIALS, "the", "ory", ","])}
    names: dict[str, Any] = {f"{token[1:-1].lower()}_token": token for token in SPECIALS}
    core = Tokenizer(models.WordLevel(entries, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(tmp_path)
    vocabulary = Vocabulary.of(tmp_path)
    assert not bool(vocabulary.continues_V.any())
    assert vocabulary.stop_V.tolist() == [False] * 5 + [True, False, True]


def test_the_stop_words_are_those_of_nltk() -> None:
    """Which bm25s has, and which must be known without it."""
    assert set(STOPWORDS_EN_PLUS) == STOP_WORDS and len(STOP_WORDS) == 179


@pytest.mark.parametrize("kind", list(PIECES))
def test_a_saved_tokenizer_names_a_class_that_transformers_4_has(kind: str, tmp_path: Path) -> None:
    """That the older library then reads it is shown by tests/docs/test_model_elsewhere.py."""
    first = load_tokenizer(saved(tmp_path / "first", kind))
    assert type(first).__name__ == "TokenizersBackend", "what this is about; else save_tokenizer has nothing to do"
    save_tokenizer(first, tmp_path / "second")
    settings = json.loads((tmp_path / "second" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    again = load_tokenizer(tmp_path / "second")
    assert type(again) is type(first) and again.get_vocab() == first.get_vocab()
    assert again("the theory, of") == first("the theory, of") and again.special_tokens_map == first.special_tokens_map
