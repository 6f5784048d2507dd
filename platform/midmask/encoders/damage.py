"""Model folders that are damaged or contradict their own files: every exception of the libraries that read them becomes
one line.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from torch import Tensor

from midmask.errors import UserError


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
    if "ignore_mismatched_sizes" in text:
        return "its weights have other shapes than config.json says"
    told_by_type = isinstance(error, OSError | ValueError | SafetensorError) and text
    return text[:300] if told_by_type else f"{type(error).__name__}: {text[:300]}".rstrip(": ")


def refuse_not_finite(name: object, weights: Iterable[tuple[str, Tensor]]) -> None:
    """
    Raises:
        UserError: naming the first tensor with a NaN or an infinity, and how many there are.
    """
    bad = [key for key, weight in weights if weight.is_floating_point() and not torch.isfinite(weight).all()]
    if bad:
        raise UserError(
            f"{name}: the weight {bad[0]} has values that are not finite (NaN or infinity; {len(bad)} such weights), "
            "which would spoil every vector; train or save the model again"
        )


def refuse_no_model(folder: Path) -> None:
    """Raises UserError if the folder of --model holds no Hugging Face model."""
    if not (folder / "config.json").is_file():
        raise UserError(f"--model {folder}: no config.json in it; name a Hugging Face model folder")
