"""What an encoder reads beside token ids: which tokens are real, and which belong to the second text of a pair.

Shapes: B rows, L tokens.
"""

from typing import Any

import torch
from torch import Tensor


def padding_mask(lengths_B: Tensor, length: int) -> Tensor | None:
    """True at real tokens, [B, 1, 1, L], as the attention of every layer takes it; none if no row is padded.

    On a GPU it is always made: to look at the lengths would make the host wait for the device.
    """
    if not lengths_B.is_cuda and bool((lengths_B == length).all()):
        return None
    return _real_tokens(lengths_B, length)[:, None, None]


def count_token_types(settings: Any) -> int:
    """Token types that the model of a Hugging Face config tells apart; 0 if it has none."""
    return int(getattr(settings, "type_vocab_size", 0))


def type_inputs(settings: Any, pair_sep: int | None, ids_BL: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
    """The argument `token_type_ids` of a model, int64 [B, L]: 1 behind the first [SEP] of each row, 0 up to it and at
    padding. Equal to what a tokenizer gives for pairs and for single texts, whose only [SEP] is their last token.

    Empty, so that all types are 0, for a model without a second type.

    Args:
        settings: the model's Hugging Face config. pair_sep: the id of [SEP] where rows are pairs; none: they are not.
    """
    if pair_sep is None or count_token_types(settings) < 2:
        return {}
    is_sep_BL = (ids_BL == pair_sep).long()
    behind_BL = is_sep_BL.cumsum(1) > is_sep_BL
    return {"token_type_ids": (behind_BL & _real_tokens(lengths_B, ids_BL.shape[1])).long()}


def _real_tokens(lengths_B: Tensor, length: int) -> Tensor:
    """False at padding, [B, L]."""
    return torch.arange(length, device=lengths_B.device) < lengths_B[:, None]
