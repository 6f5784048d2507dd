"""A model folder from elsewhere in a recipe's place: its texts are written and cut as its own files state."""

import logging
from collections.abc import Collection
from pathlib import Path

from midmask.encoders.damage import refuse_no_model
from midmask.encoders.foreign_settings import reading_notes
from midmask.encoders.model_settings import FILE, read_facts
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.pretrained import model_folder
from midmask.retrieve.models import refuse_unfit

log = logging.getLogger(__name__)

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
    notes = {} if (folder / FILE).is_file() else reading_notes(folder)
    for field, note in notes.items():
        if not {"tokens", field} & set(chosen):
            log.warning("%s", note)
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
