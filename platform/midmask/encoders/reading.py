"""Masked LMs of transformers, read from a folder or made afresh; `backbone.Backbone` is what is made of them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForMaskedLM, BertConfig
from transformers.utils import logging as hf_logging

from midmask.encoders.damage import library_reading, refuse_not_finite
from midmask.encoders.families import FAMILIES
from midmask.errors import UserError
from midmask.pretrained import model_folder

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
    folder = named_folder(name)
    with library_reading(partial(_unreadable, name)):
        settings = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    for field in FAMILIES[settings.model_type].dropouts:
        setattr(settings, field, dropout)
    return settings


def read_model(name: str, dropout: float) -> tuple[Any, bool]:
    """The masked LM of a folder or hub id, and whether its head is fresh, since none is there.

    Raises:
        UserError: if there is no model of a supported family, or weights of its encoder are missing or not finite.
    """
    settings = read_settings(name, dropout)
    model, loading = _read(name, settings)
    if getattr(settings, "legacy", False) and any("lm_predictions." in key for key in loading["unexpected_keys"]):
        settings.legacy = False  # the MLM head that DeBERTa was published with; transformers makes another unless told
        model, loading = _read(name, settings)
    missing = sorted(loading["missing_keys"])
    if lost := [key for key in missing if key.startswith(f"{model.base_model_prefix}.")]:
        raise UserError(f"backbone.name = {name!r}: the file holds no {lost[0]} ({len(lost)} weights are missing).")
    refuse_not_finite(f"backbone.name = {name!r}", model.state_dict().items())
    if missing:
        log.info("%s holds no MLM head; a fresh one is made", name)
    return model, bool(missing)


def _read(name: str, settings: Any) -> tuple[Any, dict[str, Any]]:
    """The masked LM of a folder or hub id, and which weights it lacked or had too many."""
    attention = FAMILIES[settings.model_type].attention
    with library_reading(partial(_unreadable, name)), quiet_transformers():
        model, loading = AutoModelForMaskedLM.from_pretrained(
            named_folder(name),
            config=settings,
            attn_implementation=attention,
            dtype=torch.float32,
            output_loading_info=True,
        )
    return model, loading


def named_folder(name: str) -> Path:
    """Where the files of a backbone are that is none of `SIZES`.

    Raises:
        UserError: if they are not on this machine.
    """
    return model_folder(name, field="backbone.name", choices=SIZES)


def _unreadable(name: str, reason: str) -> UserError:
    return UserError(f"backbone.name = {name!r}: no model can be read there ({reason})")
