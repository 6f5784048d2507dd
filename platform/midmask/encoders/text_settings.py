"""How texts are read and their vectors compared: title, prompts, lengths; as sentence-transformers' folders state it.

Each setting beside a folder's modules means what it means to version 6 of sentence-transformers, or is refused by name.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from midmask.core.config import Config, added
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


def refuse_cut_vectors(folder: Path) -> None:
    """Raises UserError if a folder keeps only some dimensions of its vectors."""
    if (dimensions := read_model_config(folder).get("truncate_dim")) is not None:
        raise UserError(
            f"{folder / MODEL_CONFIG}: truncate_dim = {dimensions}; midmask keeps all dimensions. Set it to null."
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


def read_json(path: Path, wanted: type) -> Any:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({str(error).splitlines()[0]}); save the model again") from None
    if not isinstance(content, wanted):
        raise UserError(f"{path}: a {type(content).__name__} instead of a {wanted.__name__}; save the model again")
    return content
