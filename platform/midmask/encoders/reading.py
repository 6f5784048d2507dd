"""Masked LMs of transformers, read from a folder or made afresh; `backbone.Backbone` is what is made of them."""

import inspect
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, BertConfig
from transformers.utils import logging as hf_logging

from midmask.encoders.damage import (
    library_reading,
    refuse_no_model,
    refuse_not_finite,
    refuse_other_weights,
    refuse_unreadable_weights,
)
from midmask.encoders.families import FAMILIES
from midmask.errors import UserError
from midmask.pretrained import model_folder, transformer_folder

log = logging.getLogger(__name__)

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


def sized_settings(size: str, dropout: float) -> Any:
    """The config of one of `SIZES`, but for its vocabulary."""
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


def read_settings(name: str, dropout: float) -> Any:
    """The Hugging Face config of a folder or hub id, with the wanted dropout.

    Raises:
        UserError: if there is none, or its family is not supported.
    """
    folder, named = named_folder(name), f"backbone.name = {name!r}"
    refuse_no_model(named, folder)
    with library_reading(partial(unreadable, named)):
        settings = AutoConfig.from_pretrained(transformer_folder(folder), trust_remote_code=False)
    for field in FAMILIES[settings.model_type].dropouts:
        setattr(settings, field, dropout)
    return settings


def read_model(name: str, dropout: float) -> tuple[Any, bool]:
    """The masked LM of a folder or hub id, and whether its head is fresh, since none is there.

    Raises:
        UserError: if there is no model of a supported family; or as `read_pretrained`.
    """
    settings = read_settings(name, dropout)
    wanted = {"config": settings, "attn_implementation": FAMILIES[settings.model_type].attention}
    folder, named = named_folder(name), f"backbone.name = {name!r}"
    model, loading = read_pretrained(AutoModelForMaskedLM, folder, named, **wanted)
    if getattr(settings, "legacy", False) and any("lm_predictions." in key for key in loading["unexpected_keys"]):
        settings.legacy = False  # the MLM head that DeBERTa was published with; transformers makes another unless told
        model, loading = read_pretrained(AutoModelForMaskedLM, folder, named, **wanted)
    if missing := loading["missing_keys"]:
        log.info("%s holds no MLM head; a fresh one is made (%s)", name, count_fresh(model, missing))
    return model, bool(missing)


def read_base_model(folder: Path, named: str) -> Any:
    """The base model of a folder, of any architecture that transformers has, without a pooler if it knows the argument.

    Raises:
        UserError: as `read_pretrained`.
    """
    refuse_no_model(named, folder)
    place = transformer_folder(folder)
    with library_reading(partial(unreadable, named)):
        settings = AutoConfig.from_pretrained(place, trust_remote_code=False)
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


def count_fresh(model: Any, missing: Collection[str]) -> str:
    """How many tensors of a model are fresh, and how many numbers they hold, in words."""
    weights = model.state_dict()
    return f"{len(missing)} tensors, {sum(weights[key].numel() for key in missing if key in weights):,} weights"


def named_folder(name: str) -> Path:
    """Where the files of a backbone are that is none of `SIZES`.

    Raises:
        UserError: if they are not on this machine.
    """
    return model_folder(name, field="backbone.name", choices=SIZES)


def unreadable(named: str, reason: str) -> UserError:
    """The refusal of a folder that a library cannot read."""
    return UserError(f"{named}: no model can be read there ({reason})")
