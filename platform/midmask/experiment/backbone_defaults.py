"""Defaults that depend on what the backbone is: fresh weights (a named size), or a pre-trained folder or hub id.

Recipes are sized for a tiny model with fresh weights. At its learning rate of 1e-3 a pre-trained encoder collapses
within 12 steps of fine-tuning: all texts get nearly one vector. So a change of the backbone changes, with it, every
field that holds the default of the old kind of backbone. A field that is set in the same changes, or that holds another
value, as those of published protocols do, stays as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midmask.encoders.backbone import SIZES, BackboneConfig, shape_of
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override

NAME = "backbone.name"
"""As a default of `tokens.tokenizer`: the backbone's own."""


@dataclass(frozen=True)
class Default:
    """A field's value with fresh weights, and with pre-trained ones."""

    path: str
    fresh: Any
    pretrained: Any

    def of(self, *, is_pretrained: bool) -> Any:
        return self.pretrained if is_pretrained else self.fresh


DEFAULTS = (
    Default(r"pretrain\.learning_rate", 1e-3, 5e-5),
    Default(r"stages\.\d+\.train\.learning_rate", 1e-3, 5e-5),
    Default(r"stages\.\d+\.teacher\.train\.learning_rate", 5e-4, 5e-5),
    Default(r"tokens\.max_length", 48, 128),
    Default(r"tokens\.query_length", 24, 32),
    Default(r"spans\.span_length", 48, 128),
    Default(r"tokens\.tokenizer", None, NAME),
)
"""Fields by an expression for their paths. 5e-5 is BERT's own rate. After 12 steps of fine-tuning all-MiniLM-L6-v2 on
8 queries of SQuAD each, the mean cosine of random passages is 0.10 at this rate, and 0.81 at 1e-3.
"""


def apply_changes(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """`identity.override`, and the defaults of the new backbone where the changes make it one of the other kind.

    Raises:
        UserError: for an unknown path or an impossible value.
    """
    made = override(recipe, dict(changes))
    if not any("backbone" in path for path in changes):
        return made
    following = {path: value for path, value in _new_defaults(recipe, made) if not _is_set(path, changes)}
    return override(made, following) if following else made


def is_pretrained(backbone: BackboneConfig) -> bool:
    """Whether training starts from weights that were trained before."""
    return not backbone.fresh and backbone.name not in SIZES


def _new_defaults(old: Recipe, new: Recipe) -> list[tuple[str, Any]]:
    """The fields of `new` that hold the default of the old backbone, with that of the new one, if it is of another
    kind."""
    values, found = flatten(new), []
    for path, value in values.items():
        default = next((one for one in DEFAULTS if re.fullmatch(one.path, path)), None)
        if default is None:
            continue
        was, now = _rate_defaults(old, path), _rate_defaults(new, path)
        before = _resolve(default.of(is_pretrained=is_pretrained(was)), was)
        if value == before and is_pretrained(was) != is_pretrained(now):
            found.append((path, _resolve(default.of(is_pretrained=is_pretrained(now)), now)))
    return found


def _rate_defaults(recipe: Recipe, path: str) -> BackboneConfig:
    """The backbone that a field is about: the recipe's, or that of the stage's teacher, if it has one of its own."""
    number = re.match(r"stages\.(\d+)\.teacher\.", path)
    stages = recipe.stages[int(number[1]) :][:1] if number else ()
    own = stages[0].teacher.backbone if stages and stages[0].teacher else None
    return own or recipe.backbone


def _resolve(default: Any, backbone: BackboneConfig) -> Any:
    """A length is at most what the backbone has positions for."""
    if default == NAME:
        return backbone.name
    if not isinstance(default, int) or not is_pretrained(backbone):
        return default
    try:
        return min(default, shape_of(backbone).max_length)
    except UserError:  # a model that cannot be read is refused by Recipe.check
        return default


def _is_set(path: str, changes: Mapping[str, Any]) -> bool:
    """Whether the changes have this field, or a whole config that it is in."""
    return any(path == changed or path.startswith(f"{changed}.") for changed in changes)
