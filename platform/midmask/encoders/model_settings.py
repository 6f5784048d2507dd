"""How a folder's model reads and represents a text, as far as its files state it.

midmask.json        of a folder that midmask wrote: a `ModelSettings`, which says everything
modules.json        of sentence-transformers, any version from 2 on: the `Representation` its modules amount to
neither             a plain Hugging Face folder: the vector of [CLS], as RetroMAE, coCondenser and DPR take it, of
                    texts as long as the tokenizer and the position table allow

Modules of sentence-transformers that are understood:

    SentenceTransformer    Transformer, Pooling [cls or mean], [Dense without bias and activation], [Normalize]
    SparseEncoder          Transformer for fill-mask (formerly MLMTransformer), SpladePooling [max, relu]

All with the class paths and the config keys of versions 0 to 6; the Transformer may lie in a subfolder. Everything else
is refused by its module's name. The settings beside the modules give the longest text, the prompts before queries and
passages, and the similarity; each means what it means to version 6.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from midmask.core.config import Config, as_user_error
from midmask.encoders.reading import library_reading, read_settings, refuse_not_finite, what_is_wrong
from midmask.encoders.representation import Representation
from midmask.encoders.text_settings import (
    MODEL_CONFIG,
    TextForm,
    is_scored_by_cosine,
    read_json,
    read_lengths,
    read_model_config,
    read_prompts,
    refuse_cut_vectors,
    refuse_other_transformer,
)
from midmask.errors import UserError

MODULES_FILE = "modules.json"

KNOWN_MODULES = "Transformer, Pooling, Dense, Normalize; or Transformer (fill-mask), SpladePooling"

SENTENCE_VECTOR = "sentence_embedding"
"""The key of the vector of a whole text, which modules read and give."""

_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Keys of a Pooling before version 5.4, and what the key `pooling_mode` says now."""


def read_modules(folder: Path) -> tuple[Representation, TextForm]:
    """The representation that a folder's modules compute, and the form of its texts.

    Raises:
        UserError: naming the module or setting that midmask cannot follow.
    """
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        refuse_other_transformer(folder, task="fill-mask", output="logits")
        return _splade(folder, modules[1][1]), read_prompts(folder)
    refuse_other_transformer(folder, task="feature-extraction", output="last_hidden_state")
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in (
        [],
        ["Dense"],
        ["Normalize"],
        ["Dense", "Normalize"],
    ):
        raise UserError(
            f"{folder / MODULES_FILE}: its modules are {', '.join(kinds)}, "
            f"but midmask follows {KNOWN_MODULES}, in this order."
        )
    pooling = modules[1][1]
    refuse_cut_vectors(folder)
    width = _read_dense(modules[2][1]) if "Dense" in kinds else None
    normalise = is_scored_by_cosine(folder, stated="Normalize" in kinds) or "Normalize" in kinds
    pools_prompt = bool(read_json(pooling / "config.json", dict).get("include_prompt", True))
    form = read_prompts(folder).model_copy(update={"pools_prompt": pools_prompt})
    return Representation(dense=_read_pooling(pooling), width=width, normalise=normalise), form


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module, in order."""
    modules: list[tuple[str, Path]] = []
    for module in read_json(folder / MODULES_FILE, list):
        kind, path = str(module.get("type")), str(module.get("path", ""))
        package, _, name = kind.rpartition(".")
        if not package.startswith("sentence_transformers."):
            raise UserError(
                f"{folder / MODULES_FILE}: module {kind} is not of sentence-transformers itself. "
                f"Known: {KNOWN_MODULES}."
            )
        if not (folder / path).resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{folder / MODULES_FILE}: module {kind} lies outside of the folder, at {path}.")
        modules.append((name, folder / path))
    if not modules or not modules[0][1].is_dir():
        missing = f"{modules[0][1]}, the folder of the first module, is missing" if modules else "it names no module"
        raise UserError(f"{folder / MODULES_FILE}: {missing}. Copy or download the whole model folder again.")
    return modules


def _read_pooling(place: Path) -> Literal["cls", "mean"]:
    config = read_json(place / "config.json", dict)
    old = [mode for key, mode in _MODES.items() if config.get(key)]
    modes = config.get("pooling_mode", old or ["mean"])
    modes = [modes] if isinstance(modes, str) else list(modes)
    if modes == ["cls"]:
        return "cls"
    if modes == ["mean"]:
        return "mean"
    raise UserError(f"{place / 'config.json'}: pooling {' + '.join(map(str, modes))}; midmask pools by cls or mean.")


def _read_dense(place: Path) -> int:
    """The width of a Dense, if it is a plain projection of whole texts' vectors."""
    config = read_json(place / "config.json", dict)
    named = str(config.get("activation_function"))  # one that is not torch's is replaced by the default
    activation = named.rpartition(".")[2] if named.startswith("torch.") else "Tanh"
    names = {config.get(name) or SENTENCE_VECTOR for name in ("module_input_name", "module_output_name")}
    faults = [
        *(["a bias"] if config.get("bias", True) else []),
        *([f"the activation {activation}"] if activation != "Identity" else []),
        *(["a residual"] if config.get("use_residual") else []),
        *(["inputs or outputs of its own"] if names != {SENTENCE_VECTOR} else []),
    ]
    if faults:
        raise UserError(
            f"{place / 'config.json'}: a Dense with {', '.join(faults)}; midmask does not support this. To "
            "use the vectors before this Dense, remove it from modules.json in a copy of the folder, and fine-tune."
        )
    return int(config["out_features"])


