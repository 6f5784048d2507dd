"""CoT-MoTE's fine-tuning (Ma et al. 2023): dense and sparse scores added; BM25's negatives, then its own."""

from midmask.encoders.representation import Representation
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.regularisers import Regularisers
from midmask.recipes.protocols.protocol import Protocol, epochs


def cotmote() -> Protocol:
    """Three epochs a stage, batches of 64 with 15 of the first 200 ranks.

    The paper prints a rate of 2e-4; all scripts of its authors have 2e-5, and so it is here. FLOPS is not mentioned:
    λ are SPLADE's. That both stages start from the pre-trained encoder is its lineage's way (CoT-MAE).
    """
    sparse = Regularisers(query="flops", passage="flops", lambda_query=3e-4, lambda_passage=1e-4, ramp=1 / 3)
    first = StageConfig(
        loss=Contrastive.Config(regularisers=sparse),
        negatives=("bm25",),
        per_query=15,
        mine=MineConfig(depth=200, per_query=200),
        train=epochs(3, batch=64, rate=2e-5, warmup=0.1),
    )
    second = first.model_copy(update={"negatives": ("mined",)})
    return Protocol(
        name="cotmote",
        representation=Representation(lexical="splade"),
        stages=(first, second),
        query_length=32,
        passage_length=144,
    )
