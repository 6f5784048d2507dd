"""Masked language modelling (BERT, Devlin et al. 2019), the baseline "BERT-MS" when continued on the target corpus.

loss      sum over selected tokens of -log p(token)
masked    encoder: each token but the specials with probability 0.15 (run_mlm); or whole words, to an exact quota
corrupted 80% [MASK], 10% a random token of the vocabulary, 10% left as they are
thrown    nothing: the MLM head is part of the saved model
differs   from run_mlm: one passage is one row (no packing), and the sum is divided by the global count of targets
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.encoders.backbone import Backbone
from midmask.heads import linear_cross_entropy
from midmask.masking import Purpose, corrupt, select_tokens, select_words
from midmask.nouns import Batch, Loss, Part, TokenRows
from midmask.objectives.objective import Objective, ObjectiveConfig, flat_targets
from midmask.tokens import Vocabulary


@dataclass(frozen=True)
class MaskedRows:
    """ids_BL: corrupted; lengths_B; rows_R, labels_R: the targets' places in the flattened batch and their true ids."""

    ids_BL: Tensor
    lengths_B: Tensor
    rows_R: Tensor
    labels_R: Tensor

    @property
    def count(self) -> Tensor:
        """How many targets there are, int64, []."""
        return torch.tensor(len(self.labels_R), device=self.labels_R.device)


def mask_for_encoder(text: TokenRows, vocabulary: Vocabulary, *, ratio: float, whole_word: bool) -> MaskedRows:
    """A corrupted text and what is to be predicted in it."""
    select = select_words if whole_word else select_tokens
    selected_BL = select(text, vocabulary, ratio=ratio, purpose=Purpose.SELECT)
    corrupted_BL = corrupt(text, selected_BL, vocabulary)
    return MaskedRows(corrupted_BL, text.lengths_B, *flat_targets(text.ids_BL, selected_BL))


def masked_lm_sum(backbone: Backbone, hidden_BLD: Tensor, rows_R: Tensor, labels_R: Tensor) -> Tensor:
    """The summed cross-entropy of the MLM head at some places of the flattened batch; shape []."""
    features_RD = backbone.transform(hidden_BLD.flatten(0, 1).index_select(0, rows_R))
    return linear_cross_entropy(features_RD, backbone.output_weight_VD, backbone.output_bias_V, labels_R)


class MLM(Objective):
    class Config(ObjectiveConfig):
        """Masked language modelling."""

        name: Literal["mlm"] = Field("mlm", description="the objective")
        mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens to predict")
        whole_word: bool = Field(
            False, description="select whole words to an exact quota, instead of tokens one by one"
        )

    parts: ClassVar[tuple[str, ...]] = ("mlm",)

    def __init__(self, config: Config, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(backbone, vocabulary)
        self.config = config

    @torch.no_grad()
    def draw(self, batch: Batch) -> MaskedRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        return mask_for_encoder(text, vocabulary, ratio=self.config.mask_ratio, whole_word=self.config.whole_word)

    def counts(self, drawn: MaskedRows) -> dict[str, Tensor]:
        return {"mlm": drawn.count}

    def forward(self, drawn: MaskedRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.ids_BL, drawn.lengths_B)
        total = masked_lm_sum(self.backbone, hidden_BLD, drawn.rows_R, drawn.labels_R)
        return Loss({"mlm": Part(total, drawn.count)})
