"""Which of an encoder's health measures mean that something has collapsed; plain numbers, so that pages can ask too."""

from collections.abc import Mapping

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
        values: as `health.examine` gives them after `step` steps.
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
