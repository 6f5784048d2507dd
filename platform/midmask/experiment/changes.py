"""Changes of a recipe: `stages.*.…` for every stage, and the fields that follow its backbone or a model folder.

Recipes are sized for a tiny model with fresh weights (a named size). At its learning rate of 1e-3 a pre-trained encoder
of width 384 or more collapses within 12 steps of fine-tuning: all texts get nearly one vector; a narrower one
(`wiki-mini`) learns best at it. So a change of the backbone changes, with it, every field that holds the default of the
old kind of backbone. A field that is set in the same changes, or that holds another value, as those of published
protocols do, stays as it is. A backbone that was a retriever before (`minilm`) is pooled and scored on as its own files
say; a model folder from elsewhere that takes the trained model's place has its texts written and cut as its own files
state.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midmask.core.config import flatten, override
from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.families import BackboneShape
from midmask.encoders.model_settings import read_facts
from midmask.encoders.reading import refuse_no_model
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.retrieve.text_encoder import refuse_unfit
from midmask.store.pretrained import found_folder, model_folder

EVERY = "stages.*."


def for_each_stage(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes, written out for each stage; those of a teacher's fields, for each stage that has one. A recipe may
    have no such stage: one change may be of many recipes.
    """
    found: dict[str, Any] = {}
    for path, value in changes.items():
        if not path.startswith(EVERY):
            found[path] = value
            continue
        for number, stage in enumerate(recipe.stages):
            if stage.teacher is not None or not path.startswith(f"{EVERY}teacher."):
                found[path.replace("*", str(number), 1)] = value
    return found


def refuse_idle(recipe: Recipe, changes: Mapping[str, Any]) -> None:
    """Refuses changes of this recipe that would have no effect.

    Raises:
        UserError: for one that no stage of the recipe has a place for.
    """
    for path, value in changes.items():
        if path.startswith(EVERY) and not for_each_stage(recipe, {path: value}):
            lacking = "has a teacher" if recipe.stages else "is there"
            raise UserError(f"{path} = {value}: no stage of {recipe.name} {lacking}; leave it out")


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


def _shape(backbone: BackboneConfig) -> BackboneShape | None:
    """None for a model that cannot be read: Recipe.check refuses it."""
    try:
        return shape_of(backbone)
    except UserError:
        return None


def _at_most(length: int) -> OwnDefault:
    """A length, or the number of tokens that the backbone has positions for."""

    def limited(recipe: Recipe, backbone: BackboneConfig) -> int:
        shape = _shape(backbone)
        return min(length, shape.max_length) if shape else length

    return limited


def _pooling(backbone: BackboneConfig) -> Representation:
    """The dense view that the backbone's folder was trained for: [CLS], unless its files say otherwise."""
    folder = found_folder(backbone.name)
    try:
        return Representation() if folder is None else read_facts(folder).representation
    except UserError:  # settings that cannot be followed are no reason not to train on the weights
        return Representation()


def _dense(recipe: Recipe, backbone: BackboneConfig) -> str:
    return _pooling(backbone).dense or "cls"


def _normalise(recipe: Recipe, backbone: BackboneConfig) -> bool:
    """Whether to normalise vectors: as in the folder for a dense view alone; beside words a cosine adds little."""
    return recipe.representation.views == ("dense",) and _pooling(backbone).normalise


def _temperature(recipe: Recipe, backbone: BackboneConfig) -> float:
    """Cosines are within -1 and 1, so a softmax over them needs a temperature: that of sentence-transformers."""
    return COSINE_TEMPERATURE if _normalise(recipe, backbone) else 1.0


def _rate(recipe: Recipe, backbone: BackboneConfig) -> float:
    """BERT's own rate, or for narrow encoders that of fresh weights."""
    shape = _shape(backbone)
    return FRESH_RATE if shape and shape.width < NARROW else 5e-5


def _query_stream(recipe: Recipe, backbone: BackboneConfig) -> str:
    """DupMAE's code makes decoder queries with the encoder's embedding module, if that has a table of positions."""
    shape = _shape(backbone) if recipe.objective and recipe.objective.name == "dupmae" else None
    return "embedding" if shape is None or shape.embeds_streams else "paper"


COSINE_TEMPERATURE = 0.05
FRESH_RATE = 1e-3
NARROW = 384
"""Width from which a pre-trained encoder needs a smaller rate than fresh weights."""

