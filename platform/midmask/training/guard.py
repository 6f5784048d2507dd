"""A guard against forgetting: how far the vectors of a trained encoder have moved from those that it began with.

Middle training on one corpus of a finished retriever takes away some of what its makers put in. The distance can be
watched, and it can be a term of the loss (self-distillation: the starting encoder teaches the one that it became; Li &
Hoiem 2017, "Learning without forgetting").
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.batch import Batch, Part, TokenRows
from midmask.encoders.backbone import Backbone

DISTANCE = "distance_to_start"
"""Name of the distance where it is logged."""


class Guard:
    """The encoder that a middle training began with, frozen. No module, so that nothing of it is saved or trained.

    Args:
        start: the encoder; its dropout is off from now on.
        weight: of the distance in the loss; 0: it is only measured, and no part of the loss.
    """

    def __init__(self, start: Backbone, weight: float) -> None:
        self._start = start.eval().requires_grad_(False)
        self._weight = weight

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the terms of the loss."""
        return (DISTANCE,) if self._weight else ()

    def distances(self, backbone: Backbone, text: TokenRows) -> Tensor:
        """1 - cosine of the sentence vectors that both encoders have for each whole, unmasked text; float32 [B]."""
        with torch.no_grad():
            before_BD = _vectors(self._start, text)
        return 1 - F.cosine_similarity(_vectors(backbone, text), before_BD, dim=1)

    def loss(self, backbone: Backbone, batch: Batch) -> dict[str, Part]:
        """The distance as a term of the loss, one target for each passage."""
        if not self._weight:
            return {}
        distances_B = self.distances(backbone, batch.texts["passage"])
        return {DISTANCE: Part(distances_B.sum(), self.counts(batch)[DISTANCE], self._weight)}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Targets of the term, int64 []."""
        ids_BL = batch.texts["passage"].ids_BL
        return {name: torch.tensor(len(ids_BL), device=ids_BL.device) for name in self.parts}


def _vectors(backbone: Backbone, text: TokenRows) -> Tensor:
    hidden_BLD = backbone.hidden(text.ids_BL, text.lengths_B)
    return backbone.sentence_vector(hidden_BLD, text.lengths_B).float()
