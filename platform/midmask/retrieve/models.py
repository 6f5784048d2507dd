"""The model of a folder as a function from token rows to views, for the side that is encoded.

Dense views and token vectors come from any architecture that transformers has. A lexical view needs the MLM head, hence
a `Backbone` of a supported family.

Shapes: B rows, L tokens, D width, V vocabulary.
"""

from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import put_query_expert
from midmask.encoders.families import widen_scores
from midmask.encoders.first_token import first_token, suits
from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.inputs import padding_mask, type_inputs
from midmask.encoders.model_settings import read_projection, read_representation
from midmask.encoders.pooling import Side, pool, token_vectors
from midmask.encoders.reading import read_base_model
from midmask.encoders.representation import Representation, TextVectors
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary, largest_id, load_tokenizer, refuse_tokens_beyond


class Encoder(Protocol):
    """Views of padded rows, not pruned. `shared`: whether threads may call it at the same time."""

    shared: bool

    def __call__(self, ids_BL: Tensor, lengths_B: Tensor) -> TextVectors: ...


def open_encoder(folder: Path, vocabulary: Vocabulary, side: Side, device: str = "cpu", unpooled: int = 0) -> Encoder:
    """The encoder of a folder, in float32, without dropout; runs no code from it. If the folder has experts, it is the
    one of `side`.

    Args:
        unpooled: how many tokens at the beginning of each row take no part in a dense view's pooling.

    Raises:
        UserError: if the folder holds no model, or one whose views midmask cannot make.
    """
    representation = read_representation(folder)
    encoder: _MaskedModel | _BaseModel
    if representation.lexical is not None:
        encoder = _MaskedModel(folder, vocabulary, side, device)
    else:
        encoder = _BaseModel(folder, representation, vocabulary, side, device, unpooled)
    refuse_tokens_beyond(f"encoder {str(folder)!r}", vocabulary.size - 1, encoder.rows)
    return encoder


def refuse_unfit(folder: Path, tokenizer: Path | None = None) -> None:
    """Reads a folder's model, and raises UserError if it cannot encode a text, as `open_encoder`.

    Args:
        tokenizer: folder of the tokenizer of its texts; none: not checked.
    """
    lexical = read_representation(folder).lexical is not None
    model = load_masked_model(folder).model if lexical else load_base_model(folder)
    if tokenizer is not None:
        rows = len(model.get_input_embeddings().weight)
        refuse_tokens_beyond(f"encoder {str(folder)!r}", largest_id(load_tokenizer(tokenizer)), rows)


class _BaseModel:
    """[CLS] or mean of the last hidden states of a Hugging Face base model, or all of them."""

    shared = True

    def __init__(
        self,
        folder: Path,
        representation: Representation,
        vocabulary: Vocabulary,
        side: Side,
        device: str,
        unpooled: int,
    ) -> None:
        self._model: Any = load_base_model(folder, side).to(device)
        self.rows = len(self._model.get_input_embeddings().weight)
        self._pair_sep = vocabulary.pair_sep
        self._unpooled = unpooled
        self._first_alone = representation.dense == "cls" and not unpooled and suits(self._model)
        self._representation = representation
        weight = read_projection(folder)
        self._projection = None if weight is None else weight.to(device)

    def __call__(self, ids_BL: Tensor, lengths_B: Tensor) -> TextVectors:
        if self._representation.tokens is not None and self._projection is not None:
            hidden_BLD, _ = self._hidden(ids_BL, lengths_B)
            return TextVectors(None, None, token_vectors(hidden_BLD, lengths_B, self._projection))
        dense_BD = self._pool(ids_BL, lengths_B)
        if self._projection is not None:
            dense_BD = F.linear(dense_BD, self._projection)
        return TextVectors(F.normalize(dense_BD, dim=-1) if self._representation.normalise else dense_BD, None)

    def _pool(self, ids_BL: Tensor, lengths_B: Tensor) -> Tensor:
        if self._first_alone:
            types = self._types(ids_BL, lengths_B)
            return first_token(self._model, ids_BL, padding_mask(lengths_B, ids_BL.shape[1]), types)
        hidden_BLD, seen_BL = self._hidden(ids_BL, lengths_B)
        pooled_BLD, pooled_BL = hidden_BLD[:, self._unpooled :], seen_BL[:, self._unpooled :]
        return pool(self._representation.dense or "cls", pooled_BLD, pooled_BL)

    def _hidden(self, ids_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Last hidden states, [B, L, D], and where there are tokens, bool [B, L]."""
        seen_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
        types = self._types(ids_BL, lengths_B)
        hidden_BLD: Tensor = self._model(input_ids=ids_BL, attention_mask=seen_BL.long(), **types).last_hidden_state
        return hidden_BLD, seen_BL

    def _types(self, ids_BL: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
        return type_inputs(self._model.config, self._pair_sep, ids_BL, lengths_B)


class _MaskedModel:
    """The views that a backbone's pooling gives."""

    def __init__(self, folder: Path, vocabulary: Vocabulary, side: Side, device: str) -> None:
        self._backbone = load_masked_model(folder).to(device)
        self.rows = len(self._backbone.encoder.get_input_embeddings().weight)
        self._backbone.pair_sep = vocabulary.pair_sep
        self._special_V = vocabulary.special_V.to(device)
        self._side = side
        # The query expert takes the place of the model's own weights for the time of a call.
        self.shared = side == "passage" or self._backbone.experts is None

    def __call__(self, ids_BL: Tensor, lengths_B: Tensor) -> TextVectors:
        return self._backbone.pooling.views(self._backbone, ids_BL, lengths_B, self._special_V, self._side)


def load_masked_model(folder: Path) -> Backbone:
    """The masked LM of a folder with its views, in eval mode.

    Raises:
        UserError: as `load_bi_encoder`; or if its MLM head is missing.
    """
    backbone = load_bi_encoder(folder, dropout=0.0).eval()
    if backbone.has_fresh_head:
        raise UserError(
            f"encoder {str(folder)!r}: its lexical view needs the MLM head of its training, which is not in the file. "
            "Save the whole masked LM (AutoModelForMaskedLM)."
        )
    return backbone


def load_base_model(folder: Path, side: Side = "passage") -> Any:
    """The Hugging Face base model of a folder, in eval mode; of a folder with experts, the one of `side`.

    Raises:
        UserError: as `read_pretrained`.
    """
    model = read_base_model(folder, f"encoder {str(folder)!r}")
    widen_scores(model)
    if side == "query":
        put_query_expert(model, folder)
    return model.eval()
