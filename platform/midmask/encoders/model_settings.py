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

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from midmask.core.config import Config, added, as_user_error
from midmask.encoders.reading import read_folder_settings, what_is_wrong
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.store.pretrained import transformer_folder
from midmask.text.vocabulary import TitleJoin, load_tokenizer

log = logging.getLogger(__name__)


class TextForm(Config):
    """The form of a model's texts (prompts, titles, case), as far as its folder states it."""

    titles: bool | None = Field(None, description="whether 'title text' is a passage; none: not known")
    title_join: TitleJoin = added("space", "how title and text are joined: space, separator or pair")
    query_prompt: str = Field("", description="words before each query")
    passage_prompt: str = Field("", description="words before each passage and its title")
    pools_prompt: bool = Field(True, description="whether a prompt's tokens take part in the pooling")

    @classmethod
    def of(cls, tokens: Mapping[str, Any]) -> "TextForm":
        """The form of the rows of a tokens artifact, from the config in its record; what that does not name has its
        default.
        """
        return cls(**{name: tokens[name] for name in cls.model_fields if name in tokens})


FILE = "midmask.json"
FORMAT = 3
"""2: with `form`; 3: with `TextForm.title_join`."""


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
    try:
        representation, form = Representation(), TextForm()
        if (folder / MODULES_FILE).is_file():
            representation, form = read_modules(folder)
        query, passage = read_lengths(folder)
        return ModelSettings(representation=representation, query_length=query, passage_length=passage, form=form)
    except ValidationError as error:
        raise as_user_error(error, str(folder)) from None
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise UserError(  # a JSON file of other types
            f"{folder}: {MODULES_FILE}, or a settings file that it names, has a value of another type than "
            f"sentence-transformers writes ({what_is_wrong(error)}); save the model again"
        ) from None


def _read_own(path: Path) -> ModelSettings:
    data = read_json(path, dict)
    version = data.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UserError(f"{path}: format = {version}, but this midmask knows {FORMAT}. Use a newer midmask.")
    try:
        return ModelSettings.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, str(path)) from None


def vector_width(folder: Path, named: str) -> int:
    """Width of a model's dense vectors: of its projection, else of its hidden states.

    Args:
        named: what the folder was given for, with its name, for the errors.

    Raises:
        UserError: if it holds no model or one without a dense vector, or as `read_facts`.
    """
    hidden, representation = read_folder_settings(folder, named), read_facts(folder).representation
    if representation.dense is None:
        raise UserError(f"{named}: it gives no dense vector of a text; name an encoder that gives one, such as minilm")
    return int(representation.width or hidden.hidden_size)


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

MODEL_CONFIG = "config_sentence_transformers.json"

QUERY_PROMPT, PASSAGE_PROMPT = "query", "document"
"""Names of the prompts of `encode_query` and `encode_document`. Version 6 adds both, as empty prompts, to the
prompts of every folder, so that neither method ever comes to `passage`, `corpus` or the default prompt.
"""

PADDED_POSITIONS = ("camembert", "mpnet", "roberta", "xlm-roberta")
"""Families whose first token takes the position behind the padding's."""

