"""Masked LMs of transformers, read from a folder or made afresh; a damaged or foreign folder becomes one line."""

import inspect
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, BertConfig
from transformers.utils import logging as hf_logging

from midmask.encoders.families import FAMILIES
from midmask.errors import UserError
from midmask.store.pretrained import model_folder, transformer_folder
from midmask.text.vocabulary import copy_untruncated, load_tokenizer, save_tokenizer

log = logging.getLogger(__name__)


WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files of weights that transformers reads, the preferred one first; sharded ones have an index of this name."""

OTHER_WEIGHTS = ("*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.gguf", "*.pt", "*.ckpt*", "*.onnx", "onnx/*.onnx")
"""Files that may be weights, but not under a name or in a format that is read."""

FLOATS = ("F64", "F32", "F16", "BF16", "torch.float64", "torch.float32", "torch.float16", "torch.bfloat16")
"""Types of numbers that weights may have, as safetensors and as torch write them."""

WRAPPERS = {
    "module.": "DataParallel or DistributedDataParallel wrote them: save the model inside, "
    "model.module.save_pretrained(FOLDER)",
    "_orig_mod.": "torch.compile wrote them: save the model inside, model._orig_mod.save_pretrained(FOLDER)",
    "auto_model.": "a whole SentenceTransformer's state_dict has them: save it with model.save(FOLDER)",
}
"""Part of a prefix before the names of all tensors -> who writes it, and how to save the model without."""

NAMES = 3
"""Names that a message lists at most."""


@contextmanager
def library_reading(told: Callable[[str], UserError]) -> Iterator[None]:
    """Context for a library's call that reads a folder, and for nothing else: its exceptions become `told(reason)`.

    All of them, since no list is complete: transformers raises TypeError, KeyError, ZeroDivisionError, AssertionError,
    … of one field or another, tokenizers `Exception` itself.
    """
    try:
        yield
    except Exception as error:
        raise told(what_is_wrong(error)) from None


def what_is_wrong(error: BaseException) -> str:
    """The first line of a library's exception that is not empty, or its type."""
    if isinstance(error, UnpicklingError):
        return "its pickle holds more than tensors, which could run code"
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    told_by_type = isinstance(error, OSError | ValueError | SafetensorError) and text
    return text[:300] if told_by_type else f"{type(error).__name__}: {text[:300]}".rstrip(": ")


