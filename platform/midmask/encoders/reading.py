"""Masked LMs of transformers, read from a folder or made afresh; a damaged or foreign folder becomes one line."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForMaskedLM, BertConfig
from transformers.utils import logging as hf_logging

from midmask.encoders.families import FAMILIES
from midmask.errors import UserError
from midmask.store.pretrained import model_folder, transformer_folder
from midmask.text.vocabulary import copy_untruncated, load_tokenizer, save_tokenizer

log = logging.getLogger(__name__)


NAMES = 3
"""Names that a message lists at most."""


@contextmanager
def library_reading(named: object, what: str = "model") -> Iterator[None]:
    """Context for a library's call that reads `what` from a place, and for nothing else: exceptions become one line.

    All of them, since no list is complete: transformers raises TypeError, KeyError, ZeroDivisionError, AssertionError,
    … of one field or another, tokenizers `Exception` itself.
    """
    try:
        yield
    except Exception as error:
        raise UserError(f"{named}: no {what} can be read there ({what_is_wrong(error)})") from None


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
    if not (place / "config.json").is_file():
        held = _listed(sorted(path.name for path in folder.iterdir())) or "nothing"
        below = [str(path.parent) for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/config.json"))]
        named_instead = " or ".join(below[:NAMES]) or "a Hugging Face or sentence-transformers folder"
        raise UserError(f"{unread}: no config.json in it; it holds {held}. Name {named_instead}.")


def _listed(names: Collection[str]) -> str:
    """The first names, and how many there are."""
    first = ", ".join(list(names)[:NAMES])
    return f"{first}, … ({len(names)})" if len(names) > NAMES else first


def _refuse_pointers(named: str, place: Path) -> None:
    """Raises UserError if a file of weights is what Git leaves in its place without its extension LFS."""
    for file in [*place.glob("*.safetensors"), *place.glob("*.bin")]:
        with file.open("rb") as stream:
            if stream.read(40).startswith(b"version https://git-lfs"):
                raise UserError(f"{named}: {file.name} is a pointer of Git LFS, not the weights. Type: git lfs pull")


def _refuse_other_weights(named: str, model: Any, loading: dict[str, Any]) -> None:
    """Raises UserError if tensors of the backbone are missing or have other shapes, if the file has more layers, or
    whole numbers.

    Args:
        loading: missing_keys, unexpected_keys and mismatched_keys, as transformers reports them.
    """
    backbone = "" if model.base_model is model else f"{model.base_model_prefix}."
    if mismatched := sorted(loading["mismatched_keys"]):
        name, stored, shape = mismatched[0]
        raise UserError(
            f"{named}: {name} has the shape {list(stored)} in the file, but {list(shape)} by config.json "
            f"(weights of other shapes: {len(mismatched)}). Save the model again, with its own config.json."
        )
    keys = {key for key in model.state_dict() if key.startswith(backbone) and "pooler." not in key}
    lost, unexpected = sorted(keys.intersection(loading["missing_keys"])), sorted(loading["unexpected_keys"])
    if lost:
        raise UserError(
            f"{named}: the file holds no {_listed(lost)} ({len(lost)} of {len(keys)} weights are missing, which would "
            f"be random); it holds others: {_listed(unexpected) or 'none'}. Save the model again with save_pretrained: "
            "with its own config.json, and without what is around it (DataParallel, torch.compile, a whole "
            "SentenceTransformer)."
        )
    unused = [key for key in unexpected if _LAYER.match(key.removeprefix(backbone))]
    if unused:
        raise UserError(
            f"{named}: the file holds more layers than config.json names ({len(unused)} weights would not be used, "
            f"such as {unused[0]}). Set num_hidden_layers to their number, or save the smaller model again."
        )
    words = model.get_input_embeddings().weight
    if torch.equal(words, words.round()):
        raise UserError(
            f"{named}: its word embeddings are whole numbers: a quantised model, whose numbers mean nothing without "
            "their scales. Name the model that it was made of, in float32 or bfloat16."
        )


_LAYER = re.compile(r"(encoder\.|transformer\.)?layers?\.\d")


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
    with library_reading(named):
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


def read_pretrained(kind: Any, folder: Path, named: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A Hugging Face model with the weights of a folder, and what transformers reports of the reading. Only weights of
    a head may be missing in the folder and thus be fresh: those that are not the base model's, and poolers. Runs no
    code of the folder.

    Args:
        kind: the class of transformers that reads it. named: what the folder was given for, with its name, for the
            errors. options: further arguments of `from_pretrained`; without dtype,
            in float32.

    Raises:
        UserError: if there is no such model, or weights of its backbone are missing, quantised, not finite, of other
            shapes than config.json says, or of more layers.
    """
    refuse_no_model(named, folder)
    place = transformer_folder(folder)
    _refuse_pointers(named, place)
    with library_reading(named), quiet_transformers():
        model, loading = kind.from_pretrained(
            place,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **{"dtype": torch.float32, **options},
        )
    _refuse_other_weights(named, model, loading)
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