def _splade(folder: Path, place: Path) -> Representation:
    config = read_json(place / "config.json", dict)
    modes = (config.get("pooling_strategy", "max"), config.get("activation_function", "relu"))
    if modes != ("max", "relu"):
        raise UserError(
            f"{place / 'config.json'}: SpladePooling by {modes[0]} of {modes[1]}; midmask supports only max of relu."
        )
    if read_model_config(folder).get("similarity_fn_name") not in (None, "dot"):
        raise UserError(
            f"{folder / MODEL_CONFIG}: midmask scores lexical views by dot, not by the similarity named there."
        )
    terms = read_model_config(folder).get("max_active_dims")
    return Representation(dense=None, lexical="splade", query_terms=terms, passage_terms=terms)


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
    with _refuse_foreign_settings(folder):
        representation, form = Representation(), TextForm()
        if (folder / MODULES_FILE).is_file():
            representation, form = read_modules(folder)
        query, passage = read_lengths(folder)
        return ModelSettings(representation=representation, query_length=query, passage_length=passage, form=form)


@contextmanager
def _refuse_foreign_settings(folder: Path) -> Iterator[None]:
    """A JSON file of other types than sentence-transformers writes becomes one line."""
    try:
        yield
    except ValidationError as error:
        raise as_user_error(error, str(folder)) from None
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise UserError(
            f"{folder}: {MODULES_FILE}, or a settings file that it names, has a value of another type than "
            f"sentence-transformers writes ({what_is_wrong(error)}); save the model again"
        ) from None


def view_widths(folder: Path) -> dict[str, int]:
    """Dimensions of each view that a folder's model gives: `dense`, `lexical`, `late`.

    Raises:
        UserError: as `read_facts`; or if there is no config of a supported family.
    """
    representation, settings = read_facts(folder).representation, read_settings(str(folder), 0.0)
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
    width = read_facts(folder).representation.projected
    if width is None:
        return None
    is_ours = (folder / FILE).is_file()
    place = folder / PROJECTION if is_ours else next(place for kind, place in _modules(folder) if kind == "Dense")
    weight = _read_weight(place)
    if weight.ndim != 2 or len(weight) != width:
        raise UserError(
            f"{place}: a projection of shape {tuple(weight.shape)}, but the folder says width = {width}; save the "
            "model again"
        )
    return weight


def _read_weight(place: Path) -> Tensor:
    """The weight of a linear layer as sentence-transformers saves it. A pickle may hold tensors, and runs no code."""
    with library_reading(place, "projection"):
        if (place / "model.safetensors").is_file():
            weights = safetensors.torch.load_file(place / "model.safetensors")
        else:
            weights = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
        weight: Tensor = weights["linear.weight"]
        weight = weight.float()
    refuse_not_finite(place, [("linear.weight", weight)])
    return weight


def _read_own(path: Path) -> ModelSettings:
    data = read_json(path, dict)
    version = data.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UserError(f"{path}: format = {version}, but this midmask knows {FORMAT}. Use a newer midmask.")
    try:
        return ModelSettings.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, str(path)) from None
