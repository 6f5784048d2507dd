"""Term weights from attention: what a word receives in a frozen encoder's last layer, averaged over heads."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from midmask.arrays import Doubles
from midmask.derived.words import ShardWords
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary

BATCH_TOKENS = 2048
"""Padded tokens of one batch. The library gives the attention of all layers, so a batch must be small."""


class AttentionWeigher:
    """Loads an encoder once; on a GPU if there is one. Batches are fixed by the shard alone, so bits are too."""

    def __init__(
        self,
        encoder: Path,
        vocabulary: Vocabulary,
        looks: Literal["cls", "all"],
        pieces: Literal["mean", "max", "sum"],
    ) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        backbone = build_backbone(BackboneConfig(name=str(encoder), dropout=0.0), vocabulary, seed=0)
        backbone.model.set_attn_implementation("eager")  # the only implementation that returns attention weights
        self._backbone = backbone.to(self._device).eval()
        self._pad_id, self._looks, self._pieces = vocabulary.pad_id, looks, pieces

    def weights(self, found: ShardWords, name: str) -> Doubles:
        rows = [torch.from_numpy(row.astype(np.int64)) for row in np.split(found.ids_T, found.lengths_P.cumsum()[:-1])]
        received = [torch.zeros(0)] * len(rows)
        longest = max(map(len, rows), default=0)
        size = max(1, BATCH_TOKENS // max(longest, 1))
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            for row, attention in zip(batch, self._sum_received([rows[row] for row in batch]), strict=True):
                received[row] = attention
        return of_words(torch.cat([torch.zeros(0), *received]).numpy().astype(np.float64), found, self._pieces)

    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    @torch.inference_mode()
    def _sum_received(self, rows: list[Tensor]) -> list[Tensor]:
        """What each token of each row receives, [length] each."""
        lengths_B = torch.tensor([len(row) for row in rows], device=self._device)
        ids_BL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._pad_id).to(self._device)
        attention_BLL = last_attention(self._backbone, ids_BL, lengths_B)
        if self._looks == "cls":
            looked_BL = attention_BLL[:, 0]
        else:
            real_BL = torch.arange(ids_BL.shape[1], device=self._device) < lengths_B[:, None]
            looked_BL = (attention_BLL * real_BL[..., None]).sum(1) / lengths_B[:, None]
        return [looked_BL[row, : len(ids)].cpu() for row, ids in enumerate(rows)]


def last_attention(backbone: Backbone, ids_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """The last layer's attention, mean over its heads; [B, L, L], who looks first.

    Raises:
        UserError: if a row is longer than the encoder takes, or its family does not tell.
    """
    if ids_BL.shape[1] > backbone.max_length:
        raise UserError(
            f"weights.encoder: a row of {ids_BL.shape[1]} tokens, but the encoder takes at most {backbone.max_length}. "
            "Lower tokens.max_length."
        )
    real_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
    layers = backbone.encoder(input_ids=ids_BL, attention_mask=real_BL.long(), output_attentions=True).attentions
    if not layers:
        raise UserError(
            f"weights.encoder: a {backbone.shape.family} model returns no attention weights; choose a BERT-like one"
        )
    attention: Tensor = layers[-1].float().mean(1)
    return attention


def of_words(received_T: Doubles, found: ShardWords, pieces: Literal["mean", "max", "sum"]) -> Doubles:
    """The attention that the tokens of each word use receive, as one number, [U]."""
    received_C = received_T[found.candidate_T]
    uses = len(found.word_U)
    if pieces == "max":
        highest_U = np.zeros(uses)
        np.maximum.at(highest_U, found.use_of_C, received_C)
        return highest_U
    sum_U = np.zeros(uses)
    np.add.at(sum_U, found.use_of_C, received_C)
    return sum_U if pieces == "sum" else sum_U / np.bincount(found.use_of_C, minlength=uses)
