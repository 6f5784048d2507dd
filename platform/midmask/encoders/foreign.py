"""Folders of sentence-transformers: which `Representation` their modules amount to.

    SentenceTransformer    Transformer, Pooling [cls or mean], [Dense without bias and activation], [Normalize]
    SparseEncoder          Transformer for fill-mask (formerly MLMTransformer), SpladePooling [max, relu]
    MultiVectorEncoder     Transformer, Dense without bias and activation, MultiVectorMask, Normalize, all of tokens

All with the class paths and the config keys of versions 2 to 6. Everything else is refused by its module's name. The
settings beside the modules give the longest text, the prompts before queries and passages, and the similarity.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from midmask.encoders.representation import Representation
from midmask.encoders.text_form import TextForm
from midmask.errors import UserError
from midmask.vocabulary import load_tokenizer

log = logging.getLogger(__name__)

FILE = "modules.json"
SETTINGS = "config_sentence_transformers.json"

QUERY_PROMPTS, PASSAGE_PROMPTS = ("query",), ("document", "passage", "corpus")
"""Names of prompts before queries and before passages; of several, the first one that a folder has."""

PADDED_POSITIONS = ("camembert", "mpnet", "roberta", "xlm-roberta")
"""Families whose first token takes the position behind the padding's."""

KNOWN = (
    "Transformer, Pooling, Dense, Normalize; or Transformer (fill-mask), SpladePooling; or Transformer, Dense, "
    "MultiVectorMask, Normalize"
)
TOKEN_STATES = "token_embeddings"
"""The key of the vectors of all tokens, which modules read and give."""

NO_LIMIT = 10**6
"""Tokenizers that know no limit say some number beyond all texts, such as 10^30."""

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
        return _splade(folder, modules[1][1]), _read_prompts(folder)
    if kinds == ["Transformer", "Dense", "MultiVectorMask", "Normalize"]:
        return _late(folder, *(place for _, place in modules[1:])), _read_prompts(folder)
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in (
        [],
        ["Dense"],
        ["Normalize"],
        ["Dense", "Normalize"],
    ):
        raise UserError(
            f"{folder / FILE}: its modules are {', '.join(kinds)}, but midmask follows {KNOWN}, in this order."
        )
    width = _read_dense(modules[2][1], "sentence_embedding") if "Dense" in kinds else None
    normalise = _is_scored_by_cosine(folder) or "Normalize" in kinds
    pooling = modules[1][1]
    pools_prompt = bool(_read(pooling / "config.json", dict).get("include_prompt", True))
    form = _read_prompts(folder).model_copy(update={"pools_prompt": pools_prompt})
    return Representation(dense=_read_pooling(pooling), width=width, normalise=normalise), form


