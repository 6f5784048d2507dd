"""TSDAE (Wang, Reimers & Gurevych, EMNLP Findings 2021): write the text from the vector of what is left of it.

loss      causal language modelling of the whole text by the decoder; the encoder has no loss of its own
deleted   each word with probability 0.6; of a text that would lose all, one word stays. The encoder reads the rest
vector    h, the last hidden state of [CLS]
trained   encoder, embeddings and MLM head, shared by both sides; and each layer's attention over h
thrown    the attentions over h. The decoder is the encoder itself: its layers see the past alone, and each reads h
          between attention and feed-forward
targets   all tokens after the first, [SEP] too
differs   sums are divided by the global count of targets. Attention over one vector gives every place the same, W_o
          (W_v h + b_v) + b_o, so the queries and keys of the published code, and a dropout of its one weight, do not
          exist here. Words are the tokenizer's, published are NLTK's
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.families import BackboneShape
from midmask.masking.corruption import only
from midmask.masking.randomness import Purpose, uniform
from midmask.masking.words import find_words
from midmask.objectives.decoders import attention_half, feed_forward_half
from midmask.objectives.objective import Objective, ObjectiveConfig, require_plain_layers, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedRows, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import next_tokens


@dataclass(frozen=True)
class DamagedRows:
    """What is left of the texts, and the texts, each place with the token after it as its target."""

    left: TokenRows
    whole: MaskedRows


class VectorAttention(nn.Module):
    """Attention over one vector, which has no choice: LN(x + drop(W_o (W_v h + b_v) + b_o))."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.dropout = backbone.dropout
        self.value, self.out = (nn.Linear(backbone.width, backbone.width) for _ in range(2))
        self.norm = nn.LayerNorm(backbone.width, backbone.norm_eps)
        for linear in (self.value, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BLD: Tensor, vector_B1D: Tensor) -> Tensor:
        read_BLD = self.out(self.value(vector_B1D)).expand_as(x_BLD)
        y: Tensor = self.norm(x_BLD + F.dropout(read_BLD, self.dropout, self.training))
        return y


class TSDAE(Objective):
    class Config(ObjectiveConfig):
        """TSDAE; the default is the published share."""

        name: Literal["tsdae"] = Field("tsdae", description="name of the objective")
        deletion_ratio: float = Field(0.6, ge=0.0, lt=1.0, description="chance of each word to be deleted")

        def check(self, shape: BackboneShape) -> None:
            require_plain_layers(
                shape,
                "objective.name = tsdae: its decoder is the encoder itself with an attention in each layer, and layers",
            )

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("decoder_clm",)

    def add_heads(self) -> None:
        self.attentions = nn.ModuleList(VectorAttention(self.backbone) for _ in range(self.backbone.layers))

    def draw(self, batch: Batch) -> DamagedRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        words = find_words(text, vocabulary)
        chance_BL = uniform(text.keys_B, Purpose.DELETE, text.ids_BL.shape[1]).gather(1, words.start_BL.long())
        best_B1 = chance_BL.masked_fill(~words.candidate_BL, -1.0).max(1, keepdim=True).values
        stays_BL = (chance_BL >= self.config.deletion_ratio) | (chance_BL == best_B1)
        return DamagedRows(only(text, stays_BL, vocabulary), next_tokens(text))

    def counts(self, drawn: DamagedRows) -> dict[str, Tensor]:
        return {"decoder_clm": drawn.whole.count}

    def forward(self, drawn: DamagedRows) -> Loss:
        return Loss({"decoder_clm": self._decode(self._vector(drawn), drawn.whole)})

    def _vector(self, drawn: DamagedRows) -> Tensor:
        return self.backbone.sentence_vectors(drawn.left.ids_BL, drawn.left.lengths_B)[:, None]

    def _decode(self, vector_B1D: Tensor, rows: MaskedRows) -> Part:
        """Padding stands behind a text, where no place of it looks."""
        heads, dropout = self.backbone.heads, self.backbone.dropout if self.training else 0.0
        x_BLD = self.backbone.embed(rows.ids_BL)
        for number, attention in enumerate(self.attentions):  # each layer of the encoder as the decoder's
            parts = self.backbone.family.parts_of(self.backbone.encoder, number)
            y_BLD = attention_half(parts, x_BLD, x_BLD, None, heads=heads, dropout=dropout, causal=True)
            x_BLD = feed_forward_half(parts, attention(y_BLD, vector_B1D), dropout=dropout)
        return masked_lm_part(self.backbone, x_BLD, rows)

    def health(self, drawn: DamagedRows) -> dict[str, Tensor]:
        """Whether the decoder makes use of the vector."""
        return use_of_vector(self._vector(drawn), lambda vector: self._decode(vector, drawn.whole))
