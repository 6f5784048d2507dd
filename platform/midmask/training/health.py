"""What a training watches besides its loss: measures of collapse, and the distance from its start.

cosine_of_random_pairs  mean cosine of the sentence vectors of two different rows; 1: all texts look alike
distance_to_start       of an encoder that was trained before: mean of 1 - cosine between its vectors and those that the
                        same texts had at the start. Middle training on one corpus of a finished retriever takes away
                        some of what its makers put in
and what the objective says of itself, such as its decoder's loss with and without the sentence vector
"""

import logging
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.batch import Batch, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.objectives import Objective
from midmask.training.collapse import find_collapses

log = logging.getLogger(__name__)


DISTANCE = "distance_to_start"
"""Name of the distance where it is logged."""


class Guard:
    """The encoder that a middle training began with, frozen; its dropout is off from now on."""

    def __init__(self, start: Backbone) -> None:
        self._start = start.eval().requires_grad_(False)

    def distances(self, backbone: Backbone, text: TokenRows) -> Tensor:
        """1 - cosine of the sentence vectors that both encoders have for each whole, unmasked text; float32 [B]."""
        with torch.no_grad():
            before_BD = _vectors(self._start, text)
        return 1 - F.cosine_similarity(_vectors(backbone, text), before_BD, dim=1)


def _vectors(backbone: Backbone, text: TokenRows) -> Tensor:
    hidden_BLD = backbone.hidden(text.ids_BL, text.lengths_B)
    return backbone.sentence_vector(hidden_BLD, text.lengths_B).float()


@torch.no_grad()
def examine(objective: Objective, batch: Batch, guard: Guard | None = None) -> dict[str, float]:
    """The numbers above, by name, for this worker's batch; dropout is off, and nothing random is used up."""
    was_training = objective.training
    objective.eval()
    try:
        text = batch.texts["passage" if "passage" in batch.texts else "query"]
        cosine = cosine_of_random_pairs(_vectors(objective.backbone, text))
        values = {"cosine_of_random_pairs": cosine, **objective.health(objective.draw(batch))}
        if guard is not None:
            values[DISTANCE] = guard.distances(objective.backbone, text).mean()
    finally:
        objective.train(was_training)
    return {name: float(value) for name, value in values.items()}


def cosine_of_random_pairs(vectors_BD: Tensor) -> Tensor:
    """The mean over two different rows, []; 0 where there is one row."""
    unit_BD = F.normalize(vectors_BD, dim=1)
    pairs = max(len(unit_BD) * (len(unit_BD) - 1), 1)
    return (unit_BD.sum(0).square().sum() - unit_BD.square().sum()) / pairs


@dataclass
class HealthWatch:
    """Warns of each kind of collapse once, with its step. `steps`: of the whole run."""

    steps: int
    collapses: dict[str, int] = field(default_factory=dict)

    def look(self, step: int, values: dict[str, float]) -> None:
        """Reads what `examine` gave after `step` steps."""
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        for kind, meaning in find_collapses(step, self.steps, values).items():
            if kind not in self.collapses:
                self.collapses[kind] = step
                log.warning("collapse of the %s at step %d: %s (%s)", kind, step, meaning, numbers)
