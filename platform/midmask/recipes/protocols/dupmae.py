"""DupMAE's fine-tuning (Xiao et al. 2023, section 4): in-batch negatives, then mined ones, then a teacher's opinion; on
[CLS] and ordinary tokens together, or on either alone.

Batches, rates, steps, the number of negatives and the teacher's training are unpublished: they are RetroMAE's here
(methods.md 12.4). So is whether a stage goes on from the one before it; here it does.
"""

from midmask.encoders.representation import Representation
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.recipes.protocols.protocol import TEACHER, Protocol, epochs

MINED = MineConfig(depth=200, per_query=200)


def dupmae() -> Protocol:
    """ "384+384": [CLS] projected to 384 dimensions, the 384 heaviest words."""
    return _three_stages("dupmae", Representation(width=384, lexical="logits", passage_terms=384))


def dupmae_cls() -> Protocol:
    """ "CLS:768" of its Table 3."""
    return _three_stages("dupmae_cls", Representation())


def dupmae_ot() -> Protocol:
    """ "OT:768" of its Table 3."""
    return _three_stages("dupmae_ot", Representation(dense=None, lexical="logits", passage_terms=768))


def _three_stages(name: str, representation: Representation) -> Protocol:
    train = epochs(4, batch=128, rate=2e-5)
    first = StageConfig(loss=Contrastive.Config(), train=train)
    second = StageConfig(
        loss=Contrastive.Config(),
        starts_from="previous",
        negatives=("mined",),
        per_query=15,
        mine=MINED,
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