DEFAULTS = (
    Default(r"pretrain\.learning_rate", FRESH_RATE, _rate),
    Default(r"stages\.\d+\.train\.learning_rate", FRESH_RATE, _rate),
    Default(r"stages\.\d+\.teacher\.train\.learning_rate", 5e-4, _always(5e-5)),
    Default(r"tokens\.max_length", 48, _at_most(128)),
    Default(r"tokens\.query_length", 24, _at_most(32)),
    Default(r"spans\.span_length", 48, _at_most(128)),
    Default(r"tokens\.tokenizer", None, lambda recipe, backbone: backbone.name),
    Default(r"objective\.query_stream", "embedding", _query_stream),
    Default(r"backbone\.head_bias", "zero", _always("unigram")),
    Default(r"backbone\.sentence_vector", "cls", _dense),
    Default(r"representation\.dense", "cls", _dense),
    Default(r"representation\.normalise", False, _normalise),
    Default(r"stages\.\d+\.loss\.temperature", 1.0, _temperature),
)
"""Fields by an expression for their paths."""


def apply_changes(recipe: Recipe, changes: Mapping[str, Any], *, backbone_defaults: bool = True) -> Recipe:
    """`config.override`, and the defaults of the new backbone where the changes make it one of the other kind.
    `stages.*.…` stands for every stage. Without `backbone_defaults`, as at the published scale, published rates stay.

    Raises:
        UserError: for an unknown path or an impossible value.
    """
    changes = for_each_stage(recipe, changes)
    made = override(recipe, changes)
    if not backbone_defaults or not any("backbone" in path for path in changes):
        return made
    following = {path: value for path, value in _new_defaults(recipe, made) if not _is_set(path, changes)}
    return override(made, following) if following else made


def _new_defaults(old: Recipe, new: Recipe) -> list[tuple[str, Any]]:
    """The fields of `new` that hold the default of the old backbone, with that of the new one, where it is another."""
    values, defaults = flatten(new), []
    for path, value in values.items():
        default = next((entry for entry in DEFAULTS if re.fullmatch(entry.path, path)), None)
        if default is None:
            continue
        before = default.of(old, _rate_defaults(old, path))
        after = default.of(new, _rate_defaults(new, path))
        if value == before != after:
            defaults.append((path, after))
    return defaults


def _rate_defaults(recipe: Recipe, path: str) -> BackboneConfig:
    """The backbone that a field is about: the recipe's, or that of the stage's teacher, if it has one of its own."""
    number = re.match(r"stages\.(\d+)\.teacher\.", path)
    stages = recipe.stages[int(number[1]) :][:1] if number else ()
    teacher_backbone = stages[0].teacher.backbone if stages and stages[0].teacher else None
    return teacher_backbone or recipe.backbone


def _is_set(path: str, changes: Mapping[str, Any]) -> bool:
    """Whether the changes have this field, or a whole config that it is in."""
    return any(path == changed or path.startswith(f"{changed}.") for changed in changes)


LONGEST = 8192
"""Tokens of a text, at most, whatever a folder says: `tokens.max_length` allows no more."""


def check_folder(recipe: Recipe, folder: Path) -> None:
    """Reads a model folder whole, before anything is computed with it, for the texts of a recipe that it made.

    Raises:
        UserError: if its weights are not those of its config, or its tokenizer's ids exceed its embeddings.
    """
    refuse_unfit(folder, model_folder(recipe.tokens.tokenizer or str(folder), field="tokens.tokenizer"))


def as_folder_reads(recipe: Recipe, folder: Path, chosen: Collection[str]) -> Recipe:
    """The recipe with the tokenizer, lengths, prompts and titles of a model folder.

    A length that the folder does not say stays the recipe's. Titles are read unless the folder says that the model was
    trained without them.

    Args:
        chosen: dotted paths that the user has set, which stay as they are.

    Raises:
        UserError: if it is no model folder, or one that midmask cannot follow.
    """
    refuse_no_model(f"--model {folder}", folder)
    facts = read_facts(folder)
    said = {
        "tokenizer": str(folder),
        "max_length": min(facts.passage_length or recipe.tokens.max_length, LONGEST),
        "query_length": min(facts.query_length or recipe.tokens.query_length, LONGEST),
        "titles": facts.form.titles is not False,
        "title_join": facts.form.title_join,
        "query_prompt": facts.form.query_prompt,
        "passage_prompt": facts.form.passage_prompt,
    }
    free = {name: value for name, value in said.items() if not {"tokens", f"tokens.{name}"} & set(chosen)}
    data = recipe.tokens.model_copy(update=free).model_dump()
    if not data["titles"] and "tokens.title_join" not in chosen:
        data["title_join"] = "space"
    return override(recipe, {"tokens": data})
