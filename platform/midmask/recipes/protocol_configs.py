"""The fine-tuning protocols: the representation that is scored, and the stages that train it, as the papers state.

A protocol is put on any recipe, so that methods can be compared under equal conditions.

plain        in-batch negatives, one BM25 negative (DPR), and negatives mined once ("ANCE-style")
sigir23      the four settings of "Benchmarking Middle-Trained Language Models for Neural Search" (Lassance et al.,
             SIGIR 2023), each dense and as SPLADE. Numbers are the paper's and, where it is silent, those of the code
             released beside it (methods.md 12.6). The published negatives and scores are the msmarco-hard-negatives
             collection's, by a MiniLM cross-encoder: on MS MARCO set stages.0.negatives=["file:PATH"] and
             stages.0.teacher.folder. Elsewhere BM25 ranks, and one teacher for all systems is trained on the same
             lists. The 1-negative runs are those of SPLADE's first trainer: its in-batch loss has the batch's positives
             and the query's own negative as candidates, and it regularises positives and negatives apart. Their
             regularisers are unpublished ("default values"): here SPLADE's
cocondenser, cotmae, retromae
             how the authors of dense encoders fine-tune them on MS MARCO: two stages from the pre-trained encoder,
             [CLS], the dot product (methods.md 12.2 to 12.4)
dupmae       Xiao et al. 2023, section 4: in-batch negatives, then mined ones, then a teacher's opinion; on [CLS] and
             ordinary tokens together, or on either alone. Batches, rates, steps, the number of negatives and the
             teacher's training are unpublished: they are RetroMAE's here (methods.md 12.4). So is whether a stage goes
             on from the one before it; here it does
lexmae       Shen et al. 2023: SPLADE without special tokens, with BM25's negatives, with its own, and with its own
             under a reranker (methods.md 7). Every stage starts from the pre-trained encoder. The published reranker
             runs inside the training step; here its scores are a file. Constant λ, FLOPS on both sides
cotmote      Ma et al. 2023: dense and sparse scores added; BM25's negatives, then its own
gpl          Generative Pseudo Labeling (Wang et al., NAACL 2022): a retriever adapted to documents by made queries,
             whose labels are a cross-encoder's margins, so that a query that its passage does not answer teaches
             little. Published: 32 triples a step for 140,000 steps at 2e-5, 1,000 of them warming up, 350 tokens,
             'title text', one negative drawn from 50 of each of two dense retrievers, the dot product of mean vectors,
             ms-marco-MiniLM-L-6-v2 as teacher (`stages.0.teacher.folder`). Here BM25's first 50 are the negatives,
             which need no other retriever
"""

from typing import Literal

from pydantic import Field

from midmask.core.config import Config
from midmask.encoders.representation import Representation
from midmask.experiment.schema import Recipe
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.ranking import RankingConfig, Regularisers
from midmask.teacher.teach import TeacherConfig
from midmask.training.optimiser import TrainConfig

Scale = Literal["demo", "published"]

MSMARCO_QUERIES = 502_939
"""Train queries of MS MARCO that have a relevant passage: what published epochs are counted in."""

DEMO = TrainConfig(steps=150, batch_size=32, learning_rate=1e-3, warmup=0.1, decay=0.9, checkpoint_every=50)
"""A stage of a tiny model in a minute or two on two CPU cores."""

DEMO_TEACHER = DEMO.model_copy(update={"steps": 600, "learning_rate": 5e-4})
"""A teacher at that size: in fewer steps, or at the stages' rate, it does not yet rank better than chance, and what it
teaches is then that all passages are alike (measured on SQuAD, docs/results/protocols.md)."""

DEMO_NEGATIVES = 7
"""Hard negatives a query at most, at that size."""


TEACHER = TeacherConfig(
    loss=ListwiseRanking.Config(max_length=200),
    train=TrainConfig(steps=250_000, batch_size=8, learning_rate=1e-5, warmup=0.004, decay=0.996),
    per_query=64,
    mine=MineConfig(depth=200, per_query=200),
    query_length=64,
    passage_length=200,
)
"""RetroMAE's reranker, from the recipe's encoder before its middle training: lists of 1 + 64 of BM25's first 200, pairs
of 200 tokens, batches of 8, 4 epochs (methods.md 13)."""


