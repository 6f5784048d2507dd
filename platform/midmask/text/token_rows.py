"""Texts as rows of token ids: passages, and queries that are typed or made, are cut as the tokenise step cuts them."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from midmask.text.vocabulary import TitleJoin, load_tokenizer

CutPassages = Callable[[list[str], list[str]], tuple[list[list[int]], list[bool]]]
"""Titles and texts -> token ids, and whether a row was cut."""


def join_titles(titles: list[str], texts: list[str]) -> list[str]:
    """Each passage as one text, 'title text'."""
    return [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]


def passage_cutter(
    tokenizer_folder: Path, max_length: int, *, titles: bool, title_join: TitleJoin, prompt: str
) -> CutPassages:
    """Passages -> rows of at most `max_length` tokens."""
    encode = make_cutter(tokenizer_folder, max_length)

    def rows_of(first: list[str], texts: list[str]) -> tuple[list[list[int]], list[bool]]:
        if title_join == "space":
            return encode([prompt + text for text in (join_titles(first, texts) if titles else texts)])
        return encode(texts, [prompt + title for title in first])

    return rows_of


def encoder(tokenizer_folder: Path, max_length: int) -> Callable[[list[str]], list[list[int]]]:
    """Texts -> token ids with special tokens, at most `max_length` of them; the rest of a text is cut."""
    encode = make_cutter(tokenizer_folder, max_length)
    return lambda texts: encode(texts)[0]


class _Cutter(Protocol):
    """Texts, and titles that stand before them as first texts of pairs -> token ids, and whether a row was cut."""

    def __call__(self, texts: list[str], titles: list[str] | None = None, /) -> tuple[list[list[int]], list[bool]]: ...


def make_cutter(tokenizer_folder: Path, max_length: int) -> _Cutter:
    """As `encoder`, and of each row whether it was cut. Of a pair, the longer text is cut first, as SimLM and LexMAE do
    (`longest_first`); a title loses the separators that it spells, since the first one of a row ends the title.
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    separator = tokenizer.sep_token or tokenizer.eos_token

    def encode(texts: list[str], titles: list[str] | None = None) -> tuple[list[list[int]], list[bool]]:
        if not texts:
            return [], []
        pair = (texts,) if titles is None else ([title.replace(separator, " ") for title in titles], texts)
        rows = tokenizer(*pair, truncation=True, max_length=max_length, return_attention_mask=False)
        return [list(row) for row in rows["input_ids"]], [bool(row.overflowing) for row in rows.encodings]

    return encode


def prompt_tokens(tokenizer_folder: Path, prompt: str) -> int:
    """Tokens of a prompt at the beginning of a row, special tokens before it included."""
    tokenizer = load_tokenizer(tokenizer_folder)
    ids = tokenizer(prompt)["input_ids"]
    return len(ids) - (ids[-1] in tokenizer.all_special_ids)
