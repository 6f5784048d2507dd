"""Generative Pseudo Labeling (GPL, Wang et al., NAACL 2022): a retriever adapted to documents by made queries, whose
labels are a cross-encoder's margins, so that a query that its passage does not answer teaches little.

Published: 32 triples a step for 140,000 steps at 2e-5, 1,000 of them warming up, 350 tokens, 'title text', one negative
drawn from 50 of each of two dense retrievers, the dot product of mean vectors, ms-marco-MiniLM-L-6-v2 as teacher
(`stages.0.teacher.folder`). Here BM25's first 50 are the negatives, which need no other retriever.
"""

from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.distillation import Distillation
from midmask.recipes.protocols.protocol import TEACHER, Protocol
from midmask.training.optimiser import TrainConfig

STEPS, WARMUP = 140_000, 1_000


def gpl() -> Protocol:
    """One stage of MarginMSE. [CLS] is scored, as by the other protocols, unless the backbone's folder says otherwise;
    the paper's models take the mean (`representation.dense=mean`).
    """
    warmup = WARMUP / STEPS
    stage = StageConfig(
        loss=Distillation.Config(loss="margin_mse"),
        negatives=("bm25",),
        per_query=1,
        mine=MineConfig(depth=50, per_query=50),
        teacher=TEACHER,
        train=TrainConfig(steps=STEPS, batch_size=32, learning_rate=2e-5, warmup=warmup, decay=1 - warmup),
    )
    return Protocol(name="gpl", stages=(stage,), titles=True, query_length=350, passage_length=350)
