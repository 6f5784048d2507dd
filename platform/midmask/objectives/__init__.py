"""The table of objectives: one line, one file, one class each."""

from typing import TYPE_CHECKING, Annotated, Any, Union

import torch
from pydantic import Field

from midmask.encoders.backbone import Backbone
from midmask.objectives.bow import BOW
from midmask.objectives.cocondenser import CoCondenser
from midmask.objectives.condenser import Condenser
from midmask.objectives.contrastive import Contrastive
from midmask.objectives.cotmae import CoTMAE
from midmask.objectives.cotmae_qc import QueryAsContext
from midmask.objectives.cotmae_v2 import CoTMAEv2
from midmask.objectives.cotmote import CoTMoTE
from midmask.objectives.distillation import Distillation
from midmask.objectives.dupmae import DupMAE
from midmask.objectives.ict import ICT
from midmask.objectives.lexmae import LexMAE
from midmask.objectives.mlm import MLM
from midmask.objectives.mlm_cls_tf import MLMTermFrequency
from midmask.objectives.objective import CoupledObjective, Objective, ObjectiveConfig
from midmask.objectives.retromae import RetroMAE
from midmask.objectives.rom import ROM
from midmask.objectives.seed import SEED
from midmask.objectives.simcse import SimCSE
from midmask.objectives.simlm import SimLM
from midmask.registry import Registry
from midmask.vocabulary import Vocabulary

OBJECTIVES: Registry[Any] = Registry(
    "objective",
    {
        "mlm": MLM,  # Devlin et al. 2019: predict masked tokens
        "mlm_cls_tf": MLMTermFrequency,  # Lassance et al. 2023: and predict the text's term frequencies from [CLS]
        "retromae": RetroMAE,  # Xiao et al. 2022: rebuild the text from the sentence vector and half of the words
        "dupmae": DupMAE,  # Xiao et al. 2023: and name its words from the ordinary tokens
        "rom": ROM,  # Long et al. 2022: predict tokens that matter for a search
        "condenser": Condenser,  # Gao & Callan 2021: a head of early states and the late vector solves the MLM
        "cocondenser": CoCondenser,  # Gao & Callan 2022: and two spans of a document find each other
        "lexmae": LexMAE,  # Shen et al. 2023: rebuild the text from a mixture of words
        "cotmae": CoTMAE,  # Wu et al. 2023: rebuild one span of a document from the vector of another
        "cotmae_qc": QueryAsContext,  # Wu et al. 2023: write a pseudo-query from the vector of its passage
        "cotmae_v2": CoTMAEv2,  # Wu et al. 2023: a dense and a sparse view, two decoders
        "cotmote": CoTMoTE,  # Ma et al. 2023: queries and passages through experts of their own
        "simlm": SimLM,  # Wang et al. 2023: undo what a generator has put in, on both sides
        "seed": SEED,  # Lu et al. 2021: write the text from its vector, with little else to look at
        "bow": BOW,  # Ma et al. 2024: name the text's words from [CLS], without a decoder
        "simcse": SimCSE,  # Gao et al. 2021: a text finds itself under another dropout mask
        "ict": ICT,  # Lee et al. 2019, Izacard et al. 2022: two pieces of a passage find each other
        "contrastive": Contrastive,  # Karpukhin et al. 2020: fine-tuning with in-batch and hard negatives
        "distillation": Distillation,  # Hofstätter et al. 2020: fine-tuning on a cross-encoder's scores
    },
)

if TYPE_CHECKING:
    AnyObjectiveConfig = ObjectiveConfig
else:
    AnyObjectiveConfig = Annotated[
        Union[tuple(entry.Config for entry in OBJECTIVES.values())],  # noqa: UP007
        Field(discriminator="name"),
    ]
"""The type of a config field that may hold any objective's config; `name` says which."""


def build_objective(config: ObjectiveConfig, backbone: Backbone, vocabulary: Vocabulary, *, seed: int = 0) -> Objective:
    """The objective that a config names, on a backbone. Fresh heads depend on `seed` alone.

    Raises:
        UserError: for an unknown name, or a backbone that the method cannot be carried out on.
    """
    config.check(backbone.shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        objective: Objective = OBJECTIVES[config.name](config, backbone, vocabulary)
    return objective


__all__ = ["OBJECTIVES", "AnyObjectiveConfig", "CoupledObjective", "Objective", "ObjectiveConfig", "build_objective"]