TRANSFORMER_SETTINGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the file with the settings of a Transformer; of several, the first one is read."""

HARMLESS = {"attn_implementation", "device_map", "dtype", "torch_dtype", "trust_remote_code"}
"""Arguments of transformers that change no vector, but for rounding, and need not be followed."""

TOKEN_STATES = "token_embeddings"
"""The key of the vectors of all tokens, which modules read and give."""

NO_LIMIT = 10**6
"""Tokenizers that know no limit say some number beyond all texts, such as 10^30."""


def read_modules(folder: Path) -> tuple[Representation, TextForm]:
    """The representation that a folder's modules compute, and the form of its texts.

    Raises:
        UserError: naming the module or setting that midmask cannot follow.
    """
    modules = modules_of(folder)
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
    if (dimensions := read_model_config(folder).get("truncate_dim")) is not None:
        raise UserError(
            f"{folder / MODEL_CONFIG}: truncate_dim = {dimensions}; midmask keeps all dimensions. Set it to null."
        )
    width = _read_dense(modules[2][1]) if "Dense" in kinds else None
    normalise = is_scored_by_cosine(folder, stated="Normalize" in kinds) or "Normalize" in kinds
    pools_prompt = bool(read_json(pooling / "config.json", dict).get("include_prompt", True))
    form = read_prompts(folder).model_copy(update={"pools_prompt": pools_prompt})
    return Representation(dense=_read_pooling(pooling), width=width, normalise=normalise), form


def modules_of(folder: Path) -> list[tuple[str, Path]]:
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


def refuse_other_transformer(folder: Path, *, task: str, output: str) -> None:
    """Raises UserError for settings of the module Transformer that midmask does not follow.

    Args:
        task: transformer_task of such a folder. output: name of the model's output that it reads.
    """
    path, settings = transformer_settings(folder)
    unsupported = [
        f"{name} = {settings[name]!r}"
        for name, usual in (("transformer_task", task), ("module_output_name", TOKEN_STATES))
        if settings.get(name) not in (None, usual)
    ]
    modalities = settings.get("modality_config") or {"text": {}}
    outputs = {"method": "forward", "method_output_name": output}
    if list(modalities) != ["text"] or not dict(modalities["text"]).items() <= outputs.items():
        unsupported.append(f"modality_config = {modalities!r}")
    for name in ("model", "tokenizer", "processor", "config"):
        for values in (settings.get(f"{name}_args"), settings.get(f"{name}_kwargs")):
            unsupported += [
                f"{name}_args.{key} = {value!r}" for key, value in (values or {}).items() if key not in HARMLESS
            ]
    processing = settings.get("processing_kwargs") or {}
    unsupported += [f"processing_kwargs.{key}" for key in ("common", "text") if processing.get(key)]
    if unsupported:
        raise UserError(f"{path}: {', '.join(unsupported)}; midmask does not follow this.")


def read_lengths(folder: Path) -> tuple[int | None, int | None]:
    """Tokens of the longest query and of the longest passage that a folder's model reads: from its
    sentence-transformers settings, else from its tokenizer, and at most its positions; None if no file has it.

    Raises:
        UserError: for settings that treat letter case otherwise than the tokenizer.
    """
    path, settings = transformer_settings(folder)
    if settings.get("do_lower_case"):
        normaliser = load_tokenizer(folder).backend_tokenizer.normalizer
        if normaliser is None or normaliser.normalize_str("A") != "a":
            raise UserError(
                f"{path}: do_lower_case = true, but the tokenizer beside it keeps case. Lower the texts first."
            )
    # Since version 5.4 the length is the tokenizer's.
    tokenizer = _read_if_there(transformer_folder(folder) / "tokenizer_config.json")
    longest = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    positions = _positions(folder)
    query, passage = (
        min(
            (int(limit) for limit in (settings.get(name) or longest, positions) if limit and limit < NO_LIMIT),
            default=None,
        )
        for name in ("query_length", "document_length")
    )
    return query, passage


def transformer_settings(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """The file with the settings of the module Transformer, and these; no file: none, and no settings."""
    places = (transformer_folder(folder) / name for name in TRANSFORMER_SETTINGS)
    path = next((place for place in places if place.is_file()), None)
    return path, {} if path is None else read_json(path, dict)


def _positions(folder: Path) -> int | None:
    """Tokens for which the model has positions; None without a table of them."""
    config = _read_if_there(transformer_folder(folder) / "config.json")
    count = config.get("max_position_embeddings")
    if not isinstance(count, int) or count < 1:
        return None
    taken = config.get("pad_token_id", 1) + 1 if config.get("model_type") in PADDED_POSITIONS else 0
    return count - int(taken)


def read_prompts(folder: Path) -> TextForm:
    """The prompts of queries and passages; empty ones where the folder has none of these names.

    Raises:
        UserError: for a default prompt that is not among the prompts, which sentence-transformers refuses too.
    """
    settings = read_model_config(folder)
    prompts: Mapping[str, Any] = settings.get("prompts") or {}
    default = str(settings.get("default_prompt_name") or "")
    if default and default not in {QUERY_PROMPT, PASSAGE_PROMPT, *prompts}:
        raise UserError(
            f"{folder / MODEL_CONFIG}: default_prompt_name = {default!r} is none of its prompts: {', '.join(prompts)}"
        )
    return TextForm(
        query_prompt=str(prompts.get(QUERY_PROMPT) or ""), passage_prompt=str(prompts.get(PASSAGE_PROMPT) or "")
    )


def is_scored_by_cosine(folder: Path, *, stated: bool) -> bool:
    """Whether vectors are compared by the cosine: if the folder says so, or nothing, as in sentence-transformers.

    Args:
        stated: whether its modules give vectors length 1 anyway.
    """
    similarity = read_model_config(folder).get("similarity_fn_name")
    if similarity not in (None, "dot", "cosine"):
        raise UserError(
            f"{folder / MODEL_CONFIG}: similarity_fn_name = {similarity!r}; midmask scores by dot or cosine."
        )
    if similarity is None and not stated:
        log.info(
            "%s states no similarity: its vectors are compared by the cosine, as sentence-transformers does", folder
        )
    return similarity != "dot"


def read_model_config(folder: Path) -> dict[str, Any]:
    return _read_if_there(folder / MODEL_CONFIG)


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_json(path, dict) if path.is_file() else {}


def read_json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({str(error).splitlines()[0]}); save the model again") from None
    if not isinstance(content, kind):
        raise UserError(f"{path}: a {type(content).__name__} instead of a {kind.__name__}; save the model again")
    return content
