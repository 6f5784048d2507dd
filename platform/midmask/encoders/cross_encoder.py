"""A cross-encoder: query and passage in one row, one number for both; a Hugging Face sequence-classification model.

Model and head are Hugging Face's own, each family's as it is published: what is trained here and what lies in any other
folder are the same thing. With two labels the score is the log-odds of label 1, "relevant" (monoBERT, Nogueira & Cho
2019); with more, it is not known which label is meant, and the folder is refused.

Shapes: Q queries, N passages, `group` to a query, L tokens.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from midmask.core.batch import TokenRows
from midmask.core.torch_randomness import fresh_weights
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.families import FAMILIES, count_token_types, shape_from, widen_scores
from midmask.encoders.reading import (
    TYPES,
    count_fresh,
    named_folder,
    read_folder_settings,
    read_pretrained,
    read_settings,
    save_model,
)
from midmask.errors import UserError
from midmask.text.vocabulary import largest_id, load_tokenizer, refuse_tokens_beyond

log = logging.getLogger(__name__)

HEAD_DROPOUTS = ("classifier_dropout", "seq_classif_dropout", "cls_dropout", "pooler_dropout")
"""What the families call the dropout of their classification heads."""


@dataclass(frozen=True)
class Template:
    """How a tokenizer joins two texts: ids before, between and behind them."""

    first: tuple[int, ...]
    between: tuple[int, ...]
    last: tuple[int, ...]
    types: tuple[int, int] | None  # token types of both texts, the first with what is around it; none: no types
    pad_id: int


@dataclass(frozen=True)
class Pairs:
    """Token rows of a query and a passage each, padded on the right; int64."""

    ids_NL: Tensor
    lengths_N: Tensor
    types_NL: Tensor | None  # token types; None if the model takes none

    def to(self, device: torch.device | str) -> "Pairs":
        types_NL = None if self.types_NL is None else self.types_NL.to(device)
        return Pairs(self.ids_NL.to(device), self.lengths_N.to(device), types_NL)


class CrossEncoder(nn.Module):
    """A sequence-classification model of one or two labels, and how its tokenizer joins two texts.

    max_length: tokens of a pair, special tokens included; the rest of its passage is cut.
    """

    def __init__(self, model: Any, template: Template, max_length: int) -> None:
        super().__init__()
        widen_scores(model)
        self.model = model
        self.template = template
        self.max_length = max_length

    def join(self, query: TokenRows, passage: TokenRows, group: int = 1) -> Pairs:
        """Pairs of texts that are tokenised each by itself, special tokens included; row i of `passage` belongs to
        query i // group. Queries are whole: they must leave room for a passage.
        """
        template, device = self.template, passage.ids_BL.device
        ends = len(template.first) + len(template.last)
        query_end_N = (query.lengths_B - len(template.last)).repeat_interleave(group)
        begin_N = query_end_N + len(template.between)
        room_N = self.max_length - len(template.last) - begin_N
        end_N = begin_N + torch.minimum(passage.lengths_B - ends, room_N)
        lengths_N = end_N + len(template.last)
        width = min(self.max_length, query.ids_BL.shape[1] + passage.ids_BL.shape[1] + len(template.between) - ends)
        if not lengths_N.is_cuda:  # on a GPU, the host would have to wait for the device to know it
            width = min(width, int(lengths_N.max()))
        at_NL = torch.arange(width, device=device).expand(len(end_N), width)
        query_NL = query.ids_BL.repeat_interleave(group, 0).gather(1, at_NL.clamp(max=query.ids_BL.shape[1] - 1))
        there_NL = (at_NL - begin_N[:, None] + len(template.first)).clamp(0, passage.ids_BL.shape[1] - 1)
        passage_NL = passage.ids_BL.gather(1, there_NL)
        ids_NL = torch.where(at_NL < query_end_N[:, None], query_NL, passage_NL)
        ids_NL = ids_NL.masked_fill(at_NL >= end_N[:, None], template.pad_id)
        for place_N, special in ((query_end_N, template.between), (end_N, template.last)):
            for offset, number in enumerate(special):
                ids_NL.scatter_(1, (place_N + offset)[:, None], number)
        return Pairs(ids_NL, lengths_N, self._types(at_NL, begin_N, lengths_N))

    def _types(self, at_NL: Tensor, begin_N: Tensor, lengths_N: Tensor) -> Tensor | None:
        """Token types of joined rows; padding has type 0, as tokenizers give it."""
        if self.template.types is None:
            return None
        first, second = self.template.types
        types_NL = torch.where(at_NL < begin_N[:, None], first, second)
        return types_NL.masked_fill(at_NL >= lengths_N[:, None], 0)

    def forward(self, pairs: Pairs) -> Tensor:
        """The score of each pair: a raw logit, or the log-odds of label 1; float32 [N]."""
        seen_NL = torch.arange(pairs.ids_NL.shape[1], device=pairs.ids_NL.device) < pairs.lengths_N[:, None]
        types = {} if pairs.types_NL is None else {TYPES: pairs.types_NL}
        logits = self.model(input_ids=pairs.ids_NL, attention_mask=seen_NL.long(), **types).logits.float()
        score_N: Tensor = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        return score_N

    def save(self, folder: Path, tokenizer_folder: Path) -> None:
        """Writes a folder that AutoModelForSequenceClassification and sentence_transformers.CrossEncoder load, the
        latter giving raw logits. Its tokenizer cuts pairs as they are cut here.
        """
        typed = self.template.types is not None
        save_model(self.model, folder, tokenizer_folder, max_length=self.max_length, typed=typed)


def build_cross_encoder(config: BackboneConfig, tokenizer_folder: Path, *, max_length: int, seed: int) -> CrossEncoder:
    """The model that a teacher's training starts from: a backbone's encoder under a head for one label. Fresh weights
    depend on `seed` alone. Of an encoder with experts, the passage expert is taken.

    Raises:
        UserError: if there is no such model of a supported family, its vocabulary is not the tokenizer's, or it has no
            places for `max_length` tokens.
    """
    tokenizer, name = load_tokenizer(tokenizer_folder), config.name
    with fresh_weights(seed):
        settings = _classifier_settings(config, len(tokenizer), tokenizer.pad_token_id)
        if not config.is_pretrained:
            model = AutoModelForSequenceClassification.from_config(settings, dtype=torch.float32)
        else:
            model, fresh = _read(named_folder(name), settings)
            log.info("teacher: %s of %s are fresh, those of its head", count_fresh(model, fresh), name)
    if len(model.get_input_embeddings().weight) < len(tokenizer):
        raise UserError(f"teacher: {name} has fewer embeddings than the tokenizer entries; tokenise with its tokenizer")
    if max_length > (longest := shape_from(settings).max_length):
        raise UserError(f"teacher: max_length = {max_length}, but {name} takes at most {longest} tokens; set it lower")
    return CrossEncoder(model, template_of(tokenizer, typed=count_token_types(settings) > 1), max_length)


def _classifier_settings(config: BackboneConfig, vocabulary: int, pad_id: int) -> Any:
    settings = read_settings(config.name, config.dropout, vocabulary, pad_id)
    for field in HEAD_DROPOUTS:
        if hasattr(settings, field):
            setattr(settings, field, config.dropout)
    settings.num_labels = 1
    settings.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    return settings


def read_cross_encoder(folder: Path) -> CrossEncoder:
    """A sequence-classification folder of any family, in eval mode.

    Raises:
        UserError: if there is none, its head is missing, or it has more than two labels.
    """
    settings, tokenizer = read_folder_settings(folder, f"teacher {folder}"), load_tokenizer(folder)
    if settings.num_labels > 2:
        raise UserError(
            f"teacher {folder}: {settings.num_labels} labels ({', '.join(settings.id2label.values())}), of which none "
            "is known to be the score; name a model with one label, or two of which the second is 'relevant'"
        )
    model, missing = _read(folder, settings)
    refuse_tokens_beyond(f"teacher {folder}", largest_id(tokenizer), len(model.get_input_embeddings().weight))
    if missing:
        raise UserError(
            f"teacher {folder}: no classification head ({missing[0]} is missing), so it scores nothing yet; train it "
            "with midmask teach, or name a cross-encoder"
        )
    is_supported = settings.model_type in FAMILIES
    places = shape_from(settings).max_length if is_supported else getattr(settings, "max_position_embeddings", 1 << 30)
    # A tokenizer that names no types gives none to other libraries either.
    typed = count_token_types(settings) > 1 and TYPES in tokenizer.model_input_names
    return CrossEncoder(model, template_of(tokenizer, typed=typed), min(places, tokenizer.model_max_length)).eval()


def template_of(tokenizer: Any, *, typed: bool) -> Template:
    """How a tokenizer joins two texts, found by trying it out; with token types if `typed`.

    Raises:
        UserError: if it does not mark where the second text begins, or marks the ends of one text in another way.
    """
    single, pair = tokenizer("a"), tokenizer("a", "a", return_token_type_ids=True)
    text_of = pair.sequence_ids(0)
    if 1 not in text_of or None not in text_of[text_of.index(0) : text_of.index(1)]:
        raise UserError("teacher: the tokenizer puts no special token between two texts; use that of a BERT-like model")
    starts = text_of.index(0), text_of.index(1)
    ends = len(text_of) - text_of[::-1].index(0), len(text_of) - text_of[::-1].index(1)
    first, last = starts[0], len(text_of) - ends[1]
    ids = pair["input_ids"]
    if single.sequence_ids(0).index(0) != starts[0] or ends[0] - starts[0] + first + last != len(single["input_ids"]):
        raise UserError("teacher: the tokenizer marks the ends of a pair unlike those of one text")
    types = (pair[TYPES][starts[0]], pair[TYPES][starts[1]]) if typed else None
    before, between, behind = ids[: starts[0]], ids[ends[0] : starts[1]], ids[ends[1] :]
    return Template(tuple(before), tuple(between), tuple(behind), types, int(tokenizer.pad_token_id))


def _read(folder: Path, settings: Any) -> tuple[Any, list[str]]:
    """The model of a folder, and the names of the head's weights that are fresh; unpickles nothing."""
    model, loading = read_pretrained(
        AutoModelForSequenceClassification, folder, f"teacher {folder}", config=settings, use_safetensors=True
    )
    return model, sorted(loading["missing_keys"])