def dense_folder(folder: Path) -> Path:
    """Where a folder's Dense module has its weights, of those `read_modules` accepts."""
    return next(place for kind, place in _modules(folder) if kind == "Dense")


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module, in order."""
    found: list[tuple[str, Path]] = []
    for module in _read(folder / FILE, list):
        kind, path = str(module.get("type")), str(module.get("path", ""))
        package, _, name = kind.rpartition(".")
        if not package.startswith("sentence_transformers."):
            raise UserError(f"{folder / FILE}: module {kind} is not of sentence-transformers itself. Known: {KNOWN}.")
        found.append((name, folder / path))
    if not found or found[0][1] != folder:
        raise UserError(
            f"{folder / FILE}: its first module is not in the folder itself. Load it in sentence-transformers and save "
            "it again."
        )
    return found


def read_lengths(folder: Path) -> tuple[int | None, int | None]:
    """Tokens of the longest query and of the longest passage that a folder's model reads; None if no file has it.

    Raises:
        UserError: as `longest_text`.
    """
    longest, settings = longest_text(folder), _transformer_settings(folder)[1]
    query, passage = (
        min((length for length in (settings.get(name), longest) if length), default=None)
        for name in ("query_length", "document_length")
    )
    return query, passage


def longest_text(folder: Path) -> int | None:
    """Tokens of the longest text that a folder's model reads: from its sentence-transformers settings, else from its
    tokenizer, and at most its number of positions; None if no file has it.

    Raises:
        UserError: for settings that treat letter case otherwise than the tokenizer.
    """
    path, settings = _transformer_settings(folder)
    if settings.get("do_lower_case"):
        normaliser = load_tokenizer(folder).backend_tokenizer.normalizer
        if normaliser is None or normaliser.normalize_str("A") != "a":
            raise UserError(
                f"{path}: do_lower_case = true, but the tokenizer beside it keeps case. Lower the texts first."
            )
    # Since version 5.4 the length is the tokenizer's.
    tokenizer = _read_if_there(folder / "tokenizer_config.json")
    length = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    limits = [int(length) if length and length < NO_LIMIT else None, _positions(folder)]
    return min((limit for limit in limits if limit is not None), default=None)


def _transformer_settings(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """The file with the settings of the module Transformer, and these; no file: none, and no settings."""
    path = next(iter(sorted(folder.glob("sentence_*_config.json"))), None)
    return path, {} if path is None else _read(path, dict)


def _positions(folder: Path) -> int | None:
    """Tokens for which the model has positions; None without a table of them."""
    config = _read_if_there(folder / "config.json")
    count = config.get("max_position_embeddings")
    if not isinstance(count, int) or count < 1:
        return None
    taken = config.get("pad_token_id", 1) + 1 if config.get("model_type") in PADDED_POSITIONS else 0
    return count - int(taken)


def _read_prompts(folder: Path) -> TextForm:
    """The prompts of queries and passages: those of their names, also empty ones; else the default prompt."""
    settings = _settings(folder)
    prompts: Mapping[str, Any] = settings.get("prompts") or {}
    default = prompts.get(str(settings.get("default_prompt_name"))) or ""

    def prompt(names: tuple[str, ...]) -> str:
        return str(next((prompts[name] for name in names if prompts.get(name) is not None), default))

    return TextForm(query_prompt=prompt(QUERY_PROMPTS), passage_prompt=prompt(PASSAGE_PROMPTS))


def _is_scored_by_cosine(folder: Path) -> bool:
    """Whether the folder itself says that vectors are compared by the cosine; old ones say nothing."""
    similarity = _settings(folder).get("similarity_fn_name")
    if similarity not in (None, "dot", "cosine"):
        raise UserError(f"{folder / SETTINGS}: similarity_fn_name = {similarity!r}; midmask scores by dot or cosine.")
    if similarity == "cosine":
        log.info("%s: its similarity is the cosine, so its vectors are given length 1", folder)
    return similarity == "cosine"


def _read_pooling(place: Path) -> Literal["cls", "mean"]:
    config = _read(place / "config.json", dict)
    old = [mode for key, mode in _MODES.items() if config.get(key)]
    modes = config.get("pooling_mode", old or ["mean"])
    modes = [modes] if isinstance(modes, str) else list(modes)
    if modes == ["cls"]:
        return "cls"
    if modes == ["mean"]:
        return "mean"
    raise UserError(f"{place / 'config.json'}: pooling {' + '.join(map(str, modes))}; midmask pools by cls or mean.")


def _read_dense(place: Path, key: str) -> int:
    """The width of a Dense, if it is a plain projection of the vectors under this key."""
    config = _read(place / "config.json", dict)
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    read = config.get("module_input_name") or key
    names = {read, config.get("module_output_name") or read}
    faults = [
        *(["a bias"] if config.get("bias", True) else []),
        *([f"the activation {activation}"] if activation != "Identity" else []),
        *(["a residual"] if config.get("use_residual") else []),
        *(["inputs or outputs of its own"] if names != {key} else []),
    ]
    if faults:
        raise UserError(
            f"{place / 'config.json'}: a Dense with {', '.join(faults)}; midmask does not support this. To "
            "use the vectors before this Dense, remove it from modules.json in a copy of the folder, and fine-tune."
        )
    return int(config["out_features"])


def _splade(folder: Path, place: Path) -> Representation:
    config = _read(place / "config.json", dict)
    asked = (config.get("pooling_strategy", "max"), config.get("activation_function", "relu"))
    if asked != ("max", "relu"):
        raise UserError(
            f"{place / 'config.json'}: SpladePooling by {asked[0]} of {asked[1]}; midmask supports only max of relu."
        )
    if _settings(folder).get("similarity_fn_name") not in (None, "dot"):
        raise UserError(f"{folder / SETTINGS}: midmask scores lexical views by dot, not by the similarity named there.")
    terms = _settings(folder).get("max_active_dims")
    return Representation(dense=None, lexical="splade", query_terms=terms, passage_terms=terms)


def _late(folder: Path, dense: Path, mask: Path, normalise: Path) -> Representation:
    """The token vectors of a MultiVectorEncoder's modules, if all tokens are scored and none is added."""
    scored, unit = (_read(place / "config.json", dict) for place in (mask, normalise))
    faults = [
        *(["skiplist_words"] if scored.get("skiplist_words") else []),
        *(["keep_only_token_ids"] if scored.get("keep_only_token_ids") else []),
        *(["query_expansion"] if _transformer_settings(folder)[1].get("query_expansion") else []),
        *(["a Normalize of whole texts"] if unit.get("module_input_name") != TOKEN_STATES else []),
        *(["similarity meanmaxsim"] if _settings(folder).get("similarity_fn_name") == "meanmaxsim" else []),
    ]
    if faults:
        raise UserError(
            f"{folder / FILE}: a MultiVectorEncoder with {', '.join(faults)}; midmask scores all tokens of a text, and "
            "no others, by maxsim. Train one here: --protocol in_batch_late."
        )
    return Representation(dense=None, tokens=_read_dense(dense, TOKEN_STATES))


def _settings(folder: Path) -> dict[str, Any]:
    return _read_if_there(folder / SETTINGS)


def _read_if_there(path: Path) -> dict[str, Any]:
    return _read(path, dict) if path.is_file() else {}


def _read(path: Path, wanted: type) -> Any:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({str(error).splitlines()[0]}); save the model again") from None
    if not isinstance(content, wanted):
        raise UserError(f"{path}: a {type(content).__name__} instead of a {wanted.__name__}; save the model again")
    return content
