"""LexMAE's fine-tuning (Shen et al. 2023): SPLADE without special tokens, with BM25's negatives, with its own, and with
its own under a reranker (methods.md 7). Every stage starts from the pre-trained encoder.

The published reranker runs inside the training step; here its scores are a file. Constant λ, FLOPS on both sides.
"""

from midmask.encoders.representation import Representation
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.regularisers import Regularisers
from midmask.recipes.protocols.protocol import TEACHER, Protocol, epochs


def lexmae() -> Protocol:
    """15 negatives of the first 200 ranks, twice; then 23 of the first 1,000, with KL and 0.2 of in-batch CE."""
    train = epochs(3, batch=24, rate=2e-5, warmup=0.05)
    first = StageConfig(
        loss=Contrastive.Config(regularisers=flops(0.002)),
        negatives=("bm25",),
        per_query=15,
        mine=MineConfig(depth=200, per_query=200),
        train=train,
    )
    second = first.model_copy(update={"loss": Contrastive.Config(regularisers=flops(0.008)), "negatives": ("mined",)})
    third = StageConfig(
        loss=Distillation.Config(loss="kl", ce_weight=0.2, regularisers=flops(0.008)),
        negatives=("mined",),
        per_query=23,
        mine=MineConfig(depth=1000, per_query=1000),
        teacher=TEACHER,
        train=epochs(3, batch=16, rate=2e-5, warmup=0.05),
    )
    return Protocol(
        name="lexmae",
        representation=Representation(dense=None, lexical="splade", specials=False),
        stages=(first, second, third),
        titles=True,
        query_length=32,
        passage_length=144,
    )


def flops(passages: float) -> Regularisers:
    """Queries weigh three quarters of passages."""
    return Regularisers(query="flops", passage="flops", lambda_passage=passages, lambda_query=0.75 * passages)
