"""Models without their weights, and their sizes; counts that an earlier process has made are remembered.

Everything is made on torch's `meta` device: shapes are there, numbers are not, so that a model of any size is there in
a moment and in no memory. Building and running a model's classes still takes seconds, and dry runs repeat the same few,
so counts are kept as JSON in the cache folder. A count is known by its arguments, the versions of the libraries and the
source code that it follows from, so a changed class is counted anew. Models that a folder or hub id names are not kept:
their files may change.
"""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache, lru_cache, partial, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from midmask.core.config import Config, fingerprint, library_versions
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import CrossEncoder, Template, fresh_classifier
from midmask.encoders.reading import SIZES, read_settings
from midmask.encoders.seq2seq import Seq2Seq, fresh_seq2seq
from midmask.objectives import FINETUNING, PRETRAINING, ObjectiveConfig
from midmask.objectives.sample import sample_vocabulary
from midmask.store.recall import recall
from midmask.text.vocabulary import Vocabulary

P = ParamSpec("P")
T = TypeVar("T")


def remembered(make: type[T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function of configs and plain values whose result is `make`: a dataclass of numbers, or a number."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def recall_or_count(*args: P.args, **kwargs: P.kwargs) -> T:
            values = [*args, *kwargs.values()]
            if any(isinstance(value, BackboneConfig) and value.name not in SIZES for value in values):
                return function(*args, **kwargs)
            versions = {"function": function.__qualname__, "code": _digest_of_code(), "libraries": library_versions()}
            name = f"counts/{fingerprint({**versions, 'arguments': list(map(_plain, values))})}.json"
            value: T = recall(name, parse, partial(function, *args, **kwargs), plain=_outward)
            return value

        def parse(found: Any) -> T:
            return make(**found) if is_dataclass(make) else make(found)  # type: ignore[call-arg]

        in_process: Callable[P, T] = lru_cache(maxsize=256)(recall_or_count)  # type: ignore[assignment]
        return in_process

    return decorate


def _outward(result: Any) -> Any:
    """A dataclass of numbers as a dict; a number as it is."""
    return vars(result) if is_dataclass(result) else result


def _plain(value: Any) -> Any:
    if isinstance(value, ObjectiveConfig):
        objective = {**PRETRAINING, **FINETUNING}.get(value.name, type(value))
        return {"class": objective.__qualname__, "source": _digest_of_class(objective), **value.model_dump(mode="json")}
    if isinstance(value, Config):
        return value.model_dump(mode="json")
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _digest_of_class(own: type) -> str:
    """Digest of the file that a class comes from; objectives may be defined outside of midmask."""
    return sha256(Path(inspect.getfile(own)).read_bytes()).hexdigest()


@cache
def _digest_of_code() -> str:
    """Digest of midmask's own source: any of it may change a count."""
    digest = sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


ANY_LENGTH = 1 << 20
"""Tokens of a pair that an outlined cross-encoder takes: how pairs are cut is its caller's business."""


@dataclass(frozen=True)
class Sizes:
    """The sizes from which an encoder's costs are computed where they are not counted."""

    layers: int
    width: int
    embedding_width: int
    vocabulary: int
    parameters: int  # all of them, the MLM head and a query's experts included


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
    """A cross-encoder on the `meta` device and its vocabulary; it joins texts as BERT does.

    Raises:
        UserError: if there is no such model, or its family is not supported.
    """
    words = _words(config, vocabulary)
    with torch.device("meta"):
        model = fresh_classifier(config, words.size, words.pad_id)
    template = Template((words.cls_id,), (words.sep_id,), (words.sep_id,), None, words.pad_id)
    return CrossEncoder(model, template, ANY_LENGTH), words


def outline_seq2seq(config: BackboneConfig, vocabulary: int, decoder_layers: int) -> tuple[Seq2Seq, Vocabulary]:
    """An encoder-decoder on the `meta` device and its vocabulary.

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
