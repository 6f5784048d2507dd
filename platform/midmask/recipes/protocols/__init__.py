"""Fine-tuning protocols by name, each put on any recipe with `--protocol NAME`."""

from collections.abc import Callable

from midmask.recipes.protocols.cotmote import cotmote
from midmask.recipes.protocols.dpr import ance, dpr, in_batch, in_batch_splade
from midmask.recipes.protocols.dupmae import dupmae, dupmae_cls, dupmae_ot
from midmask.recipes.protocols.lexmae import lexmae
from midmask.recipes.protocols.msmarco import cocondenser, cotmae, retromae, retromae_distil
from midmask.recipes.protocols.protocol import Protocol as Protocol
from midmask.recipes.protocols.sigir23 import SIGIR23
from midmask.registry import Registry

PROTOCOLS: Registry[Callable[[], Protocol]] = Registry(
    "protocol",
    {
        "in_batch": in_batch,  # one stage without hard negatives: the default of most recipes
        "in_batch_splade": in_batch_splade,  # the same on SPLADE's words
        "dpr": dpr,  # Karpukhin et al. 2020: one BM25 negative
        "ance": ance,  # "ANCE-style": then negatives mined once with the first stage
        **SIGIR23,  # Lassance et al. 2023: 1 or 32 negatives, with or without distillation, dense or SPLADE
        "dupmae": dupmae,  # Xiao et al. 2023: in-batch, mined, distilled; [CLS] and ordinary tokens
        "dupmae_cls": dupmae_cls,  # its "CLS:768"
        "dupmae_ot": dupmae_ot,  # its "OT:768"
        "lexmae": lexmae,  # Shen et al. 2023: SPLADE in three stages
        "cotmote": cotmote,  # Ma et al. 2023: dense and sparse, two stages
        "cocondenser": cocondenser,  # Gao & Callan 2022, as Tevatron runs it
        "cotmae": cotmae,  # Wu et al. 2023
        "retromae": retromae,  # Xiao et al. 2022 on MS MARCO
        "retromae_distil": retromae_distil,  # and distilled
    },
)
