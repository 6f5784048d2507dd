"""The encoder's side of masked methods: which tokens it must predict, and the loss on them. Shared by all."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.heads import linear_cross_entropy
from midmask.masking.corruption import Unknown, corrupt, select_highest, select_tokens, select_words
from midmask.masking.randomness import Purpose
from midmask.objectives.objective import ObjectiveConfig, RowForm, flat_targets
from midmask.text.vocabulary import Vocabulary

EncoderMask = Literal["word", "token", "exact", "weighted"]
"""How tokens are chosen that an encoder must predict."""


class MaskedConfig(ObjectiveConfig):
    """Base of the configs of methods whose encoder reads a masked text."""

    encoder_mask_ratio: float = Field(0.3, gt=0.0, lt=1.0, description="share of tokens hidden from the encoder")
    encoder_mask: EncoderMask = Field(
        "word",
        description="whole words to an exact quota; tokens one by one; exactly ceil(ratio * n) of a text's n tokens "
        "(LexMAE); or an exact share by term weight (ROM)",
    )
    mask_temperature: float = Field(
        1.0, ge=0.0, le=1000.0, description="weighted: tokens of highest temperature * uniform + term weight are hidden"
    )

    def row_form(self) -> RowForm:
        return RowForm(term_weights=self.encoder_mask == "weighted")


@dataclass(frozen=True)
class MaskedRows:
    """Corrupted token rows and the tokens to predict in them (the targets)."""

    ids_BL: Tensor  # corrupted
    lengths_B: Tensor
    rows_R: Tensor  # position of each target in the flattened batch
    labels_R: Tensor  # true id of each target

    @property
    def selected_BL(self) -> Tensor:
        """True at the targets; bool."""
        chosen = torch.zeros(self.ids_BL.numel(), dtype=torch.bool, device=self.ids_BL.device)
        return chosen.index_fill_(0, self.rows_R, True).view_as(self.ids_BL)

    @property
    def count(self) -> Tensor:
        """Number of targets, int64, []."""
        return torch.tensor(len(self.labels_R), device=self.labels_R.device)


def mask_for_encoder(
    text: TokenRows,
    vocabulary: Vocabulary,
    config: MaskedConfig,
    *,
    count_specials: bool = True,
    unknown: Unknown = "spent",
) -> MaskedRows:
    """Draws a corrupted text (80/10/10) and the tokens to predict in it.

    Args:
        count_specials, unknown: how the method's published whole-word sampler treats specials and [UNK], as in
            `select_words`.

    Raises:
        ValueError: if the mask is by term weight and the rows have none: they would be masked uniformly, unnoticed.
    """
    ratio, purpose = config.encoder_mask_ratio, Purpose.SELECT
    if config.encoder_mask == "word":
        selected_BL = select_words(
            text, vocabulary, ratio=ratio, purpose=purpose, count_specials=count_specials, unknown=unknown
        )
    elif config.encoder_mask == "token":
        selected_BL = select_tokens(text, vocabulary, ratio=ratio, purpose=purpose)
    elif config.encoder_mask == "exact":
        unweighted = replace(text, weights_BL=None)
        selected_BL = select_highest(unweighted, vocabulary, ratio=ratio, purpose=purpose, round_up=True)
    else:
        if text.weights_BL is None:
            raise ValueError("encoder_mask = weighted, but these rows came without term weights")
        selected_BL = select_highest(
            text, vocabulary, ratio=ratio, purpose=purpose, temperature=config.mask_temperature
        )
    return corrupted_rows(text, selected_BL, vocabulary)


def corrupted_rows(text: TokenRows, selected_BL: Tensor, vocabulary: Vocabulary) -> MaskedRows:
    """The text with the selected tokens corrupted (80/10/10), which are its targets."""
    ids_BL = corrupt(text, selected_BL, vocabulary)
    return MaskedRows(ids_BL, text.lengths_B, *flat_targets(text.ids_BL, selected_BL))


def masked_lm_part(backbone: Backbone, hidden_BLD: Tensor, rows: MaskedRows, *, weight: float = 1.0) -> Part:
    """The summed cross-entropy of the backbone's MLM head at the targets."""
    features_RD = backbone.transform(hidden_BLD.flatten(0, 1).index_select(0, rows.rows_R))
    total = linear_cross_entropy(features_RD, backbone.output_weight_VD, backbone.output_bias_V, rows.labels_R)
    return Part(total, rows.count, weight)
