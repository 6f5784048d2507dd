"""RetroMAE with the second stage of its paper: static hard negatives, mined once by the first stage ("ANCE-style")."""

from midmask.experiment.schema import Recipe, StageConfig
from midmask.mining.mine import MineConfig
from midmask.recipes.retromae import retromae


def retromae_ance() -> Recipe:
    """Stage 1 in-batch; stage 2, from the pre-trained encoder too, with 4 of 30 negatives of the first 100 ranks."""
    base = retromae()
    (first,) = base.stages
    mined = MineConfig(depth=100, min_rank=2, per_query=30)
    second = StageConfig(train=first.train, negatives=("mined",), per_query=4, mine=mined)
    return base.model_copy(update={"name": "retromae_ance", "protocol": "ance", "stages": (first, second)})
