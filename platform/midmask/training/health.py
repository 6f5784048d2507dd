"""The encoder's health: measures of one batch, taken from time to time, and warnings that name a collapse.

cosine_of_random_pairs  mean cosine of the sentence vectors of two different rows; 1: all texts look alike
active_dimensions       over how many dimensions the variance of the vectors is spread: (sum of the covariance's
                        eigenvalues)² / sum of their squares, the participation ratio; at most rows - 1
distance_to_start       of an encoder that was trained before: mean of 1 - cosine between its vectors and those that the
                        same texts had at the start
and what the objective says of itself, such as its decoder's loss with and without the sentence vector
"""

import logging
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from midmask.batch import Batch
from midmask.objectives import Objective
from midmask.training.collapse import find_collapses
from midmask.training.guard import DISTANCE, Guard

log = logging.getLogger(__name__)


@torch.no_grad()
def examine(objective: Objective, batch: Batch, guard: Guard | None = None) -> dict[str, float]:
    """The numbers above, by name, for this worker's batch; dropout is off, and nothing random is used up."""
    was_training = objective.training
    objective.eval()
    try:
        text = batch.texts["passage" if "passage" in batch.texts else "query"]
        hidden_BLD = objective.backbone.hidden(text.ids_BL, text.lengths_B)
        vectors_BD = objective.backbone.sentence_vector(hidden_BLD, text.lengths_B).float()
        values = {**spread(vectors_BD), **objective.health(objective.draw(batch))}
        if guard is not None:
            values[DISTANCE] = guard.distances(objective.backbone, text).mean()
    finally:
        objective.train(was_training)
    return {name: float(value) for name, value in values.items()}


def spread(vectors_BD: torch.Tensor) -> dict[str, torch.Tensor]:
    """How differently texts are represented; shape [] each, 0 where there is one row."""
    rows = len(vectors_BD)
    unit_BD = F.normalize(vectors_BD, dim=1)
    pairs = max(rows * (rows - 1), 1)
    cosine = (unit_BD.sum(0).square().sum() - unit_BD.square().sum()) / pairs
    centred_BD = vectors_BD - vectors_BD.mean(0)
    gram_BB = centred_BD @ centred_BD.t()  # the covariance's eigenvalues that are not zero
    active = gram_BB.trace().square() / gram_BB.square().sum().clamp(min=torch.finfo(gram_BB.dtype).tiny)
    return {"cosine_of_random_pairs": cosine, "active_dimensions": active}


@dataclass
class HealthWatch:
    """Warns of each kind of collapse once, with its step. `steps`: of the whole run."""

    steps: int
    collapses: dict[str, int] = field(default_factory=dict)

    def look(self, step: int, values: dict[str, float]) -> None:
        """Reads what `examine` gave after `step` steps."""
        for kind, meaning in find_collapses(step, self.steps, values).items():
            self._warn(kind, step, meaning, values)

    def _warn(self, kind: str, step: int, meaning: str, values: dict[str, float]) -> None:
        if kind in self.collapses:
            return
        self.collapses[kind] = step
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        log.warning("collapse of the %s at step %d: %s (%s)", kind, step, meaning, numbers)
