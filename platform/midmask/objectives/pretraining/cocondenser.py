"""coCondenser (Gao & Callan, ACL 2022): Condenser on pairs of spans, and two spans of a document must find each other.

loss      sum over spans of -log( exp(s(x, x')) / sum over all other spans of all workers of exp(s(x, .)) ), x' the span
          of the same document, s the dot product of sentence vectors over `temperature`; + Condenser's two MLM terms
          over all spans; weights 1, 1 and 1
masked    every span as in Condenser
vector    h, the last hidden state of [CLS] of the *masked* span, not normalised
trained   encoder, embeddings and MLM head
thrown    Condenser's head; published runs start from Condenser's encoder *and* head
targets   a span is no candidate for itself; all other spans of the batch are
differs   every term is divided by its global count, so micro-batches change nothing. In the published code the MLM
          terms weigh double when gradients are cached (spans counted, documents divided by), and depend on the size of
          the chunks: head_weight=2 and late_weight=2 give those weights
unpublished   whether the batch of 2,048 counts documents or spans. Here a row of a batch is a document
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Part
from midmask.masking.randomness import rekey
from midmask.objectives import distributed as world
from midmask.objectives.in_batch import in_batch_part
from midmask.objectives.objective import CoupledObjective, Represented, RowForm
from midmask.objectives.pretraining.condenser import Head, HeadConfig
from midmask.objectives.pretraining.encoder_mask import MaskedRows
from midmask.objectives.pretraining.vector_decoding import end_to_end


class CoCondenser(CoupledObjective):
    class Config(HeadConfig):
        """coCondenser; the defaults are the paper's."""

        factors: ClassVar[tuple[str, ...]] = ("head_weight", "late_weight", "contrastive_weight")
        name: Literal["cocondenser"] = Field("cocondenser", description="name of the objective")
        temperature: float = Field(1.0, gt=0.0, le=100.0, description="divisor of the scores of two spans")
        contrastive_weight: float = Field(1.0, ge=0.0, description="factor of the contrastive loss")

        @property
        def compares_rows(self) -> bool:
            return self.contrastive_weight > 0

        def row_form(self) -> RowForm:
            return RowForm(rows="spans", context="any", term_weights=self.encoder_mask == "weighted")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive", "head_mlm", "late_mlm")

    def add_heads(self) -> None:
        self.head = Head(self.config, self.backbone)

    def draw(self, batch: Batch) -> MaskedRows:
        """First spans, then second spans, in one batch; each is masked by itself."""
        vocabulary = self.vocabulary(batch.texts["passage"].ids_BL.device)
        spans = end_to_end(batch.texts["passage"], rekey(batch.texts["context"]), vocabulary.pad_id)
        return self.config.mask(spans, vocabulary)

    def counts(self, drawn: MaskedRows) -> dict[str, Tensor]:
        spans = torch.tensor(len(drawn.lengths_B), device=drawn.lengths_B.device)
        return {"contrastive": spans, "head_mlm": drawn.count, "late_mlm": drawn.count}

    def represent(self, drawn: MaskedRows) -> Represented:
        late_BLD, early_BLD = self.head.encode(self.backbone, drawn)
        vectors_B2D = torch.stack(self.backbone.sentence_vector(late_BLD, drawn.lengths_B).chunk(2), 1)
        return Represented((vectors_B2D,), parts=lambda: self.head.parts(self.backbone, drawn, late_BLD, early_BLD))

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        spans_QD = vectors[0].flatten(0, 1)
        local_Q, all_ND = world.local_positions(spans_QD), world.gather_rows(spans_QD)
        itself_QN = local_Q[:, None] == torch.arange(len(all_ND), device=local_Q.device)
        config = self.config
        part = in_batch_part(
            spans_QD,
            all_ND,
            local_Q ^ 1,  # rows 2k and 2k + 1 are a document's spans
            temperature=config.temperature,
            excluded_QN=itself_QN,
            weight=config.contrastive_weight,
        )
        return {"contrastive": part}

    def health(self, drawn: MaskedRows) -> dict[str, Tensor]:
        return self.head.health(self.backbone, drawn, *self.head.encode(self.backbone, drawn))
