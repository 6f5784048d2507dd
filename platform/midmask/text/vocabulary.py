"""Properties of a tokenizer that masks and models use."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from midmask.errors import UserError, reason
from midmask.store.pretrained import transformer_folder

STOP_WORDS = frozenset(
    """
    a about above after again against ain all am an and any are aren aren't as at be because been before being
    below between both but by can couldn couldn't d did didn didn't do does doesn doesn't doing don don't down
    during each few for from further had hadn hadn't has hasn hasn't have haven haven't having he her here hers
    herself him himself his how i if in into is isn isn't it it's its itself just ll m ma me mightn mightn't more
    most mustn mustn't my myself needn needn't no nor not now o of off on once only or other our ours ourselves
    out over own re s same shan shan't she she's should should've shouldn shouldn't so some such t than that
    that'll the their theirs them themselves then there these they this those through to too under until up ve
    very was wasn wasn't we were weren weren't what when where which while who whom why will with won won't wouldn
    wouldn't y you you'd you'll you're you've your yours yourself yourselves
    """.split()
)
"""The 179 English stop-words of NLTK's list, in lower case."""

TitleJoin = Literal["space", "separator", "pair"]
"""How a passage's title and text become one row.

    space        [CLS] title text [SEP]
    separator    [CLS] title [SEP] text [SEP], all of token type 0 (LexMAE, Shen et al. 2023; DPR)
    pair         the same row, whose text has token type 1, as BERT reads two texts (SimLM, Wang et al. 2023)
"""


@dataclass(frozen=True)
class Vocabulary:
    """Properties of a tokenizer that masks and models use; tensors are bool, [V]."""

    size: int
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int | None
    continues_V: Tensor  # whether a token continues a word
    special_V: Tensor  # padding, start, end and mask tokens
    stop_V: Tensor  # English stop-words and punctuation
    pairs: bool = False  # whether tokens after the first [SEP] of a row have token type 1 (`TitleJoin`)

    @property
    def pair_sep(self) -> int | None:
        """The id behind whose first place in a row token type 1 begins; None if all tokens are of type 0."""
        return self.sep_id if self.pairs else None

    def joined_by(self, join: TitleJoin) -> "Vocabulary":
        """The same tokenizer, for rows whose titles are joined in this way."""
        return replace(self, pairs=join == "pair")

    @staticmethod
    def of(folder: Path) -> "Vocabulary":
        """Reads a tokenizer folder.

        Raises:
            UserError: if the tokenizer lacks a mask, start, end or padding token, or has ids without a token.
        """
        tokenizer = load_tokenizer(folder)
        first = {
            "pad": tokenizer.pad_token_id,
            "cls": tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id,
            "sep": tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id,
            "mask": tokenizer.mask_token_id,
        }
        if missing := [name for name, token in first.items() if token is None]:
            raise UserError(
                f"tokenizer {folder}: no {', '.join(missing)} token. Name the tokenizer of a BERT-like masked LM."
            )
        size = len(tokenizer)
        tokens = tokenizer.convert_ids_to_tokens(range(size))
        if None in tokens:
            raise UserError(
                f"tokenizer {folder}: id {tokens.index(None):,} of {size:,} has no token, since ids go up to "
                f"{largest_id(tokenizer):,}; save it again with ids from 0 on, without gaps"
            )
        continues_V = _continuations(tokens)
        special = torch.zeros(size, dtype=torch.bool)
        special[list(first.values())] = True
        return Vocabulary(
            size=size,
            pad_id=first["pad"],
            cls_id=first["cls"],
            sep_id=first["sep"],
            mask_id=first["mask"],
            unk_id=tokenizer.unk_token_id,
            continues_V=continues_V,
            special_V=special,
            stop_V=stop_tokens(tokens, continues_V, speller(tokenizer)) & ~special,
        )


def _mark(tokens: list[str]) -> str:
    """By what a tokenizer tells words apart: '##' continues one (WordPiece); 'Ġ' (byte-level) or '▁' (SentencePiece)
    begins one; '' if it does not say. The mark that most tokens bear: byte-level vocabularies have headings like '##'
    as tokens, WordPiece ones the letter 'Ġ'.
    """
    counts = {mark: sum(token.startswith(mark) for token in tokens) for mark in ("##", "Ġ", "▁")}
    mark = max(counts, key=lambda mark: counts[mark])
    return mark if counts[mark] else ""


def _continuations(tokens: list[str]) -> Tensor:
    """Which tokens continue a word."""
    mark = _mark(tokens)
    return torch.tensor([mark != "" and token.startswith(mark) == (mark == "##") for token in tokens])


def speller(tokenizer: Any) -> Callable[[list[str]], str]:
    """The text of tokens that make one word, without the tokenizer's marks; a cut-up character is U+FFFD."""
    if _mark(tokenizer.convert_ids_to_tokens(range(len(tokenizer)))) in ("Ġ", "▁"):
        return lambda tokens: str(tokenizer.convert_tokens_to_string(tokens)).strip()
    return lambda tokens: "".join(token.removeprefix("##") for token in tokens)


@lru_cache(maxsize=4)
def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a folder; runs no code from it. Raises UserError if the folder holds none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(transformer_folder(folder), use_fast=True, trust_remote_code=False)
    except Exception as error:  # tokenizers raises Exception itself, and nothing of ours runs in there
        raise UserError(
            f"tokens.tokenizer = {str(folder)!r}: no tokenizer can be read there ({reason(error)})"
        ) from None


def largest_id(tokenizer: Any) -> int:
    """The largest id that a tokenizer can give, added tokens included."""
    return int(max(tokenizer.get_vocab().values()))


def refuse_tokens_beyond(named: str, largest: int, rows: int) -> None:
    """Raises UserError if the largest id of a tokenizer has no row in a table of `rows` embeddings."""
    if largest >= rows:
        raise UserError(
            f"{named}: the tokenizer has ids up to {largest:,}, the embeddings {rows:,} rows, so that some tokens "
            "have no vector. Save the tokenizer that the model was trained with, or add rows (resize_token_embeddings) "
            "and train them."
        )


def copy_untruncated(tokenizer: Any) -> Any:
    """The tokenizer to be saved: without the truncation and padding that its last use has set, so that
    its file does not depend on what the process did before.
    """
    fresh = copy.deepcopy(tokenizer)
    fresh.backend_tokenizer.no_truncation()
    fresh.backend_tokenizer.no_padding()
    return fresh


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Writes a tokenizer that transformers 4 loads as well.

    Version 5 calls one without a class of its own `TokenizersBackend`, which version 4 does not know; by the name of
    version 4 both load it.
    """
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text("utf-8"))
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        file.write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def stop_tokens(tokens: list[str], continues_V: Tensor, spell: Callable[[list[str]], str]) -> Tensor:
    """Which tokens are a whole stop-word, or made of punctuation alone (Long et al. 2022, ROM, count these); bool [V].

    A token that continues a word is no stop-word ('##the', 'the' without its 'Ġ'), but it may be punctuation. Tokens
    are judged one by one: the first piece of 'she ##pherd' counts too, about 1% of the tokens of Wikipedia masked by
    idf.

    Args:
        spell: as `speller` gives it.
    """

    def stops(token: str, continues: bool) -> bool:
        text = spell([token])
        if any(letter.isalnum() or letter == "\ufffd" for letter in text):
            return not continues and text.lower() in STOP_WORDS
        return text != ""

    return torch.tensor(list(map(stops, tokens, continues_V.tolist())))