DEMO_QUERIES = 4096
"""Queries that negatives are mined for, at that size: about as many as a stage sees."""


DEMO_TEMPERATURES = {"logits": 100.0, "splade": 30.0, None: None}
"""Divisor of scores by lexical view, at that size: hundreds of words add up to hundreds, and a rate that teaches a tiny
encoder within 150 steps then drives it into giving all texts one vector. none: as published."""


class Protocol(Config):
    """Fine-tuning as one paper does it, with its numbers."""

    name: str = Field(description="as in the table of protocols")
    representation: Representation = Field(default_factory=Representation, description="what is scored")
    stages: tuple[StageConfig, ...] = Field(min_length=1, description="in order")
    titles: bool = Field(False, description="whether a passage is 'title text'")
    query_length: int = Field(32, ge=4, description="tokens of a query")
    passage_length: int = Field(128, ge=8, description="tokens of a passage")

    def on(self, recipe: Recipe, scale: Scale) -> Recipe:
        """The recipe with this fine-tuning in place of its own.

        Args:
            scale: `published` takes batches, rates, steps and lengths from the paper, steps as epochs over MS MARCO;
                `demo` keeps the recipe's lengths and makes every stage as small as a demo.
        """
        tokens: dict[str, object] = {"titles": self.titles}
        stages = self.stages
        if scale == "published":
            tokens |= {"query_length": self.query_length, "max_length": self.passage_length}
        else:
            temperature = DEMO_TEMPERATURES[self.representation.lexical]
            stages = tuple(demo_sized(stage, temperature) for stage in self.stages)
        return recipe.model_copy(
            update={
                "protocol": self.name,
                "representation": self.representation,
                "stages": stages,
                "tokens": recipe.tokens.model_copy(update=tokens),
            }
        )


def demo_sized(stage: StageConfig, temperature: float | None = None) -> StageConfig:
    """The stage with the same losses, sources and order, but few short steps and few negatives a query.

    Args:
        temperature: of the loss; none: as published.
    """
    changes: dict[str, object] = {
        "loss": stage.loss if temperature is None else stage.loss.model_copy(update={"temperature": temperature}),
        "train": DEMO.model_copy(update={"seed": stage.train.seed}),
        "per_query": min(stage.per_query, DEMO_NEGATIVES),
        "mine": _demo_mine(stage.mine, DEMO_QUERIES if stage.sources else None),
    }
    if stage.teacher is not None:
        own = {"negatives": stage.teacher.negatives, "mine": _demo_mine(stage.teacher.mine, DEMO_QUERIES)}
        changes["teacher"] = TeacherConfig(train=DEMO_TEACHER, per_query=DEMO_NEGATIVES, jsonl=True, **own)
    return stage.model_copy(update=changes)


def _demo_mine(config: MineConfig, queries: int | None) -> MineConfig:
    sizes = {"depth": min(config.depth, 100), "per_query": min(config.per_query, 15), "max_queries": queries}
    return config.model_copy(update=sizes)


def epochs(count: float, *, batch: int, rate: float, warmup: float = 0.0, decay: float | None = None) -> TrainConfig:
    """Training for so many passes over the train queries of MS MARCO, with linear decay unless said otherwise."""
    steps = round(count * MSMARCO_QUERIES / batch)
    falls = 1.0 - warmup if decay is None else decay
    return TrainConfig(steps=steps, batch_size=batch, learning_rate=rate, warmup=warmup, decay=falls)


BM25 = MineConfig(depth=200, per_query=100)
"""Any passage of BM25's first 200."""

RAMPED = Regularisers(query="flops", passage="flops", lambda_query=3e-4, lambda_passage=1e-4, ramp=1 / 3)
"""SPLADE's own: its 50,000 of 150,000 steps."""


def in_batch() -> Protocol:
    """One stage; the other queries' passages are the negatives."""
    stage = StageConfig(loss=Contrastive.Config(), train=epochs(3, batch=128, rate=2e-5, warmup=0.1))
    return Protocol(name="in_batch", stages=(stage,))


