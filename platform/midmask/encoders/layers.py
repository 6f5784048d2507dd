"""How the layers of a model are carried out in training: with their activations kept or computed again, and compiled.

Layers are what transformers can checkpoint: those of an encoder, of a cross-encoder, or of both sides of a generator of
queries. A method's own decoder has one or two layers and stays as it is.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from midmask.errors import UserError

COMPILERS = ("c++", "g++", "clang++")
"""By which torch compiles for a CPU."""


def recompute_layers(backbone: nn.Module) -> None:
    """Lets each layer keep its input alone, and compute the rest again in the backward pass (Chen et al. 2016,
    "Training deep nets with sublinear memory cost"). Dropout is drawn as before, so that no number changes; a step has
    a third more work.

    Args:
        backbone: whose `model` is of transformers.

    Raises:
        UserError: if transformers cannot do that for its layers, or queries have weights of their own, which the
            encoder has only in its forward pass.
    """
    model: Any = _model_with_layers(backbone, "recompute")
    if getattr(backbone, "experts", None) is not None:
        raise UserError("train.recompute = true: queries have weights of their own (backbone.experts); leave it out")
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    layers = set(_layers(model))
    for part in model.modules():
        if part not in layers and hasattr(part, "gradient_checkpointing"):
            part.gradient_checkpointing = False  # of the model as a whole: all it does is to warn of a cache


def compile_layers(backbone: nn.Module) -> None:
    """Compiles each layer by torch, at its first use; weights keep their names. Dropout is drawn as in layers that are
    not compiled, so that numbers differ in their last digits alone.

    Args:
        backbone: as of `recompute_layers`.

    Raises:
        UserError: if there is no compiler, or transformers names no layers of the model.
    """
    model = _model_with_layers(backbone, "compile")
    on_cpu = all(weight.device.type == "cpu" for weight in model.parameters())
    if on_cpu and not any(map(shutil.which, COMPILERS)):
        raise UserError(
            f"train.compile = true: torch needs a C++ compiler ({', '.join(COMPILERS)}) on a CPU, and there is none; "
            "install one, or leave train.compile out"
        )
    for layer in _layers(model):
        layer.compile(dynamic=True, options={"fallback_random": True})  # for rows of any length


@contextmanager
def counted_layers(module: nn.Module) -> Iterator[None]:
    """A forward pass in this context leaves with autograd what there is when the backward pass has come to a layer: of
    layers that are computed again their inputs, and of one layer everything.
    """
    again = [layer for layer in _layers(module) if layer.gradient_checkpointing]
    trained = [layer.training for layer in again]
    for layer in again:
        layer.training = True  # its parts may be in evaluation, which a GPU's dropout is counted in
    for layer in again[:1]:
        layer.gradient_checkpointing = False
    try:
        yield
    finally:
        for layer, before in zip(again, trained, strict=True):
            layer.training, layer.gradient_checkpointing = before, True


def _model_with_layers(backbone: nn.Module, field: str) -> nn.Module:
    model = backbone.get_submodule("model")
    if not any(_layers(model)):
        raise UserError(
            f"train.{field} = true: transformers names no layers of a {type(model).__name__} for that; leave it out"
        )
    return model


def _layers(module: nn.Module) -> Iterator[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return (part for part in module.modules() if isinstance(part, GradientCheckpointingLayer))
