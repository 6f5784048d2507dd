"""The tables of objectives, middle trainings and fine-tuning losses: one line, one file, one class each."""

from functools import partial
from typing import Any

from midmask.core.registry import Registry
from midmask.core.torch_randomness import fresh_weights
from midmask.encoders.backbone import Backbone
from midmask.errors import UserError
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.objective import CoupledObjective, Objective, ObjectiveConfig
from midmask.objectives.pretraining.bow import BOW
from midmask.objectives.pretraining.cocondenser import CoCondenser
from midmask.objectives.pretraining.condenser import Condenser
from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from midmask.objectives.pretraining.cotmote import CoTMoTE
from midmask.objectives.pretraining.diffcse import DiffCSE
from midmask.objectives.pretraining.distil_vectors import DistilVectors
from midmask.objectives.pretraining.dupmae import DupMAE
from midmask.objectives.pretraining.ict import ICT
from midmask.objectives.pretraining.laprador import LaPraDoR
from midmask.objectives.pretraining.lexmae import LexMAE
from midmask.objectives.pretraining.master import MASTER
from midmask.objectives.pretraining.mlm import MLM
from midmask.objectives.pretraining.mlm_cls_tf import MLMTermFrequency
from midmask.objectives.pretraining.retromae import RetroMAE
from midmask.objectives.pretraining.rom import ROM
from midmask.objectives.pretraining.seed import SEED
from midmask.objectives.pretraining.simcse import SimCSE
from midmask.objectives.pretraining.simlm import SimLM
from midmask.objectives.pretraining.spider import Spider
from midmask.objectives.pretraining.tsdae import TSDAE
from midmask.objectives.pretraining.weak_pairs import WeakPairs
from midmask.text.vocabulary import Vocabulary

PRETRAINING: Registry[Any] = Registry(
    "middle-training objective",
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
        "master": MASTER,  # Zhou et al. 2023: rebuild several texts from one vector, each by its decoder
        "simlm": SimLM,  # Wang et al. 2023: undo what a generator has put in, on both sides
        "seed": SEED,  # Lu et al. 2021: write the text from its vector, with little else to look at
        "tsdae": TSDAE,  # Wang et al. 2021: write the text from the vector of what is left of it
        "bow": BOW,  # Ma et al. 2024: name the text's words from [CLS], without a decoder
        "simcse": SimCSE,  # Gao et al. 2021: a text finds itself under another dropout mask
        "diffcse": DiffCSE,  # Chuang et al. 2022: and its vector shows where a generator has edited it
        "ict": ICT,  # Lee et al. 2019, Izacard et al. 2022: two pieces of a passage find each other
        "laprador": LaPraDoR,  # Xu et al. 2022: and two encoders learn so in turn, with a cache of vectors
        "spider": Spider,  # Ram et al. 2022: a window around words that recur in a document finds their other place
        "weak_pairs": WeakPairs,  # Wang et al. 2022, Li et al. 2023: a passage is found by its title
        "distil_vectors": DistilVectors,  # Vera et al. 2025: a text's vector points where a finished encoder's does
    },
)
"""What a middle training (`objective`) may be; it reads texts without judgements."""

FINETUNING: Registry[Any] = Registry(
    "fine-tuning loss",
    {
        "contrastive": Contrastive,  # Karpukhin et al. 2020: in-batch and hard negatives
        "distillation": Distillation,  # Hofstätter et al. 2020: a cross-encoder's scores
    },
)
"""What a fine-tuning stage (`stages.N.loss`) may train on; it reads judged queries."""


def _config(value: Any, table: Registry[Any], field: str) -> Any:
    """The config of an objective from its fields by name; None and configs are returned as they are.

    Raises:
        UserError: for a name that is not in the table.
    """
    if not isinstance(value, dict | ObjectiveConfig):
        return value
    name = value.name if isinstance(value, ObjectiveConfig) else value.get("name")
    if name is None:
        raise UserError(f"{field}: the name of a {table.kind} is required. Known: {', '.join(sorted(table))}.")
    entry = table[str(name)]
    return value if isinstance(value, ObjectiveConfig) else entry.Config.model_validate(value)


pretraining_config = partial(_config, table=PRETRAINING, field="objective")
finetuning_config = partial(_config, table=FINETUNING, field="loss")


def build_objective(config: ObjectiveConfig, backbone: Backbone, vocabulary: Vocabulary, *, seed: int = 0) -> Objective:
    """The objective that a config names, on a backbone. Fresh heads depend on `seed` alone.

    Raises:
        UserError: for an unknown name, or a backbone that the method cannot be carried out on.
    """
    config.check(backbone.shape)
    with fresh_weights(seed):
        table = FINETUNING if config.name in FINETUNING else PRETRAINING
        objective: Objective = table[config.name](config, backbone, vocabulary)
    return objective


__all__ = [
    "FINETUNING",
    "PRETRAINING",
    "CoupledObjective",
    "Objective",
    "ObjectiveConfig",
    "build_objective",
    "finetuning_config",
    "pretraining_config",
]