def in_batch_splade() -> Protocol:
    """In-batch fine-tuning of SPLADE's lexical vectors, with the regularisers of SPLADE++ (Formal et al. 2022)."""
    stage = StageConfig(loss=Contrastive.Config(regularisers=RAMPED), train=epochs(3, batch=128, rate=2e-5, warmup=0.1))
    return Protocol(
        name="in_batch_splade", representation=Representation(dense=None, lexical="splade"), stages=(stage,)
    )


def in_batch_hybrid() -> Protocol:
    """In-batch fine-tuning of the dense vector and SPLADE's words together: their scores are added."""
    splade = in_batch_splade()
    return splade.model_copy(update={"name": "in_batch_hybrid", "representation": Representation(lexical="splade")})


def in_batch_late() -> Protocol:
    """In-batch fine-tuning of a 128-dimensional vector per token, scored by MaxSim (ColBERT, Khattab & Zaharia 2020).

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


CONSTANT = Regularisers(query="l1", passage="flops", lambda_query=5e-3, lambda_passage=5e-3, anti_zero=1.0)
"""Of the 32-negative runs: from the first step on, without a ramp."""

FIRST_TRAINER = RAMPED.model_copy(update={"passage_groups": "separate"})
"""Of the 1-negative runs."""

ONE_NEGATIVE = TrainConfig(steps=150_000, batch_size=128, learning_rate=2e-5, warmup=0.01, decay=0.99, weight_decay=0.0)
MANY_NEGATIVES = epochs(5, batch=20, rate=2e-5, warmup=0.01).model_copy(update={"weight_decay": 0.0})
"""5 queries on each of 4 GPUs."""


def sigir23(negatives: int, *, distil: bool, splade: bool) -> Protocol:
    """One of the eight: 1 or 32 negatives a query, with or without a teacher, dense or SPLADE. The query subsets of the
    paper's Tables 5 and 6 are stages.0.queries=50000 or 100000.
    """
    mine = MineConfig(depth=1000, per_query=1000)
    regularisers = (CONSTANT if negatives > 1 else FIRST_TRAINER) if splade else Regularisers()
    stage = StageConfig(
        loss=_sigir23_loss(negatives, regularisers, distil=distil),
        negatives=("bm25",),
        per_query=negatives,
        mine=mine,
        teacher=TEACHER.model_copy(update={"mine": mine}) if distil else None,
        missing_positive_score="highest" if distil else "refuse",
        train=ONE_NEGATIVE if negatives == 1 else MANY_NEGATIVES,
    )
    return Protocol(
        name=_sigir23_name(negatives, distil=distil, splade=splade),
        representation=Representation(dense=None, lexical="splade") if splade else Representation(),
        stages=(stage,),
        query_length=256 if negatives == 1 else 128,
        passage_length=256 if negatives == 1 else 128,
    )


def _sigir23_loss(negatives: int, regularisers: Regularisers, *, distil: bool) -> RankingConfig:
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


def _sigir23_name(negatives: int, *, distil: bool, splade: bool) -> str:
    return f"sigir23_{negatives}neg{'_distil' if distil else ''}{'_splade' if splade else ''}"


TOP = MineConfig(depth=200, per_query=200)
SAMPLED = MineConfig(depth=200, per_query=30)
"""30 of the first 200 ranks, drawn once."""


def cocondenser() -> Protocol:
    """As Tevatron runs it: 8 queries with 8 passages on each of 8 devices (their number is not said)."""
    return _tevatron("cocondenser", per_query=7, rate=5e-6)


def cotmae() -> Protocol:
    """8 queries with 16 passages on each of 8 GPUs."""
    return _tevatron("cotmae", per_query=15, rate=2e-5)


def _tevatron(name: str, *, per_query: int, rate: float) -> Protocol:
    """3 epochs with BM25's negatives, then 2 with BM25's and mined ones together, both from the pre-trained encoder."""
    first = StageConfig(
        loss=Contrastive.Config(),
        negatives=("bm25",),
        per_query=per_query,
        mine=SAMPLED,
        train=epochs(3, batch=64, rate=rate, warmup=0.1),
    )
    second = first.model_copy(
        update={"negatives": ("bm25", "mined"), "train": epochs(2, batch=64, rate=rate, warmup=0.1)}
    )
    return Protocol(name=name, stages=(first, second), titles=True)


def retromae() -> Protocol:
    """16 queries with 16 passages on each of 8 GPUs; BM25's negatives, then its own; no warm-up.

    The published code divides the contrastive gradient by its 8 processes; here it is that of one process.
    """
    first = StageConfig(
        loss=Contrastive.Config(), negatives=("bm25",), per_query=15, mine=TOP, train=epochs(4, batch=128, rate=2e-5)
    )
    second = first.model_copy(update={"negatives": ("mined",)})
    return Protocol(name="retromae", stages=(first, second), titles=True, query_length=32, passage_length=140)


def retromae_distil() -> Protocol:
    """The same, and a third stage that hears a teacher: KL as its code takes the mean, over queries and passages, and
    1e-4 of the contrastive loss."""
    base = retromae()
    second = base.stages[-1]
    loss = Distillation.Config(loss="kl", weight=1 / (1 + second.per_query), ce_weight=1e-4)
    third = second.model_copy(update={"loss": loss, "teacher": TEACHER})
    return base.model_copy(update={"name": "retromae_distil", "stages": (*base.stages, third)})


DUPMAE_MINED = MineConfig(depth=200, per_query=200)


def dupmae() -> Protocol:
    """ "384+384": [CLS] projected to 384 dimensions, the 384 heaviest words."""
    return _dupmae_stages("dupmae", Representation(width=384, lexical="logits", passage_terms=384))


def dupmae_cls() -> Protocol:
    """ "CLS:768" of its Table 3."""
    return _dupmae_stages("dupmae_cls", Representation())


def dupmae_ot() -> Protocol:
    """ "OT:768" of its Table 3."""
    return _dupmae_stages("dupmae_ot", Representation(dense=None, lexical="logits", passage_terms=768))


def _dupmae_stages(name: str, representation: Representation) -> Protocol:
    train = epochs(4, batch=128, rate=2e-5)
    first = StageConfig(loss=Contrastive.Config(), train=train)
    second = StageConfig(
        loss=Contrastive.Config(),
        starts_from="previous",
        negatives=("mined",),
        per_query=15,
        mine=DUPMAE_MINED,
        train=train,
    )
    third = second.model_copy(
        update={"loss": Distillation.Config(loss="soft_ce"), "negatives": ("mined:0",), "teacher": TEACHER}
    )
    return Protocol(
        name=name,
        representation=representation,
        stages=(first, second, third),
        query_length=32,
        passage_length=144,
    )


def lexmae() -> Protocol:
    """15 negatives of the first 200 ranks, twice; then 23 of the first 1,000, with KL and 0.2 of in-batch CE."""
    train = epochs(3, batch=24, rate=2e-5, warmup=0.05)
    first = StageConfig(
        loss=Contrastive.Config(regularisers=lexmae_flops(0.002)),
        negatives=("bm25",),
        per_query=15,
        mine=MineConfig(depth=200, per_query=200),
        train=train,
    )
    second = first.model_copy(
        update={"loss": Contrastive.Config(regularisers=lexmae_flops(0.008)), "negatives": ("mined",)}
    )
    third = StageConfig(
        loss=Distillation.Config(loss="kl", ce_weight=0.2, regularisers=lexmae_flops(0.008)),
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


def lexmae_flops(passages: float) -> Regularisers:
    """Queries weigh three quarters of passages."""
    return Regularisers(query="flops", passage="flops", lambda_passage=passages, lambda_query=0.75 * passages)


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


GPL_STEPS, GPL_WARMUP = 140_000, 1_000


def gpl() -> Protocol:
    """One stage of MarginMSE. [CLS] is scored, as by the other protocols, unless the backbone's folder says otherwise;
    the paper's models take the mean (`representation.dense=mean`).
    """
    warmup = GPL_WARMUP / GPL_STEPS
    stage = StageConfig(
        loss=Distillation.Config(loss="margin_mse"),
        negatives=("bm25",),
        per_query=1,
        mine=MineConfig(depth=50, per_query=50),
        teacher=TEACHER,
        train=TrainConfig(steps=GPL_STEPS, batch_size=32, learning_rate=2e-5, warmup=warmup, decay=1 - warmup),
    )
    return Protocol(name="gpl", stages=(stage,), titles=True, query_length=350, passage_length=350)
