"""Published sizes of middle trainings on MS MARCO, and of what all systems share; and what a recipe lacks of them.
Those of fine-tuning are in `recipes.protocols`.
"""

from collections.abc import Mapping
from typing import Any

from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.protocols.protocol import Scale

MSMARCO = 8_841_823
"""Passages of MS MARCO: what published epochs of middle training are counted in."""

SHARED: dict[str, Any] = {
    "backbone.name": "bert-base-uncased",
    "backbone.dropout": 0.1,
    "tokens.tokenizer": "bert-base-uncased",
    "spans.span_length": 128,
    "evaluation.depth": 1000,
}
"""BERT-base and its vocabulary, and ranked lists of 1,000. The teacher, one for all, is trained from BERT-base too."""


def _trained(steps: float, batch: int, rate: float, *, warmup: float = 0.1) -> dict[str, Any]:
    return {
        "pretrain.steps": round(steps),
        "pretrain.batch_size": batch,
        "pretrain.learning_rate": rate,
        "pretrain.warmup": warmup,
        "pretrain.decay": 1 - warmup,
    }


_MLM = _trained(8 * MSMARCO / 256, 256, 5e-5, warmup=0.0)
_RETROMAE = _trained(20 * MSMARCO / 1024, 1024, 1e-4)
_CONDENSER = _trained(120_000, 2048, 1e-4)
_COTMOTE = _trained(80_000, 2048, 3e-4)

MIDDLE_TRAININGS: dict[str, dict[str, Any]] = {
    "mlm": _MLM,
    "mlm_cls_tf": _MLM,
    "rom": _MLM,
    "retromae": _RETROMAE,
    "dupmae": _RETROMAE,
    "condenser": _CONDENSER,
    "cocondenser": _CONDENSER,
    "seed": _CONDENSER,
    "lexmae": _trained(20 * MSMARCO / 2048, 2048, 3e-4, warmup=0.05),
    "cotmae": _trained(1_200_000, 512, 1e-4),
    "cotmae_v2": _trained(50_000, 16_384, 4e-4),
    "simlm": _trained(80_000, 2048, 3e-4),
    "cotmote": _COTMOTE,
    "cotmote_siamese": _COTMOTE,
    "cotmote_separate": _COTMOTE,
    "cotmote_switched": _COTMOTE,
}
"""Middle training on MS MARCO as published (methods.md 1 to 9); where batches are not said (MLM, ROM, SEED, SimLM,
CoT-MAE v2), those of the nearest relative."""

SIZES_OF = ("backbone.", "tokens.", "spans.", "pretrain.", "stages.")
"""Sections of a recipe whose fields belong to a scale, but for seeds."""


def scaled(recipe: Recipe, protocol: str, scale: Scale) -> Recipe:
    """The recipe with a protocol's fine-tuning; at the published scale, with a published backbone and middle training
    too.

    Raises:
        UserError: for an unknown protocol.
    """
    tuned = PROTOCOLS[protocol]().on(recipe, scale)
    if scale == "demo":
        return tuned
    return apply_changes(tuned, {**SHARED, **MIDDLE_TRAININGS.get(recipe.name, {})})


def with_changes(recipe: Recipe, changes: Mapping[str, Any], scale: Scale) -> Recipe:
    """The recipe with some fields set. At the published scale no other field follows a backbone that is set, so that
    published rates stay.

    Raises:
        UserError: for an unknown path or an impossible value.
    """
    return override(recipe, dict(changes)) if scale == "published" else apply_changes(recipe, changes)


def has_sizes(name: str) -> bool:
    """Whether the sizes of a recipe's middle training are known, or it has none."""
    return name in MIDDLE_TRAININGS or RECIPES[name]().objective is None


def unpublished(recipe: Recipe) -> list[str]:
    """What of a recipe that was asked for at the published scale is not as published, a sentence each."""
    found = []
    wanted, own = flatten(scaled(RECIPES[recipe.name](), recipe.protocol, "published")), flatten(recipe)
    for path, value in own.items():
        differs = path in wanted and wanted[path] != value
        if differs and path.startswith(SIZES_OF) and not path.endswith("seed"):
            found.append(f"{path} = {value}, published: {wanted[path]}")
    if not has_sizes(recipe.name):
        found.append(f"pretrain.*: no sizes of {recipe.name} are known, so steps and batches are those of a demo")
    if recipe.corpus.format != "msmarco":
        found.append(f"corpus.name = {recipe.corpus.name}: steps are epochs over MS MARCO")
    return found
