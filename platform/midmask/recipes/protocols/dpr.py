"""The plain protocols: in-batch negatives, one BM25 negative (DPR), and negatives mined once ("ANCE-style")."""

from midmask.encoders.representation import Representation
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.regularisers import Regularisers
from midmask.recipes.protocols.protocol import Protocol, epochs

BM25 = MineConfig(depth=200, per_query=100)
"""Any passage of BM25's first 200."""

RAMPED = Regularisers(query="flops", passage="flops", lambda_query=3e-4, lambda_passage=1e-4, ramp=1 / 3)
"""SPLADE's own: its 50,000 of 150,000 steps."""


def in_batch() -> Protocol:
    """One stage; the other queries' passages are the negatives."""
    stage = StageConfig(loss=Contrastive.Config(), train=epochs(3, batch=128, rate=2e-5, warmup=0.1))
    return Protocol(name="in_batch", stages=(stage,))


def in_batch_splade() -> Protocol:
    """The same on SPLADE's words, with the regularisers of SPLADE++ (Formal et al. 2022)."""
    stage = StageConfig(loss=Contrastive.Config(regularisers=RAMPED), train=epochs(3, batch=128, rate=2e-5, warmup=0.1))
    return Protocol(
        name="in_batch_splade", representation=Representation(dense=None, lexical="splade"), stages=(stage,)
    )


def in_batch_hybrid() -> Protocol:
    """The same on the dense vector and SPLADE's words together: their scores are added."""
    splade = in_batch_splade()
    return splade.model_copy(update={"name": "in_batch_hybrid", "representation": Representation(lexical="splade")})


def in_batch_late() -> Protocol:
    """The same on a vector of 128 dimensions for each token, scored by MaxSim (ColBERT, Khattab & Zaharia 2020).

    ColBERT learns from triples of a query and two passages at rate 3e-6; its code also skips punctuation in passages,
    fills queries up with [MASK] and puts a marker before each text.
    """
    plain = in_batch()
    return plain.model_copy(update={"name": "in_batch_late", "representation": Representation(dense=None, tokens=128)})


def dpr() -> Protocol:
    """Karpukhin et al. 2020, on NQ: batches of 128, one BM25 negative a query, rate 1e-5, 40 epochs, 256 tokens.

    BM25's negatives are the best passages without the answer there; here any of the first 100 that is not judged.
    """
    stage = StageConfig(
        loss=Contrastive.Config(),
        negatives=("bm25",),
        per_query=1,
        mine=MineConfig(depth=100, per_query=1, choose="top"),
        train=epochs(40, batch=128, rate=1e-5, warmup=0.1),
    )
    return Protocol(name="dpr", stages=(stage,), titles=True, query_length=256, passage_length=256)


def ance() -> Protocol:
    """DPR's first stage, then negatives mined once with it, from the pre-trained encoder again.

    What RetroMAE's, DupMAE's and CoT-MAE's papers call ANCE: static, not its asynchronous refresh.
    """
    first = StageConfig(
        loss=Contrastive.Config(), negatives=("bm25",), per_query=1, mine=BM25, train=epochs(3, batch=128, rate=2e-5)
    )
    second = first.model_copy(update={"negatives": ("mined",), "mine": MineConfig(depth=200, per_query=100)})
    return Protocol(name="ance", stages=(first, second))
