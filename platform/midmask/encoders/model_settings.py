"""How a folder's model reads and represents a text, as far as its files state it.

midmask.json        of a folder that midmask wrote: a `ModelSettings`, which says everything
modules.json        of sentence-transformers, any version from 2 on: read by `foreign`
neither             a plain Hugging Face folder: the vector of [CLS], as RetroMAE, coCondenser and DPR take it, of
                    texts as long as the tokenizer and the position table allow
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from midmask.encoders import foreign
from midmask.encoders.damage import library_reading, refuse_not_finite, what_is_wrong
from midmask.encoders.foreign_settings import hidden_size, longest_text, read_lengths
from midmask.encoders.reading import read_settings
from midmask.encoders.representation import Representation
from midmask.encoders.text_form import TextForm
from midmask.errors import UserError
from midmask.identity import Config, as_user_error

FILE = "midmask.json"
FORMAT = 3
"""2: with `form`; 3: with `TextForm.title_join`."""
PROJECTION = "2_Dense"
"""Where a projection's weights are, as sentence-transformers lays them out."""


class ModelSettings(Config):
    """Settings of a model's training: its views of a text, the form of the texts, and how many tokens it read."""

    format: int = Field(FORMAT, ge=1, description="version of this file's layout")
    representation: Representation = Field(description="which views of a text are scored")
    query_length: int | None = Field(None, ge=1, description="tokens of the longest query; none: not known")
    passage_length: int | None = Field(None, ge=1, description="tokens of the longest passage; none: not known")
    form: TextForm = Field(default_factory=TextForm, description="how texts are written before they are tokenised")

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", "utf-8")


def read_facts(folder: Path) -> ModelSettings:
    """Reads the facts about a model from its folder's files.

    Raises:
        UserError: if they say what midmask cannot do, or cannot be read.
    """
    if (folder / FILE).is_file():
        return _read_own(folder / FILE)
    if (folder / foreign.FILE).is_file():
        with _refuse_foreign_settings(folder):
            representation, form = foreign.read_modules(folder)
            query, passage = read_lengths(folder)
            return ModelSettings(representation=representation, query_length=query, passage_length=passage, form=form)
    with _refuse_foreign_settings(folder):
        length = longest_text(folder)
        return ModelSettings(representation=Representation(), query_length=length, passage_length=length)


@contextmanager
def _refuse_foreign_settings(folder: Path) -> Iterator[None]:
    """What `foreign` meets in JSON files of other types than sentence-transformers writes becomes one line."""
    try:
        yield
    except ValidationError as error:
        raise as_user_error(error, str(folder)) from None
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise UserError(
            f"{folder}: {foreign.FILE}, or a settings file that it names, has a value of another type than "
            f"sentence-transformers writes ({what_is_wrong(error)}); save the model again"
        ) from None


def read_representation(folder: Path) -> Representation:
    """Which views of a text a folder's model was made for.

    Raises:
        UserError: as `read_facts`.
    """
    return read_facts(folder).representation


def view_widths(folder: Path) -> dict[str, int]:
    """Dimensions of each view that a folder's model gives: `dense`, `lexical`, `late`.

    Raises:
        UserError: as `read_facts`; or if there is no config of a supported family.
    """
    representation, settings = read_representation(folder), read_settings(str(folder), 0.0)
    widths = {
        "dense": representation.width or int(settings.hidden_size),
        "lexical": int(settings.vocab_size),
        "late": representation.tokens or 0,
    }
    return {view: widths[view] for view in representation.views}


def read_projection(folder: Path) -> Tensor | None:
    """The projection of the dense view or of all tokens, float32 [width, D]; none if there is none.

    Raises:
        UserError: as `read_facts`; or if its weights are missing or of another shape.
    """
    width = read_representation(folder).projected
    if width is None:
        return None
    own = (folder / FILE).is_file()
    with _refuse_foreign_settings(folder):
        dense, hidden = (folder / PROJECTION, width) if own else foreign.read_dense(folder), hidden_size(folder)
    if dense is None:  # dimensions are left out, by `truncate_dim`
        return torch.eye(width, hidden or width)
    place, outputs = dense
    weight = _read_weight(place)
    if weight.ndim != 2 or len(weight) != outputs or weight.shape[1] != (hidden or weight.shape[1]):
        raise UserError(
            f"{place}: a projection of shape {tuple(weight.shape)}, but the folder says width = {outputs}"
            + (f", of {hidden} columns" if hidden else "")
        )
    return weight[:width].contiguous()


def _read_weight(place: Path) -> Tensor:
    """The weight of a linear layer as sentence-transformers saves it. A pickle may hold tensors, and runs no code."""

    def unreadable(reason: str) -> UserError:
        return UserError(f"{place}: no projection can be read there ({reason}); save the model again")

    with library_reading(unreadable):
        if (place / "model.safetensors").is_file():
            weights = safetensors.torch.load_file(place / "model.safetensors")
        else:
            weights = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
        weight: Tensor = weights["linear.weight"]
        weight = weight.float()
    refuse_not_finite(place, [("linear.weight", weight)])
    return weight


def _read_own(path: Path) -> ModelSettings:
    try:
        data: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({what_is_wrong(error)}); save the model again") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: a {type(data).__name__} instead of an object; save the model again")
    version = data.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UserError(f"{path}: format = {version}, but this midmask knows {FORMAT}. Use a newer midmask.")
    try:
        return ModelSettings.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, str(path)) from None
