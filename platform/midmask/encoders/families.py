"""The supported families of Hugging Face masked LMs: what differs between them, one entry each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from midmask.registry import Registry


@dataclass(frozen=True)
class Family:
    """Where the parts of a Hugging Face masked LM are, and what its config calls them.

    transform: (model, x) -> x, the MLM head up to, and without, its output matrix. first_position: config -> row of the
    position table that the first token takes. feed_forward, dropouts: names of config fields. feed_forward_weights,
    feed_forward_norms: regular expressions for the names, in the base model, of the weights of the feed-forward layers'
    linear layers, and of their norms.
    """

    transform: Callable[[Any, Tensor], Tensor]
    first_position: Callable[[Any], int] = lambda config: 0
    feed_forward: str = "intermediate_size"
    dropouts: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    feed_forward_weights: str = r"layer\.\d+\.(intermediate|output)\.dense\."
    feed_forward_norms: str = r"layer\.\d+\.output\.LayerNorm\."


FAMILIES = Registry(
    "backbone family",
    {
        "bert": Family(lambda model, x: model.cls.predictions.transform(x)),
        "roberta": Family(
            lambda model, x: model.lm_head.layer_norm(F.gelu(model.lm_head.dense(x))),
            first_position=lambda config: int(config.pad_token_id) + 1,
        ),
        "distilbert": Family(
            lambda model, x: model.vocab_layer_norm(model.activation(model.vocab_transform(x))),
            feed_forward="hidden_dim",
            dropouts=("dropout", "attention_dropout"),
            feed_forward_weights=r"layer\.\d+\.ffn\.lin[12]\.",
            feed_forward_norms=r"layer\.\d+\.output_layer_norm\.",
        ),
    },
)
