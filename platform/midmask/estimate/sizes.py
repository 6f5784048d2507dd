"""The sizes of encoders and of what is trained with them, from the classes themselves, without their weights.

Everything is made on torch's `meta` device: shapes are there, numbers are not, so that a model of any size is counted
in a moment and in no memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.reading import SIZES, read_settings
from midmask.encoders.representation import Representation
from midmask.objectives import ObjectiveConfig, build_objective
from midmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class Sizes:
    """What the costs of an encoder follow from.

    matrices: entries of the matrices that every token is multiplied with, over all layers. feed_forward: inner width.
    parameters: all of them, the MLM head and a query's experts included. is_plain: whether the layers are BERT's, so
    that a vector of [CLS] alone leaves out most of the last one.
    """

    layers: int
    width: int
    embedding_width: int
    feed_forward: int
    heads: int
    vocabulary: int
    matrices: int
    parameters: int
    is_plain: bool


@lru_cache(maxsize=64)
def encoder_sizes(config: BackboneConfig, vocabulary: int) -> Sizes:
    """The sizes of a named encoder.

    Args:
        vocabulary: entries of the tokenizer; of a model by folder or hub id its own count.

    Raises:
        UserError: if there is no such model, or its family is not supported.
    """
    backbone = _outlined(config, vocabulary)
    linear = [module for module in backbone.encoder.modules() if isinstance(module, nn.Linear)]
    return Sizes(
        layers=backbone.layers,
        width=backbone.width,
        embedding_width=backbone.shape.embedding_width,
        feed_forward=backbone.feed_forward,
        heads=backbone.heads,
        vocabulary=len(backbone.output_weight_VD),
        matrices=sum(module.weight.numel() for module in linear),
        parameters=_count(backbone.parameters()),
        is_plain=backbone.shape.has_plain_layers,
    )


@lru_cache(maxsize=64)
def trained_parameters(
    config: BackboneConfig, vocabulary: int, objective: ObjectiveConfig, representation: Representation
) -> int:
    """Parameters of an encoder with an objective's heads, and with the projection of what is scored."""
    backbone = _outlined(config, vocabulary)
    with torch.device("meta"):
        backbone.represent_as(representation, seed=0)
        return _count(build_objective(objective, backbone, _blank(vocabulary, 0)).parameters())


def _outlined(config: BackboneConfig, vocabulary: int) -> Backbone:
    pad_id = 0
    if config.name not in SIZES:
        settings = read_settings(config.name, config.dropout)
        vocabulary, pad_id = int(settings.vocab_size), int(settings.pad_token_id or 0)
    with torch.device("meta"):
        return build_backbone(config.model_copy(update={"fresh": True}), _blank(vocabulary, pad_id), seed=0)


def _count(parameters: Iterator[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _blank(size: int, pad_id: int) -> Vocabulary:
    """A vocabulary of which only the size is known."""
    nothing_V = torch.zeros(0, dtype=torch.bool)
    return Vocabulary(size, pad_id, 0, 0, 0, None, nothing_V, nothing_V, nothing_V)