def refuse_not_finite(name: object, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raises UserError naming the first tensor with a NaN or an infinity, and how many there are."""
    bad = [key for key, weight in weights if weight.is_floating_point() and not torch.isfinite(weight).all()]
    if bad:
        raise UserError(
            f"{name}: the weight {bad[0]} has values that are not finite (NaN or infinity; {len(bad)} such weights), "
            "which would spoil every vector; train or save the model again"
        )


def refuse_no_model(named: str, folder: Path) -> None:
    """Raises UserError if a folder holds no Hugging Face model: the message says what it holds, and what to name.

    Args:
        named: what the folder was given for, with its name.
    """
    place, unread = transformer_folder(folder), f"{named}: no model can be read there"
    if not folder.is_dir():
        raise UserError(f"{unread}: no such folder")
    if (place / "adapter_config.json").is_file():
        raise UserError(
            f"{unread}: adapter_config.json makes it an adapter of another model (LoRA and its kind), which is not "
            "applied here. Merge both (peft: merge_and_unload) and save the result with save_pretrained."
        )
    above = folder.resolve().parent
    if transformer_folder(above).resolve() == folder.resolve():
        raise UserError(
            f"{named}: the transformer alone of the sentence-transformers folder {above}, which states how its vectors "
            f"are made. Name {above}."
        )
    is_module = (above / "modules.json").is_file() and "model_type" not in _keys(place / "config.json")
    if is_module or not (place / "config.json").is_file():
        raise UserError(f"{unread}: no config.json{' of a model' if is_module else ''} in it; {_what_to_name(folder)}")


def _what_to_name(folder: Path) -> str:
    """What a folder without config.json holds, and which folder to name in its place."""
    below = [path.parent for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/modules.json"))]
    configs = [path for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/config.json"))]
    below += [path.parent for path in configs if "model_type" in _keys(path) and path.parent.parent not in below]
    if below:
        more = f" ({len(below)} subfolders hold a model)" if len(below) > NAMES else ""
        return f"the model lies in a subfolder: name {' or '.join(map(str, below[:NAMES]))}{more}."
    above = folder.resolve().parent
    if (above / "modules.json").is_file() or "model_type" in _keys(above / "config.json"):
        return f"it is a part of the model in {above}: name that folder."
    names = sorted(path.name for path in folder.iterdir())
    if weights := [name for name in names if name in WEIGHT_FILES]:
        return f"it holds {weights[0]}: put the config.json of the same model beside it."
    if any(name.lower() == "readme.md" for name in names):
        return (
            f"it holds a model card ({_listed(names)}) but no model: download the model's other files too, or name its "
            "hub id (OWNER/MODEL) with --allow-download."
        )
    held = f"it holds {_listed(names)}" if names else "it is empty"
    return f"{held}. Name a Hugging Face or sentence-transformers folder."


def _keys(path: Path) -> Collection[str]:
    """The keys of a JSON object; none if the file holds no object."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    return content.keys() if isinstance(content, dict) else ()


def _listed(names: Collection[str]) -> str:
    """The first names, and how many there are."""
    first = ", ".join(list(names)[:NAMES])
    return f"{first}, … ({len(names)})" if len(names) > NAMES else first


def refuse_unreadable_weights(named: str, place: Path) -> None:
    """Raises UserError if the files of a model's weights are missing, are pointers, or hold no floating-point numbers.

    Args:
        named: as in `refuse_no_model`. place: the folder with config.json.
    """
    files = _weight_files(named, place)
    for file in files:
        with file.open("rb") as stream:
            if stream.read(40).startswith(b"version https://git-lfs"):
                raise UserError(f"{named}: {file.name} is a pointer of Git LFS, not the weights. Type: git lfs pull")
    wrong = {
        name: kind
        for file in files
        for name, kind in _number_types(file).items()
        if kind not in FLOATS and name.endswith(("weight", "bias"))
    }
    if wrong:
        name, kind = next(iter(wrong.items()))
        raise UserError(
            f"{named}: {name} has the type {kind} ({len(wrong)} weights of such types): a quantised model, whose "
            "numbers mean nothing without their scales. Name the model that it was made of, in float32 or bfloat16."
        )


def _weight_files(named: str, place: Path) -> list[Path]:
    """The files that transformers reads the weights from; none for an index that it cannot read, which it refuses."""
    for name in WEIGHT_FILES:
        if (place / name).is_file():
            return [place / name]
        if (index := place / f"{name}.index.json").is_file():
            try:
                shards = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
                absent = [shard for shard in shards if not (place / shard).is_file()]
            except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
                return []
            if absent:
                raise UserError(
                    f"{named}: {len(absent)} of the {len(shards)} files of its weights are missing: {_listed(absent)}. "
                    "Copy or download them again."
                )
            return [place / shard for shard in shards]
    other = sorted(str(path.relative_to(place)) for pattern in OTHER_WEIGHTS for path in place.glob(pattern))
    raise UserError(
        f"{named}: no model can be read there: no weights of PyTorch ({' or '.join(WEIGHT_FILES)}) in it"
        + (f", only {_listed(list(dict.fromkeys(other)))}" if other else "")
        + ". Load the model where it was trained, and save it with save_pretrained."
    )


def _number_types(file: Path) -> dict[str, str]:
    """Name -> type of the numbers of each tensor in a file; nothing for a damaged file, which transformers refuses."""
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as stored:
                return {name: str(stored.get_slice(name).get_dtype()) for name in stored.keys()}
        saved = torch.load(file, map_location="meta", weights_only=True)
        return {name: str(value.dtype) for name, value in saved.items() if isinstance(value, Tensor)}
    except Exception:  # every library has its own; transformers meets the same next
        return {}


def refuse_other_weights(named: str, loading: dict[str, Any], expected: set[str], backbone: str) -> None:
    """Raises UserError if tensors of the backbone are missing or have other shapes, or the file has more layers.

    Args:
        loading: missing_keys, unexpected_keys and mismatched_keys, as transformers reports them. expected: names of all
            the model's tensors. backbone: prefix of those of its backbone; empty: all are.
    """
    if mismatched := sorted(loading["mismatched_keys"]):
        name, stored, shape = mismatched[0]
        raise UserError(
            f"{named}: {name} has the shape {list(stored)} in the file, but {list(shape)} by config.json "
            f"(weights of other shapes: {len(mismatched)}). Save the model again, with its own config.json."
        )
    lost = sorted(key for key in loading["missing_keys"] if key.startswith(backbone) and "pooler." not in key)
    unexpected = sorted(loading["unexpected_keys"])
    if lost:
        whole = sum(key.startswith(backbone) and "pooler." not in key for key in expected)
        why = _why_lost([key.removeprefix(backbone) for key in lost], expected, unexpected, backbone)
        raise UserError(
            f"{named}: the file holds no {', '.join(lost[:NAMES])} ({len(lost)} of {whole} weights are missing, "
            f"which would be random). {why}"
        )
    patterns = {_LAYER.sub("#", key.removeprefix(backbone)) for key in expected}
    unused = [key for key in unexpected if _LAYER.search(key) and _is_of_layer(key.removeprefix(backbone), patterns)]
    if unused:
        layers = 1 + max(int(_LAYER.findall(key)[0]) for key in unused)
        raise UserError(
            f"{named}: the file holds more layers than config.json names ({len(unused)} weights would not be used, "
            f"such as {unused[0]}). Set num_hidden_layers = {layers}, or save the smaller model again."
        )


_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


def _is_of_layer(key: str, patterns: set[str]) -> bool:
    """Whether a tensor that the model lacks is one of a layer beyond its last."""
    return _LAYER.sub("#", key) in patterns or re.match(r"(encoder\.|transformer\.)?layers?\.\d", key) is not None


def _why_lost(lost: list[str], expected: set[str], unexpected: list[str], backbone: str) -> str:
    """Why a file lacks tensors, as far as its names show it, and what to do about it.

    Args:
        lost: names without `backbone`.
    """
    for key in unexpected:
        prefix = key.removesuffix(lost[0])
        if f".{prefix}".endswith(f".{backbone}"):
            prefix = prefix.removesuffix(backbone)
        if prefix.endswith(".") and key.endswith(lost[0]):
            usual = "another module around the model has them: save the model inside, MODEL.save_pretrained(FOLDER)"
            writer = next((text for part, text in WRAPPERS.items() if part in prefix), usual)
            return f"Its names begin with {prefix!r}; {writer}."
    kept = [key for key in expected if key.removeprefix(backbone) not in lost]
    missing, present = ([int(_LAYER.findall(key)[0]) for key in keys if _LAYER.search(key)] for keys in (lost, kept))
    layers = max(present, default=-1) + 1
    if len(missing) == len(lost) and min(missing) >= layers:
        return (
            f"config.json names {max(missing) + 1} layers, the file holds {layers}: set num_hidden_layers = {layers}."
        )
    other = f"It holds others, such as {unexpected[0]}. " if unexpected else ""
    return f"{other}Save the model again with save_pretrained."


TYPES = "token_type_ids"

SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "base": (12, 768)}
"""Layers and width of BERT models from scratch; one attention head per 64 columns, feed-forward width 4 x width."""


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars and no table of missing weights from transformers; what matters in it is reported here."""
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity(hf_logging.CRITICAL)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


def _sized_settings(size: str, dropout: float) -> Any:
    layers, width = SIZES[size]
    return BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=512,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.02 * (768 / width) ** 0.5,  # BERT's 0.02 is for width 768; narrower layers would start mute
    )


def fresh_model(settings: Any) -> Any:
    """Random weights, as transformers draws them for the family."""
    attention = FAMILIES[settings.model_type].attention
    return AutoModelForMaskedLM.from_config(settings, attn_implementation=attention, dtype=torch.float32)


def read_settings(name: str, dropout: float, vocabulary: int | None = None, pad_id: int | None = None) -> Any:
    """The Hugging Face config of one of `SIZES`, or of a folder or hub id, with the wanted dropout.

    Args:
        vocabulary: entries of one of `SIZES`, and the padding's id; none: BERT's.

    Raises:
        UserError: if there is none, or its family is not supported.
    """
    if name in SIZES:
        settings = _sized_settings(name, dropout)
        if vocabulary is not None:
            settings.vocab_size, settings.pad_token_id = vocabulary, pad_id
        return settings
    settings = read_folder_settings(named_folder(name), f"backbone.name = {name!r}")
    for field in FAMILIES[settings.model_type].dropouts:
        setattr(settings, field, dropout)
    return settings


def read_folder_settings(folder: Path, named: str) -> Any:
    """The Hugging Face config of a folder, of any family; raises UserError as `refuse_no_model`."""
    refuse_no_model(named, folder)
    with library_reading(partial(unreadable, named)):
        return AutoConfig.from_pretrained(transformer_folder(folder), trust_remote_code=False)


def read_model(name: str, dropout: float) -> tuple[Any, bool]:
    """The masked LM of a folder or hub id, and whether its head is fresh, since none is there.

    Raises:
        UserError: if there is no model of a supported family; or as `read_pretrained`.
    """
    settings = read_settings(name, dropout)
    options = {"config": settings, "attn_implementation": FAMILIES[settings.model_type].attention}
    folder, named = named_folder(name), f"backbone.name = {name!r}"
    model, loading = read_pretrained(AutoModelForMaskedLM, folder, named, **options)
    if getattr(settings, "legacy", False) and any("lm_predictions." in key for key in loading["unexpected_keys"]):
        settings.legacy = False  # the MLM head that DeBERTa was published with; transformers makes another unless told
        model, loading = read_pretrained(AutoModelForMaskedLM, folder, named, **options)
    if missing := loading["missing_keys"]:
        log.info("%s holds no MLM head; a fresh one is made (%s)", name, count_fresh(model, missing))
    return model, bool(missing)


def read_base_model(folder: Path, named: str) -> Any:
    """The base model of a folder, of any architecture that transformers has, without a pooler if it knows the argument.

    Raises:
        UserError: as `read_pretrained`.
    """
    settings = read_folder_settings(folder, named)
    with library_reading(partial(unreadable, named)):
        classes = AutoModel._model_mapping[type(settings)]
        takes = inspect.signature((classes[0] if isinstance(classes, tuple) else classes).__init__).parameters
    pooler = {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}
    return read_pretrained(AutoModel, folder, named, **pooler)[0]


def read_pretrained(kind: Any, folder: Path, named: str, **wanted: Any) -> tuple[Any, dict[str, Any]]:
    """A Hugging Face model with the weights of a folder, and what transformers reports of the reading. Only weights of
    a head may be missing in the folder and thus be fresh: those that are not the base model's, and poolers. Runs no
    code of the folder.

    Args:
        kind: the class of transformers that reads it. named: what the folder was given for, with its name, for the
            errors. wanted: further arguments of `from_pretrained`; without dtype,
            in float32.

    Raises:
        UserError: if there is no such model, or weights of its backbone are missing, quantised, not finite, of other
            shapes than config.json says, or of more layers.
    """
    refuse_no_model(named, folder)
    place = transformer_folder(folder)
    refuse_unreadable_weights(named, place)
    with library_reading(partial(unreadable, named)), quiet_transformers():
        model, loading = kind.from_pretrained(
            place,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **{"dtype": torch.float32, **wanted},
        )
    backbone = "" if model.base_model is model else f"{model.base_model_prefix}."
    refuse_other_weights(named, loading, set(model.state_dict()), backbone)
    refuse_not_finite(named, model.state_dict().items())
    return model, loading


def save_model(
    model: Any, folder: Path, tokenizer_folder: Path, *, max_length: int | None = None, typed: bool | None = None
) -> None:
    """Writes a Hugging Face folder with a model and a tokenizer.

    Args:
        max_length: tokens at which the tokenizer cuts; none: as it says. typed: whether it gives token types; none:
            as it does.
    """
    tokenizer = copy_untruncated(load_tokenizer(tokenizer_folder))
    if max_length is not None:
        tokenizer.model_max_length = max_length
    if typed is not None:
        tokenizer.model_input_names = ["input_ids", *([TYPES] if typed else []), "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # else it is not written
    with quiet_transformers():
        model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def count_fresh(model: Any, missing: Collection[str]) -> str:
    """How many tensors of a model are fresh, and how many numbers they hold, in words."""
    weights = model.state_dict()
    return f"{len(missing)} tensors, {sum(weights[key].numel() for key in missing if key in weights):,} weights"


def named_folder(name: str) -> Path:
    """Where the files of a backbone are that is none of `SIZES`. Raises UserError if they are not on this machine."""
    return model_folder(name, field="backbone.name", choices=SIZES)


def unreadable(named: str, reason: str) -> UserError:
    """The refusal of a folder that a library cannot read."""
    return UserError(f"{named}: no model can be read there ({reason})")
