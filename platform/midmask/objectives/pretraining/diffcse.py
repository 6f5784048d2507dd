"""DiffCSE (Chuang et al., NAACL 2022): SimCSE, and the vector must show where a generator has edited the text.

loss      SimCSE's contrastive loss of z + 0.005 times the cross-entropy of replaced-token detection; + 0.2 of the
          generator's own masked LM if it is trained, which reaches no weight of the encoder
masked    for the generator: each token with probability 0.30, 80/10/10, in each of the two passes of a text anew. Its
          guesses take the places of these tokens; the encoder reads the text as it is
vector    h, the last hidden state of [CLS]; z = norm(V relu(norm(W h))), W to twice the width, norm over the batch
trained   encoder and embeddings; the MLM head stays untrained
thrown    the projector of z; the discriminator, a second encoder with embeddings of its own, which begins as a copy of
          the first, reads h in the place of [CLS] and ends in a linear layer; the generator
targets   every token, specials too: whether it differs from the text's (a right guess counts as kept)
needs     backbone.dropout > 0 (published: 0.1), as SimCSE
differs   the projector's batch norm is over the rows of all workers and micro-batches, not of one GPU, and keeps no
          running statistics, because nothing reads z after training. As rows meet in z, the discriminator reads h; in
          the published code it reads z, and h with the switch before_mlp. Padding, which the published mean counts as
          kept tokens, is no target. Guesses are drawn from the softmax, as the paper says; the published code takes
          the likeliest token at all places but [CLS], masked or not (guesses=likeliest). Published is a frozen
          DistilBERT, here the folder of one; as there is none on a bare machine, the default is a small generator of
          its own, trained along. It guesses without dropout. Gradients reach the rows of all workers
"""

import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from midmask.core.batch import Batch, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.families import BackboneShape
from midmask.masking.randomness import rekey
from midmask.objectives import distributed as world
from midmask.objectives.decoders import attention_half, feed_forward_half, fresh_linear
from midmask.objectives.in_batch import in_batch_part
from midmask.objectives.objective import (
    CoupledObjective,
    Represented,
    require_dropout,
    require_plain_layers,
    use_of_vector,
)
from midmask.objectives.pretraining.encoder_mask import EncoderMask, MaskedConfig, MaskedRows, mask_for_encoder
from midmask.objectives.pretraining.generator import (
    TokenGeneratorConfig,
    build_generator,
    fill,
    generator_count,
    generator_part,
)
from midmask.objectives.pretraining.simcse import two_passes
from midmask.objectives.pretraining.vector_decoding import end_to_end


@dataclass(frozen=True)
class EditedRows:
    """Texts in which a generator's guesses replace tokens."""

    ids_BL: Tensor
    real_BL: Tensor  # true at all tokens but padding, bool
    replaced_BL: Tensor  # true where a guess is not the text's token, bool


@dataclass(frozen=True)
class DiffCSERows:
    """The inputs and targets of one batch of DiffCSE."""

    text: TokenRows  # the texts, unmasked
    edited: EditedRows  # two edits of each text: first the first edits of all texts, then the second ones
    masked: MaskedRows  # both edits as the generator reads them


class Projector(nn.Module):
    """Two linear layers without biases, each with a norm over the batch, ReLU between; dropped after training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=0.02)
        self.scale, self.shift = nn.Parameter(torch.ones(2 * width)), nn.Parameter(torch.zeros(2 * width))

    def forward(self, vectors_ND: Tensor) -> Tensor:
        """[N, D]; every row depends on all others."""
        inner = F.batch_norm(self.inner(vectors_ND), None, None, self.scale, self.shift, training=True)
        return F.batch_norm(self.outer(F.relu(inner)), None, None, training=True)


class Discriminator(nn.Module):
    """An encoder that tells replaced tokens from kept ones, given a sentence vector; dropped after training.

    It begins as a copy of the backbone's. The backbone is an argument, not a member: its weights are kept.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(backbone.encoder)
        self.head = fresh_linear(backbone.width, 2)

    def forward(self, backbone: Backbone, vectors_BD: Tensor, rows: EditedRows) -> Tensor:
        """Logits of kept and replaced, [B, L, 2]."""
        dropout = backbone.dropout if self.training else 0.0
        embedded_BLD = backbone.family.embed(self.encoder, input_ids=rows.ids_BL)
        x_BLD = torch.cat([vectors_BD[:, None], embedded_BLD[:, 1:]], 1)
        for number in range(backbone.layers):
            parts = backbone.family.parts_of(self.encoder, number)
            x_BLD = attention_half(parts, x_BLD, x_BLD, rows.real_BL[:, None], heads=backbone.heads, dropout=dropout)
            x_BLD = feed_forward_half(parts, x_BLD, dropout=dropout)
        logits_BL2: Tensor = self.head(x_BLD)
        return logits_BL2


