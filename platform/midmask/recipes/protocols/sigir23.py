"""The four settings of "Benchmarking Middle-Trained Language Models for Neural Search" (Lassance et al., SIGIR 2023),
each dense and as SPLADE. Numbers are the paper's and, where it is silent, those of the code released beside it
(methods.md 12.6).

The published negatives and scores are the msmarco-hard-negatives collection's, by a MiniLM cross-encoder: on MS MARCO
set stages.0.negatives=["file:PATH"] and stages.0.teacher.folder. Elsewhere BM25 ranks, and one teacher for all systems
is trained on the same lists. The 1-negative runs are those of SPLADE's first trainer: its in-batch loss has the batch's
positives and the query's own negative as candidates, and it regularises positives and negatives apart. Their
regularisers are unpublished ("default values"): here SPLADE's.
"""

from midmask.encoders.representation import Representation
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.ranking import RankingConfig
from midmask.objectives.finetuning.regularisers import Regularisers
from midmask.recipes.protocols.dpr import RAMPED
from midmask.recipes.protocols.protocol import TEACHER, Protocol, epochs
from midmask.training.optimiser import TrainConfig

CONSTANT = Regularisers(query="l1", passage="flops", lambda_query=5e-3, lambda_passage=5e-3, anti_zero=1.0)
"""Of the 32-negative runs: from the first step on, without a ramp."""

FIRST_TRAINER = RAMPED.model_copy(update={"passage_groups": "separate"})
"""Of the 1-negative runs."""

ONE = TrainConfig(steps=150_000, batch_size=128, learning_rate=2e-5, warmup=0.01, decay=0.99, weight_decay=0.0)
MANY = epochs(5, batch=20, rate=2e-5, warmup=0.01).model_copy(update={"weight_decay": 0.0})
"""5 queries on each of 4 GPUs."""


def setting(negatives: int, *, distil: bool, splade: bool) -> Protocol:
    """One of the eight: 1 or 32 negatives a query, with or without a teacher, dense or SPLADE. The query subsets of the
    paper's Tables 5 and 6 are stages.0.queries=50000 or 100000.
    """
    mine = MineConfig(depth=1000, per_query=1000)
    regularisers = (CONSTANT if negatives > 1 else FIRST_TRAINER) if splade else Regularisers()
    stage = StageConfig(
        loss=_loss(negatives, regularisers, distil=distil),
        negatives=("bm25",),
        per_query=negatives,
        mine=mine,
        teacher=TEACHER.model_copy(update={"mine": mine}) if distil else None,
        missing_positive_score="highest" if distil else "refuse",
        train=ONE if negatives == 1 else MANY,
    )
    return Protocol(
        name=_name(negatives, distil=distil, splade=splade),
        representation=Representation(dense=None, lexical="splade") if splade else Representation(),
        stages=(stage,),
        query_length=256 if negatives == 1 else 128,
        passage_length=256 if negatives == 1 else 128,
    )


def _loss(negatives: int, regularisers: Regularisers, *, distil: bool) -> RankingConfig:
    """With a teacher, 0.99 of its term and 0.01 of the contrastive one, over the worker's own negatives."""
    candidates = "positives" if negatives == 1 else "local_negatives"
    if not distil:
        return Contrastive.Config(candidates=candidates, drop_duplicates=False, regularisers=regularisers)
    kind = "margin_mse" if negatives == 1 else "kl"
    return Distillation.Config(
        loss=kind,
        weight=0.99,
        ce_weight=0.01,
        candidates="local_negatives",
        drop_duplicates=False,
        regularisers=regularisers,
    )


def _name(negatives: int, *, distil: bool, splade: bool) -> str:
    return f"sigir23_{negatives}neg{'_distil' if distil else ''}{'_splade' if splade else ''}"
