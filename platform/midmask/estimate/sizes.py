"""Models without their weights, and their sizes.

Everything is made on torch's `meta` device: shapes are there, numbers are not, so that a model of any size is there in
a moment and in no memory.
"""

from dataclasses import dataclass

import torch

from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import CrossEncoder, Template, fresh_classifier
from midmask.encoders.reading import SIZES, read_settings
from midmask.encoders.seq2seq import Seq2Seq, fresh_seq2seq
from midmask.estimate.remembered import remembered
from midmask.objectives.sample import sample_vocabulary
from midmask.vocabulary import Vocabulary

ANY_LENGTH = 1 << 20
"""Tokens of a pair that an outlined cross-encoder takes: how pairs are cut is its caller's business."""


@dataclass(frozen=True)
class Sizes:
    """The sizes from which an encoder's costs are computed where they are not counted.

    parameters: all of them, the MLM head and a query's experts included.
    """

    layers: int
    width: int
    embedding_width: int
    vocabulary: int
    parameters: int


@remembered(Sizes)
def encoder_sizes(config: BackboneConfig, vocabulary: int) -> Sizes:
    """The sizes of a named encoder.

    Args:
        vocabulary: entries of the tokenizer; of a model by folder or hub id its own count.

    Raises:
        UserError: if there is no such model, or its family is not supported.
    """
    backbone, words = outline_backbone(config, vocabulary)
    return Sizes(
        layers=backbone.layers,
        width=backbone.width,
        embedding_width=backbone.shape.embedding_width,
        vocabulary=words.size,
        parameters=sum(parameter.numel() for parameter in backbone.parameters()),
    )


def outline_backbone(config: BackboneConfig, vocabulary: int) -> tuple[Backbone, Vocabulary]:
    """A backbone on the `meta` device, and a vocabulary of which only the size is true.

    Raises:
        UserError: if there is no such model, or its family is not supported.
    """
    words = _words(config, vocabulary)
    with torch.device("meta"):
        return build_backbone(config.model_copy(update={"fresh": True}), words, seed=0), words


def outline_cross_encoder(config: BackboneConfig, vocabulary: int) -> tuple[CrossEncoder, Vocabulary]:
    """The same of a cross-encoder, which joins texts as BERT does.

    Raises:
        UserError: if there is no such model, or its family is not supported.
    """
    words = _words(config, vocabulary)
    with torch.device("meta"):
        model = fresh_classifier(config, words.size, words.pad_id)
    template = Template((words.cls_id,), (words.sep_id,), (words.sep_id,), None, words.pad_id)
    return CrossEncoder(model, template, ANY_LENGTH), words


def outline_seq2seq(config: BackboneConfig, vocabulary: int, decoder_layers: int) -> tuple[Seq2Seq, Vocabulary]:
    """The same of an encoder-decoder.

    Raises:
        UserError: if there is no such encoder, or its family is not supported.
    """
    words = _words(config, vocabulary)
    with torch.device("meta"):
        return Seq2Seq(fresh_seq2seq(config, words, decoder_layers=decoder_layers)), words


def _words(config: BackboneConfig, vocabulary: int) -> Vocabulary:
    if config.name in SIZES:
        return sample_vocabulary(vocabulary)
    settings = read_settings(config.name, config.dropout)
    return sample_vocabulary(int(settings.vocab_size), pad_id=int(settings.pad_token_id or 0))
