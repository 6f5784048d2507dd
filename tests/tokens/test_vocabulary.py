"""What masks are told of WordPiece, byte-level and SentencePiece tokens: word beginnings, stop-words, punctuation."""

import json
from pathlib import Path
from typing import Any

import pytest
from bm25s.stopwords import STOPWORDS_EN_PLUS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from midmask.vocabulary import STOP_WORDS, Vocabulary, load_tokenizer, save_tokenizer, speller

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

PIECES: dict[str, list[str]] = {
    "wordpiece": [
        *("the", "##the", "The", "Ġ", "don", "theory", ",", "##,", "...", "'", "—", "of", "##s", "s", "c3", "▁"),
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


@pytest.mark.parametrize(
    ("kind", "pieces", "text"),
    [
        ("wordpiece", ["the", "##s"], "thes"),
        ("wordpiece", ["Ġ", "##the"], "Ġthe"),
        ("byte-level", ["Ġthe", "ory"], "theory"),
        ("byte-level", ["the", "âĢĶ", "s"], "the—s"),
        ("sentencepiece", ["▁the", "s"], "thes"),
        ("sentencepiece", ["▁the", "<0x2C>"], "the,"),
    ],
)
def test_words_are_spelled_without_the_tokenizers_marks(
    tmp_path: Path, kind: str, pieces: list[str], text: str
) -> None:
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
