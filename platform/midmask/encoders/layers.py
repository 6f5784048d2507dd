"""Compiles the layers of a model for training: those that transformers can checkpoint, of an encoder, of a
cross-encoder, or of both sides of a generator of queries. A method's own decoder has one or two layers and stays as it
is.
"""

import shutil

from torch import nn

from midmask.errors import UserError

COMPILERS = ("c++", "g++", "clang++")
"""By which torch compiles for a CPU."""


def compile_layers(backbone: nn.Module) -> None:
    """Compiles each layer by torch, at its first use; weights keep their names. Dropout is drawn as in layers that are
    not compiled, so that numbers differ in their last digits alone.

    Args:
        backbone: whose `model` is of transformers.

    Raises:
        UserError: if there is no compiler, or transformers names no layers of the model.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    model = backbone.get_submodule("model")
    layers = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise UserError(
            f"train.compile = true: transformers names no layers of a {type(model).__name__} for that; leave it out"
        )
    on_cpu = all(weight.device.type == "cpu" for weight in model.parameters())
    if on_cpu and not any(map(shutil.which, COMPILERS)):
        raise UserError(
            f"train.compile = true: torch needs a C++ compiler ({', '.join(COMPILERS)}) on a CPU, and there is none; "
            "install one, or leave train.compile out"
        )
    for layer in layers:
        layer.compile(dynamic=True, options={"fallback_random": True})  # for rows of any length
