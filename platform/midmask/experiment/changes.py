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
from collections.abc import Collection, Iterator, Mapping
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
from midmask.store.pretrained import installed_folder, model_folder

EVERY = "stages.*."


def for_each_stage(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes, written out for each stage; those of a teacher's fields, for each stage that has one. A recipe may
    have no such stage: one change may be of many recipes.
    """
    by_path: dict[str, Any] = {}
    for path, value in changes.items():
        if not path.startswith(EVERY):
            by_path[path] = value
            continue
        for number, stage in enumerate(recipe.stages):
            if stage.teacher is not None or not path.startswith(f"{EVERY}teacher."):
                by_path[path.replace("*", str(number), 1)] = value
    return by_path


def refuse_idle(recipe: Recipe, changes: Mapping[str, Any]) -> None:
    """Refuses changes of this recipe that would have no effect.

    Raises:
        UserError: for one that no stage of the recipe has a place for.
    """
    for path, value in changes.items():
        if path.startswith(EVERY) and not for_each_stage(recipe, {path: value}):
            lacking = "has a teacher" if recipe.stages else "is there"
            raise UserError(f"{path} = {value}: no stage of {recipe.name} {lacking}; leave it out")


COSINE_TEMPERATURE = 0.05
"""Cosines are within -1 and 1, so a softmax over them needs a temperature: that of sentence-transformers."""
FRESH_RATE, PRETRAINED_RATE = 1e-3, 5e-5
"""The second is BERT's own."""
NARROW = 384
"""Width from which a pre-trained encoder needs a smaller rate than fresh weights."""

FRESH: dict[str, Any] = {
    r"pretrain\.learning_rate": FRESH_RATE,
    r"stages\.\d+\.train\.learning_rate": FRESH_RATE,
    r"stages\.\d+\.teacher\.train\.learning_rate": 5e-4,
    r"tokens\.max_length": 48,
    r"tokens\.query_length": 24,
    r"spans\.span_length": 48,
    r"tokens\.tokenizer": None,
    r"objective\.query_stream": "embedding",
    r"backbone\.head_bias": "zero",
    r"backbone\.sentence_vector": "cls",
    r"representation\.dense": "cls",
    r"representation\.normalise": False,
    r"stages\.\d+\.loss\.temperature": 1.0,
}
"""Expression for the paths of fields -> their default with fresh weights."""


def defaults_with(recipe: Recipe, backbone: BackboneConfig) -> dict[str, Any]:
    """The defaults of the fields in `FRESH` with a backbone. Lengths are at most what it has positions for; vectors are
    normalised as in its folder for a dense view alone, since beside words a cosine adds little; DupMAE's code makes
    decoder queries with the encoder's embedding module, if that has a table of positions.
    """
    if not backbone.is_pretrained:
        return FRESH
    pooled, shape = _pooling(backbone), _shape(backbone)
    rate = FRESH_RATE if shape and shape.width < NARROW else PRETRAINED_RATE
    longest = shape.max_length if shape else LONGEST
    dense, normalise = pooled.dense or "cls", recipe.representation.views == ("dense",) and pooled.normalise
    is_dupmae = recipe.objective is not None and recipe.objective.name == "dupmae"
    return {
        r"pretrain\.learning_rate": rate,
        r"stages\.\d+\.train\.learning_rate": rate,
        r"stages\.\d+\.teacher\.train\.learning_rate": PRETRAINED_RATE,
        r"tokens\.max_length": min(128, longest),
        r"tokens\.query_length": min(32, longest),
        r"spans\.span_length": min(128, longest),
        r"tokens\.tokenizer": backbone.name,
        r"objective\.query_stream": "paper" if is_dupmae and shape and not shape.embeds_streams else "embedding",
        r"backbone\.head_bias": "unigram",
        r"backbone\.sentence_vector": dense,
        r"representation\.dense": dense,
        r"representation\.normalise": normalise,
        r"stages\.\d+\.loss\.temperature": COSINE_TEMPERATURE if normalise else 1.0,
    }


def _shape(backbone: BackboneConfig) -> BackboneShape | None:
    """None for a model that cannot be read: Recipe.check refuses it."""
    try:
        return shape_of(backbone)
    except UserError:
        return None


def _pooling(backbone: BackboneConfig) -> Representation:
    """The dense view that the backbone's folder was trained for: [CLS], unless its files say otherwise."""
    folder = installed_folder(backbone.name)
    try:
        return Representation() if folder is None else read_facts(folder).representation
    except UserError:  # settings that cannot be followed are no reason not to train on the weights
        return Representation()


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
    following = {
        path: value
        for path, value in _new_defaults(recipe, made)
        if not any(path == changed or path.startswith(f"{changed}.") for changed in changes)
    }
    return override(made, following) if following else made


def _new_defaults(old: Recipe, new: Recipe) -> Iterator[tuple[str, Any]]:
    """The fields of `new` that hold the default of the old backbone, with that of the new one, where it is another."""
    for path, value in flatten(new).items():
        field = next((expression for expression in FRESH if re.fullmatch(expression, path)), None)
        if field is not None:
            before, after = (defaults_with(recipe, _backbone_of(recipe, path))[field] for recipe in (old, new))
            if value == before != after:
                yield path, after


def _backbone_of(recipe: Recipe, path: str) -> BackboneConfig:
    """The backbone that a field is about: the recipe's, or that of the stage's teacher, if it has one of its own."""
    number = re.match(r"stages\.(\d+)\.teacher\.", path)
    stages = recipe.stages[int(number[1]) :][:1] if number else ()
    teacher_backbone = stages[0].teacher.backbone if stages and stages[0].teacher else None
    return teacher_backbone or recipe.backbone


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
    settings = {
        "tokenizer": str(folder),
        "max_length": min(facts.passage_length or recipe.tokens.max_length, LONGEST),
        "query_length": min(facts.query_length or recipe.tokens.query_length, LONGEST),
        "titles": facts.form.titles is not False,
        "title_join": facts.form.title_join,
        "query_prompt": facts.form.query_prompt,
        "passage_prompt": facts.form.passage_prompt,
    }
    free = {name: value for name, value in settings.items() if not {"tokens", f"tokens.{name}"} & set(chosen)}
    data = recipe.tokens.model_copy(update=free).model_dump()
    if not data["titles"] and "tokens.title_join" not in chosen:
        data["title_join"] = "space"
    return override(recipe, {"tokens": data})
