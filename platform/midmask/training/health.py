"""What a training watches besides its loss: the mean cosine of the sentence vectors of two different rows (1: all texts
look alike), and what the objective says of itself, such as its decoder's loss with and without the sentence vector.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.batch import Batch
from midmask.objectives import Objective

log = logging.getLogger(__name__)


@torch.no_grad()
def examine(objective: Objective, batch: Batch) -> dict[str, float]:
    """The numbers above, by name, for this worker's batch; dropout is off, and nothing random is used up."""
    was_training = objective.training
    objective.eval()
    try:
        text = batch.texts["passage"]
        hidden_BLD = objective.backbone.hidden(text.ids_BL, text.lengths_B)
        vectors_BD = objective.backbone.sentence_vector(hidden_BLD, text.lengths_B)
        cosine = cosine_of_random_pairs(vectors_BD.float())
        values = {"cosine_of_random_pairs": cosine, **objective.health(objective.draw(batch))}
    finally:
        objective.train(was_training)
    return {name: float(value) for name, value in values.items()}


def cosine_of_random_pairs(vectors_BD: Tensor) -> Tensor:
    """The mean over two different rows, []; 0 where there is one row."""
    unit_BD = F.normalize(vectors_BD, dim=1)
    pairs = max(len(unit_BD) * (len(unit_BD) - 1), 1)
    return (unit_BD.sum(0).square().sum() - unit_BD.square().sum()) / pairs


ALIKE = 0.999
"""Mean cosine from which on vectors count as collapsed. Untrained encoders are at 0.5 to 0.9997, by their size."""

FEW_WINNERS = 0.02
"""Share of max-pool winners that are different entries, below which a few entries win for every text."""

UNUSED = 0.001
"""By what share of itself the decoder's loss must grow without the sentence vector, for the vector to count as used."""

GRACE, GRACE_STEPS = 0.2, 1000
"""Share of the steps in which vectors may still be alike, as those of an untrained encoder are; and number of steps in
which a decoder may also ignore the vector, and the max-pool pick alike, as both do at first in every run."""

WITHOUT = "_without_vector"


def find_collapses(step: int, steps: int, values: Mapping[str, float]) -> dict[str, str]:
    """Kind of a collapse -> what it means, empty for a healthy encoder.

    Args:
        steps: of the whole training.
        values: as `examine` gives them after `step` steps.
    """
    collapses = {}
    if step > GRACE * steps and values.get("cosine_of_random_pairs", 0.0) > ALIKE:
        collapses["vectors"] = "the sentence vectors of different texts are all alike"
    if step > max(GRACE * steps, GRACE_STEPS):
        if values.get("winning_vocabulary", 1.0) < FEW_WINNERS:
            collapses["max-pool"] = "the same few vocabulary entries win for every text"
        for name in (name.removesuffix(WITHOUT) for name in values if name.endswith(WITHOUT)):
            if name in values and values[name + WITHOUT] - values[name] < UNUSED * values[name]:
                collapses["decoder"] = "the decoder does as well without the sentence vector"
    return collapses


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
