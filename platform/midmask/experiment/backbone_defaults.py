"""Defaults that depend on what the backbone is: fresh weights (a named size), or a pre-trained folder or hub id.

Recipes are sized for a tiny model with fresh weights. At its learning rate of 1e-3 a pre-trained encoder collapses
within 12 steps of fine-tuning: all texts get nearly one vector. So a change of the backbone changes, with it, every
field that holds the default of the old kind of backbone. A field that is set in the same changes, or that holds another
value, as those of published protocols do, stays as it is. A backbone that was a retriever before (`minilm`) is pooled
and scored on as its own files say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.model_settings import read_representation
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.experiment.every_stage import for_each_stage
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override
from midmask.pretrained import found_folder

OwnDefault = Callable[[Recipe, BackboneConfig], Any]
"""What a field is by default with a pre-trained backbone."""


@dataclass(frozen=True)
class Default:
    """A field's value with fresh weights, and with pre-trained ones."""

    path: str
    fresh: Any
    pretrained: OwnDefault

    def of(self, recipe: Recipe, backbone: BackboneConfig) -> Any:
        return self.pretrained(recipe, backbone) if backbone.is_pretrained else self.fresh


def _always(value: Any) -> OwnDefault:
    return lambda recipe, backbone: value


def _at_most(length: int) -> OwnDefault:
    """A length, or the number of tokens that the backbone has positions for."""

    def limited(recipe: Recipe, backbone: BackboneConfig) -> int:
        try:
            return min(length, shape_of(backbone).max_length)
        except UserError:  # a model that cannot be read is refused by Recipe.check
            return length

    return limited


def _pooling(backbone: BackboneConfig) -> Representation:
    """The dense view that the backbone's folder was trained for: [CLS], unless its files say otherwise."""
    folder = found_folder(backbone.name)
    try:
        return Representation() if folder is None else read_representation(folder)
    except UserError:  # settings that cannot be followed are no reason not to train on the weights
        return Representation()


def _dense(recipe: Recipe, backbone: BackboneConfig) -> str:
    return _pooling(backbone).dense or "cls"


def _normalise(recipe: Recipe, backbone: BackboneConfig) -> bool:
    """As the folder's, for a dense view alone: a cosine adds next to nothing to the score of words."""
    return recipe.representation.views == ("dense",) and _pooling(backbone).normalise


def _temperature(recipe: Recipe, backbone: BackboneConfig) -> float:
    """Cosines are within -1 and 1, so a softmax over them needs a temperature: that of sentence-transformers."""
    return COSINE_TEMPERATURE if _normalise(recipe, backbone) else 1.0


COSINE_TEMPERATURE = 0.05

DEFAULTS = (
    Default(r"pretrain\.learning_rate", 1e-3, _always(5e-5)),
    Default(r"stages\.\d+\.train\.learning_rate", 1e-3, _always(5e-5)),
    Default(r"stages\.\d+\.teacher\.train\.learning_rate", 5e-4, _always(5e-5)),
    Default(r"tokens\.max_length", 48, _at_most(128)),
    Default(r"tokens\.query_length", 24, _at_most(32)),
    Default(r"spans\.span_length", 48, _at_most(128)),
    Default(r"tokens\.tokenizer", None, lambda recipe, backbone: backbone.name),
    Default(r"backbone\.head_bias", "zero", _always("unigram")),
    Default(r"backbone\.sentence_vector", "cls", _dense),
    Default(r"representation\.dense", "cls", _dense),
    Default(r"representation\.normalise", False, _normalise),
    Default(r"stages\.\d+\.loss\.temperature", 1.0, _temperature),
)
"""Fields by an expression for their paths. 5e-5 is BERT's own rate. After 12 steps of fine-tuning all-MiniLM-L6-v2 on
8 queries of SQuAD each, the mean cosine of random passages is 0.10 at this rate, and 0.81 at 1e-3. all-MiniLM-L6-v2 has
no MLM head; after 200 steps of MLM on SQuAD with a fresh one the loss is 6.03 from a bias of 0, and 5.81 from unigrams.
"""


def apply_changes(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """`identity.override`, and the defaults of the new backbone where the changes make it one of the other kind.
    `stages.*.…` stands for every stage.

    Raises:
        UserError: for an unknown path or an impossible value.
    """
    changes = for_each_stage(recipe, changes)
    made = override(recipe, changes)
    if not any("backbone" in path for path in changes):
        return made
    following = {path: value for path, value in _new_defaults(recipe, made) if not _is_set(path, changes)}
    return override(made, following) if following else made


def _new_defaults(old: Recipe, new: Recipe) -> list[tuple[str, Any]]:
    """The fields of `new` that hold the default of the old backbone, with that of the new one, where it is another."""
    values, found = flatten(new), []
    for path, value in values.items():
        default = next((one for one in DEFAULTS if re.fullmatch(one.path, path)), None)
        if default is None:
            continue
        before = default.of(old, _rate_defaults(old, path))
        after = default.of(new, _rate_defaults(new, path))
        if value == before != after:
            found.append((path, after))
    return found


def _rate_defaults(recipe: Recipe, path: str) -> BackboneConfig:
    """The backbone that a field is about: the recipe's, or that of the stage's teacher, if it has one of its own."""
    number = re.match(r"stages\.(\d+)\.teacher\.", path)
    stages = recipe.stages[int(number[1]) :][:1] if number else ()
    own = stages[0].teacher.backbone if stages and stages[0].teacher else None
    return own or recipe.backbone


def _is_set(path: str, changes: Mapping[str, Any]) -> bool:
    """Whether the changes have this field, or a whole config that it is in."""
    return any(path == changed or path.startswith(f"{changed}.") for changed in changes)
