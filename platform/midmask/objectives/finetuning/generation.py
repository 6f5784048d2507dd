"""Training of a generator of queries (doc2query, Nogueira et al. 2019): it writes a query token by token, given a
passage that is relevant to it.

loss      sum over the query's tokens of -log p(token | passage, the tokens before it), [SEP] at its end included
seen      the passage by the encoder; the query's true tokens before each by the decoder ("teacher forcing")
thrown    nothing
differs   from docTTTTTquery: a small encoder-decoder in place of T5; a query's passage is drawn anew at every visit
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.seq2seq import Seq2Seq
from midmask.objectives.objective import Objective, ObjectiveConfig
from midmask.text.vocabulary import Vocabulary

IGNORED = -100


@dataclass(frozen=True)
class WrittenRows:
    """Passages, their queries without the last token, and what follows each token, `IGNORED` behind the end; int64
    [B, L].
    """

    passages: TokenRows
    begun_BL: Tensor
    next_BL: Tensor


class QueryGeneration(Objective):
    """Its `backbone` is an encoder-decoder, all of which outlives training; so it is not in the table of objectives,
    whose methods train a masked LM.
    """

    class Config(ObjectiveConfig):
        """Training of an encoder-decoder that writes queries."""

        name: Literal["generation"] = Field("generation", description="name of the objective")
        decoder_layers: int = Field(2, ge=1, le=64, description="layers of the decoder; its width is the encoder's")
        frozen_encoder: bool = Field(
            False,
            description="leave the encoder as it is; a pre-trained one otherwise forgets what it knew before the fresh "
            "decoder has learnt to read it",
        )

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("generation",)
    backbone: Seq2Seq  # type: ignore[assignment]

    def __init__(self, config: Config, model: Seq2Seq, vocabulary: Vocabulary) -> None:
        super().__init__(config, model, vocabulary)
        model.model.encoder.requires_grad_(not config.frozen_encoder)

    def draw(self, batch: Batch) -> WrittenRows:
        """The positives, which stand first in their groups, and the queries.

        Raises:
            ValueError: if a batch has other passages too.
        """
        if batch.group != 1:
            raise ValueError(f"a generator is trained on one passage a query, not {batch.group}")
        query = batch.texts["query"]
        at_L = torch.arange(1, query.ids_BL.shape[1], device=query.ids_BL.device)
        next_BL = query.ids_BL[:, 1:].masked_fill(at_L >= query.lengths_B[:, None], IGNORED)
        return WrittenRows(batch.texts["passage"], query.ids_BL[:, :-1], next_BL)

    def counts(self, drawn: WrittenRows) -> dict[str, Tensor]:
        return {"generation": (drawn.next_BL != IGNORED).sum()}

    def forward(self, drawn: WrittenRows) -> Loss:
        logits_BLV = self.backbone(drawn.passages, drawn.begun_BL).float()
        total = F.cross_entropy(
            logits_BLV.flatten(0, 1), drawn.next_BL.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return Loss({"generation": Part(total, self.counts(drawn)["generation"])})
