"""Condenser (Gao & Callan, EMNLP 2021): a head that sees early token states and the late [CLS] must solve the MLM.

loss      MLM by the head + MLM by the last layer ("late"), weights 1 and 1; one MLM head serves both
masked    encoder: 0.15 of the text by whole words, 80/10/10; the quota is a share of the text without specials, and
          [UNK] is passed over
vector    h, the last hidden state of [CLS]; the head reads [h ; states behind layer `skip_from` at all other places],
          so that what the upper layers know reaches it through h alone
trained   encoder, embeddings and MLM head; nothing is frozen or detached
thrown    the head: 2 ordinary layers, fresh
targets   the selected tokens, for both terms
differs   sums are divided by the global count of targets, not per micro-batch. `skip_from` is half of the layers unless
          given: 6 of 12 in the published commands (the code's default is 2). A text is cut before it is masked;
          the published collator draws a window of it at every visit, behind the mask: `excerpt` does so, before it
unpublished   the batch size
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.families import BackboneShape
from midmask.errors import UserError
from midmask.objectives.decoders import Decoder
from midmask.objectives.objective import Objective, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, mask_for_encoder, masked_lm_part
from midmask.text.vocabulary import Vocabulary


class HeadConfig(MaskedConfig):
    """Fields of Condenser and of what is built on it."""

    encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens hidden from the encoder")
    skip_from: int | None = Field(
        None, ge=1, description="layer whose token states the head reads, below the last; none: half of the layers"
    )
    head_layers: int = Field(2, ge=1, le=12, description="layers of the head")
    factors: ClassVar[tuple[str, ...]] = ("head_weight", "late_weight")
    head_weight: float = Field(1.0, ge=0.0, description="factor of the head's loss")
    late_weight: float = Field(1.0, ge=0.0, description="factor of the last layer's loss")

    def check(self, shape: BackboneShape) -> None:
        most = shape.layers - 1
        if most < 1:
            raise UserError(f"{self.name}: the backbone has 1 layer, so there is no early layer to read; take another")
        if self.skip_from is not None and self.skip_from > most:
            raise UserError(
                f"{self.name}: skip_from = {self.skip_from}, but the backbone has {shape.layers} layers; choose "
                f"objective.skip_from from 1 to {most}"
            )

    def mask(self, text: TokenRows, vocabulary: Vocabulary) -> MaskedRows:
        """The text as Condenser's collator corrupts it."""
        return mask_for_encoder(text, vocabulary, self, count_specials=False, unknown="skipped")


class Head(nn.Module):
    """The layers that are dropped after training, and the two losses they are trained with. The backbone is an
    argument.
    """

    def __init__(self, config: HeadConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.skip_from = config.skip_from or backbone.layers // 2
        self.layers = Decoder(backbone, layers=config.head_layers)

    def encode(self, backbone: Backbone, rows: MaskedRows) -> tuple[Tensor, Tensor]:
        """Late states and early ones, both [B, L, D]."""
        return backbone.hidden_and_layer(rows.ids_BL, rows.lengths_B, self.skip_from)

    def head_part(self, backbone: Backbone, rows: MaskedRows, vectors_BD: Tensor, early_BLD: Tensor) -> Part:
        """The loss of the head, which reads sentence vectors and early states."""
        read_BLD = self.layers(torch.cat([vectors_BD[:, None], early_BLD[:, 1:]], 1), rows.lengths_B)
        return masked_lm_part(backbone, read_BLD, rows, weight=self.config.head_weight)

    def parts(self, backbone: Backbone, rows: MaskedRows, late_BLD: Tensor, early_BLD: Tensor) -> dict[str, Part]:
        vectors_BD = backbone.sentence_vector(late_BLD, rows.lengths_B)
        return {
            "head_mlm": self.head_part(backbone, rows, vectors_BD, early_BLD),
            "late_mlm": masked_lm_part(backbone, late_BLD, rows, weight=self.config.late_weight),
        }

    def health(self, backbone: Backbone, rows: MaskedRows, late_BLD: Tensor, early_BLD: Tensor) -> dict[str, Tensor]:
        """The head's loss with and without the sentence vectors, as in `use_of_vector`."""
        vectors_BD = backbone.sentence_vector(late_BLD, rows.lengths_B)
        return use_of_vector(vectors_BD, lambda vectors: self.head_part(backbone, rows, vectors, early_BLD))


class Condenser(Objective):
    class Config(HeadConfig):
        """Condenser; the defaults are the published commands'."""

        name: Literal["condenser"] = Field("condenser", description="name of the objective")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("head_mlm", "late_mlm")

    def add_heads(self) -> None:
        self.head = Head(self.config, self.backbone)

    def draw(self, batch: Batch) -> MaskedRows:
        text = batch.texts["passage"]
        return self.config.mask(text, self.vocabulary(text.ids_BL.device))

    def counts(self, drawn: MaskedRows) -> dict[str, Tensor]:
        return {name: drawn.count for name in self.parts}

    def forward(self, drawn: MaskedRows) -> Loss:
        return Loss(self.head.parts(self.backbone, drawn, *self.head.encode(self.backbone, drawn)))

    def health(self, drawn: MaskedRows) -> dict[str, Tensor]:
        return self.head.health(self.backbone, drawn, *self.head.encode(self.backbone, drawn))
