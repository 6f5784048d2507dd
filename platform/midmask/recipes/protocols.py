"""Fine-tuning protocols by name, each put on any recipe with `--protocol NAME`: `PROTOCOLS["dpr"]()` is its config.

The table names functions of `protocol_configs`, which is imported when a protocol is asked for, so that a misspelt name
does not wait for torch.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from midmask.core.registry import Registry

if TYPE_CHECKING:
    from midmask.recipes.protocol_configs import Protocol


def _make(name: str, **arguments: Any) -> "Protocol":
    from midmask.recipes import protocol_configs  # here, for the sake of torch

    function: Callable[..., Protocol] = getattr(protocol_configs, name)
    return function(**arguments)


def _sigir23(negatives: int, distil: str, splade: str) -> "Callable[[], Protocol]":
    return partial(_make, "sigir23", negatives=negatives, distil=bool(distil), splade=bool(splade))


PROTOCOLS: "Registry[Callable[[], Protocol]]" = Registry(
    "protocol",
    {
        "in_batch": partial(_make, "in_batch"),  # one stage without hard negatives: the default of most recipes
        "in_batch_splade": partial(_make, "in_batch_splade"),  # the same on SPLADE's words
        "in_batch_hybrid": partial(_make, "in_batch_hybrid"),  # on both together
        "in_batch_late": partial(_make, "in_batch_late"),  # on a vector for each token (ColBERT)
        "dpr": partial(_make, "dpr"),  # Karpukhin et al. 2020: one BM25 negative
        "ance": partial(_make, "ance"),  # "ANCE-style": then negatives mined once with the first stage
        # Lassance et al. 2023: 1 or 32 negatives, with or without distillation, dense or SPLADE
        **{
            f"sigir23_{negatives}neg{distil}{splade}": _sigir23(negatives, distil, splade)
            for negatives in (1, 32)
            for distil in ("", "_distil")
            for splade in ("", "_splade")
        },
        "dupmae": partial(_make, "dupmae"),  # Xiao et al. 2023: in-batch, mined, distilled; two kinds of vector
        "dupmae_cls": partial(_make, "dupmae_cls"),  # its "CLS:768"
        "dupmae_ot": partial(_make, "dupmae_ot"),  # its "OT:768"
        "lexmae": partial(_make, "lexmae"),  # Shen et al. 2023: SPLADE in three stages
        "cotmote": partial(_make, "cotmote"),  # Ma et al. 2023: dense and sparse, two stages
        "cocondenser": partial(_make, "cocondenser"),  # Gao & Callan 2022, as Tevatron runs it
        "cotmae": partial(_make, "cotmae"),  # Wu et al. 2023
        "retromae": partial(_make, "retromae"),  # Xiao et al. 2022 on MS MARCO
        "retromae_distil": partial(_make, "retromae_distil"),  # and distilled
        "gpl": partial(_make, "gpl"),  # Wang et al. 2022: a cross-encoder's margins on made queries
    },
)