class DiffCSE(CoupledObjective):
    class Config(TokenGeneratorConfig, MaskedConfig):
        """DiffCSE; the defaults are the published command's, but for the generator and its guesses."""

        contrastive: ClassVar[bool] = True
        name: Literal["diffcse"] = Field("diffcse", description="name of the objective")
        temperature: float = Field(0.05, gt=0.0, le=100.0, description="divisor of the cosines")
        replaced_weight: float = Field(0.005, ge=0.0, description="factor of the loss of replaced-token detection")
        encoder_mask_ratio: float = Field(0.3, gt=0.0, lt=1.0, description="share of tokens hidden from the generator")
        encoder_mask: EncoderMask = Field("token", description="how tokens are chosen that the generator replaces")
        guesses: Literal["sampled", "likeliest"] = Field(
            "sampled",
            description="drawn from the generator's softmax at hidden places, or its likeliest token at every place "
            "but [CLS], as in the published code",
        )

        def check(self, shape: BackboneShape) -> None:
            require_dropout(shape, self.name)
            require_plain_layers(
                shape, "objective.name = diffcse: its discriminator reads a vector in the place of a token, and layers"
            )
            super().check(shape)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive", "replaced", "generator_mlm")

    def add_heads(self) -> None:
        self.projector = Projector(self.backbone.width)
        self.discriminator = Discriminator(self.backbone)
        self.generator = build_generator(self.config.generator, self._vocabulary)

    def draw(self, batch: Batch) -> DiffCSERows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        twice = end_to_end(text, rekey(text), vocabulary.pad_id)
        masked = mask_for_encoder(twice, vocabulary, self.config)
        positions_L = torch.arange(twice.ids_BL.shape[1], device=twice.ids_BL.device)
        real_BL = positions_L < twice.lengths_B[:, None]
        likeliest = self.config.guesses == "likeliest"
        places_BL = real_BL & (positions_L > 0) if likeliest else masked.selected_BL
        read = replace(twice, ids_BL=masked.ids_BL)
        ids_BL = fill(self.generator, read, places_BL, vocabulary.size, likeliest=likeliest)
        return DiffCSERows(text, EditedRows(ids_BL, real_BL, ids_BL != twice.ids_BL), masked)

    def counts(self, drawn: DiffCSERows) -> dict[str, Tensor]:
        return {
            "contrastive": torch.tensor(len(drawn.text.lengths_B), device=drawn.text.lengths_B.device),
            "replaced": drawn.edited.real_BL.sum(),
            "generator_mlm": generator_count(self.generator, drawn.masked),
        }

    def represent(self, drawn: DiffCSERows) -> Represented:
        vectors_TD = two_passes(self.backbone, drawn.text)
        weight = self.config.generator_weight
        return Represented(
            vectors_TD.chunk(2),
            parts=lambda: {
                "replaced": self._replaced_part(vectors_TD, drawn.edited),
                "generator_mlm": generator_part(self.generator, drawn.masked, weight=weight),
            },
        )

    def _replaced_part(self, vectors_TD: Tensor, rows: EditedRows) -> Part:
        logits_TL2 = self.discriminator(self.backbone, vectors_TD, rows)
        losses_TL = F.cross_entropy(logits_TL2.transpose(1, 2), rows.replaced_BL.long(), reduction="none")
        return Part((losses_TL * rows.real_BL).sum(), rows.real_BL.sum(), self.config.replaced_weight)

    def coupling(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.projector.parameters())

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        local_B = world.local_positions(vectors[0])
        all_TD = torch.cat([world.gather_rows(each) for each in vectors])
        with torch.autocast(all_TD.device.type, enabled=False):
            projected_TD = self.projector(all_TD.to(self.projector.scale.dtype))
        first_ND, second_ND = F.normalize(projected_TD, dim=-1).chunk(2)
        temperature = self.config.temperature
        return {"contrastive": in_batch_part(first_ND[local_B], second_ND, local_B, temperature=temperature)}

    def health(self, drawn: DiffCSERows) -> dict[str, Tensor]:
        """The discriminator's loss with and without h."""
        vectors_TD = two_passes(self.backbone, drawn.text)
        return use_of_vector(vectors_TD, lambda each: self._replaced_part(each, drawn.edited), "discriminator")
