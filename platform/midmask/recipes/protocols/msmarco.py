"""How the authors of dense encoders fine-tune them on MS MARCO: two stages from the pre-trained encoder, [CLS], the dot
product (methods.md 12.2 to 12.4).
"""

from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.recipes.protocols.protocol import TEACHER, Protocol, epochs

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
