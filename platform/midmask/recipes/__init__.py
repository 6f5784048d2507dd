"""Whole experiments, one file per system of the literature, and the table of them.

A recipe is a function without arguments that returns a full config; a variant changes fields of another.
"""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from midmask.experiment.schema import Recipe
from midmask.identity import as_user_error
from midmask.recipes.bow import bow
from midmask.recipes.cocondenser import cocondenser
from midmask.recipes.condenser import condenser
from midmask.recipes.cotmae import cotmae
from midmask.recipes.cotmae_qc import cotmae_qc
from midmask.recipes.cotmae_v2 import cotmae_v2
from midmask.recipes.cotmote import cotmote, cotmote_separate, cotmote_siamese, cotmote_switched
from midmask.recipes.dupmae import dupmae
from midmask.recipes.ict import ict
from midmask.recipes.lexmae import lexmae
from midmask.recipes.mlm import mlm
from midmask.recipes.mlm_cls_tf import mlm_cls_tf
from midmask.recipes.none import none
from midmask.recipes.retromae import retromae
from midmask.recipes.retromae_ance import retromae_ance
from midmask.recipes.rom import rom
from midmask.recipes.scratch import scratch
from midmask.recipes.seed import seed
from midmask.recipes.simcse import simcse
from midmask.recipes.simlm import simlm
from midmask.registry import Registry

RECIPES: Registry[Callable[[], Recipe]] = Registry(
    "recipe",
    {
        "none": none,
        "scratch": scratch,
        "mlm": mlm,
        "mlm_cls_tf": mlm_cls_tf,
        "retromae": retromae,
        "dupmae": dupmae,
        "rom": rom,
        "condenser": condenser,
        "cocondenser": cocondenser,
        "lexmae": lexmae,
        "cotmae": cotmae,
        "cotmae_qc": cotmae_qc,
        "cotmae_v2": cotmae_v2,
        "cotmote": cotmote,
        "cotmote_siamese": cotmote_siamese,
        "cotmote_separate": cotmote_separate,
        "cotmote_switched": cotmote_switched,
        "simlm": simlm,
        "seed": seed,
        "bow": bow,
        "simcse": simcse,
        "ict": ict,
        "retromae_ance": retromae_ance,
    },
)


def recipe_from(data: dict[str, Any]) -> Recipe:
    """A recipe from plain data, validated.

    Raises:
        UserError: naming the first wrong field.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, "") from None
