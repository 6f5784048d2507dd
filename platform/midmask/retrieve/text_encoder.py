"""The encoder of one side (queries or passages): a model folder as a function from token rows to views.

Dense views and token vectors come from any architecture that transformers has. A lexical view needs the MLM head, hence
a `Backbone` of a supported family. The make-up of a batch depends on the rows alone, so that the bits do not depend on
who encodes what: neither threads nor actors change one.

Shapes: B rows, L tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel

from midmask.core.arrays import Ints
from midmask.core.torch_randomness import fresh_weights
from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import put_query_expert
from midmask.encoders.families import first_token, padding_mask, suits_first_token, type_inputs, widen_scores
from midmask.encoders.folder import load_bi_encoder, read_projection
from midmask.encoders.model_settings import ModelSettings, read_facts
from midmask.encoders.precision import Precision, autocast_type
from midmask.encoders.reading import read_pretrained
from midmask.encoders.representation import Pooling, Representation, Side
from midmask.errors import UserError
from midmask.masking.words import one_thread
from midmask.retrieve.blocks import cut_row
from midmask.retrieve.sparse import top_rows
from midmask.retrieve.views import CodedTokens, Views, starts_of
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import encoder, prompt_tokens
from midmask.text.vocabulary import Vocabulary, largest_id, load_tokenizer, refuse_tokens_beyond

T = TypeVar("T")


def length_batches(lengths: Ints, batch_tokens: int) -> list[Ints]:
    """Rows by length, then position, cut where a padded batch would pass `batch_tokens`; a long row goes alone."""
    by_length = np.argsort(lengths, kind="stable")
    batches: list[Ints] = []
    first = 0
    for end in range(1, len(by_length) + 1):
        full = end == len(by_length) or (end - first + 1) * lengths[by_length[end]] > batch_tokens
        if full:
            batches.append(by_length[first:end])
            first = end
    return batches


def run_batches(run: Callable[[Ints], T], batches: Sequence[Ints], threads: int) -> list[T]:
    """The results of `run` for each batch, in order; `threads` batches at once, each computed by one thread."""
    with one_thread():
        if threads == 1:
            return [run(batch) for batch in batches]
        # Longest first, so that no thread is left alone with the longest batch.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, reversed(batches)))[::-1]


BATCH_TOKENS = {"cpu": 1024, "cuda": 65_536}
"""Padded tokens of one batch. On a CPU enough to fill a core and few enough to stay in its cache: a mini backbone takes
a quarter longer at 4,096, and as long at 512 and 2,048. The figure for GPUs is not measured."""


class NotFinite(ValueError):
    """Some rows of a batch have views that are not finite. `rows`: which ones."""

    def __init__(self, rows: Ints) -> None:
        super().__init__(f"the views of {len(rows)} rows are not finite")
        self.rows = rows


@dataclass(frozen=True)
class Encoder:
    """Token rows become views. Everything but `threads` changes the numbers."""

    model: Any  # a `Backbone`, or a `BaseModel`
    pooling: Pooling
    special_V: Tensor  # bool, which ids are special tokens
    pad_id: int
    side: Side
    shared: bool  # whether threads may call it at the same time
    device: str
    batch_tokens: int
    terms: int | None = None  # words of a lexical view that are kept, the heaviest; none: all
    max_length: int | None = None  # tokens a row is cut to, its first ones and its last one, [SEP]; none: as tokenised
    threads: int = 1
    precision: Precision = "fp32"

    def encode(self, rows: Sequence[NDArray[Any]]) -> Views:
        """The views of each token row.

        Raises:
            NotFinite: if there is a NaN or an infinity among them.
        """
        rows = [cut_row(row, self.max_length) for row in rows]
        batches = length_batches(np.array([len(row) for row in rows], dtype=np.int64), self.batch_tokens)
        threads = self.threads if self.device == "cpu" and self.shared else 1
        results = run_batches(lambda batch: self._encode_batch(rows, batch), batches, threads)
        return Views.concat(results).take(np.argsort(np.concatenate(batches), kind="stable"))

    def _encode_batch(self, rows: Sequence[NDArray[Any]], batch: Ints) -> Views:
        """Views of some rows; raises NotFinite for those that are not finite."""
        lengths_B = np.array([len(rows[row]) for row in batch])
        ids_BL = np.full((len(batch), int(lengths_B.max())), self.pad_id, dtype=np.int64)
        ids_BL[np.arange(ids_BL.shape[1]) < lengths_B[:, None]] = np.concatenate([rows[row] for row in batch])
        device = torch.device(self.device)
        bf16 = autocast_type(self.precision, device)
        with torch.inference_mode(), torch.autocast(device.type, dtype=bf16, enabled=bf16 is not None):
            ids, lengths = (torch.from_numpy(array).to(device) for array in (ids_BL, lengths_B))
            views = self.pooling.views(self.model, ids, lengths, self.special_V, self.side)
        arrays = [tensor.float().cpu().numpy() for tensor in views.tensors()]
        finite_B = np.logical_and.reduce([np.isfinite(array).all(axis=1) for array in arrays])
        if views.tokens is not None:  # of its tokens until here
            tokens_B = views.tokens.lengths_B.cpu().numpy()
            finite_B = np.logical_and.reduceat(finite_B, starts_of(tokens_B))
        if not finite_B.all():
            raise NotFinite(batch[~finite_B])
        if views.tokens is not None:
            return Views(None, None, CodedTokens.code(arrays[0], tokens_B))
        return Views(
            None if views.dense_BD is None else arrays[0],
            None if views.lexical_BV is None else top_rows(arrays[-1], self.terms),
        )


def open_encoder(folder: Path, vocabulary: Vocabulary, side: Side, device: str = "cpu", unpooled: int = 0) -> Encoder:
    """The encoder of a folder, in float32, without dropout; runs no code from it. If the folder has experts, it is the
    one of `side`.

    Args:
        unpooled: how many tokens at the beginning of each row take no part in a dense view's pooling.

    Raises:
        UserError: if the folder holds no model, or one whose views midmask cannot make.
    """
    representation = read_facts(folder).representation
    model: Backbone | BaseModel
    if representation.lexical is not None:
        model = load_masked_model(folder).to(device)
        model.pair_sep, pooling, words = vocabulary.pair_sep, model.pooling, model.encoder
        # The query expert takes the place of the model's own weights for the time of a call.
        shared = side == "passage" or model.experts is None
    else:
        words, shared = load_base_model(folder, side).to(device), True
        model, pooling = BaseModel(words, vocabulary.pair_sep), _dense_pooling(folder, representation).to(device)
        pooling.unpooled = unpooled
    rows = len(words.get_input_embeddings().weight)
    refuse_tokens_beyond(f"encoder {str(folder)!r}", vocabulary.size - 1, rows)
    special_V, batch_tokens = vocabulary.special_V.to(device), BATCH_TOKENS[torch.device(device).type]
    return Encoder(model, pooling, special_V, vocabulary.pad_id, side, shared, device, batch_tokens)


def _dense_pooling(folder: Path, representation: Representation) -> Pooling:
    weight = read_projection(folder)
    with fresh_weights(0):
        pooling = Pooling(representation, 0 if weight is None else weight.shape[1])
    if pooling.projection is not None and weight is not None:
        pooling.projection.weight.data = weight
    return pooling


def refuse_unfit(folder: Path, tokenizer: Path | None = None) -> None:
    """Reads a folder's model, and raises UserError if it cannot encode a text, as `open_encoder`.

    Args:
        tokenizer: folder of the tokenizer of its texts; none: not checked.
    """
    lexical = read_facts(folder).representation.lexical is not None
    model = load_masked_model(folder).model if lexical else load_base_model(folder)
    if tokenizer is not None:
        rows = len(model.get_input_embeddings().weight)
        refuse_tokens_beyond(f"encoder {str(folder)!r}", largest_id(load_tokenizer(tokenizer)), rows)


@dataclass(frozen=True)
class BaseModel:
    """Hidden states of a Hugging Face base model, for `Pooling`."""

    model: Any
    pair_sep: int | None

    def first(self, ids_BL: Tensor, lengths_B: Tensor, side: Side) -> Tensor:
        """Last hidden states of the first tokens, [B, D]."""
        if not suits_first_token(self.model):
            return self.hidden(ids_BL, lengths_B, side)[:, 0]
        types = type_inputs(self.model.config, self.pair_sep, ids_BL, lengths_B)
        return first_token(self.model, ids_BL, padding_mask(lengths_B, ids_BL.shape[1]), types)

    def hidden(self, ids_BL: Tensor, lengths_B: Tensor, side: Side) -> Tensor:
        """Last hidden states, [B, L, D]."""
        seen_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
        types = type_inputs(self.model.config, self.pair_sep, ids_BL, lengths_B)
        hidden_BLD: Tensor = self.model(input_ids=ids_BL, attention_mask=seen_BL.long(), **types).last_hidden_state
        return hidden_BLD


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
    model, _ = read_pretrained(AutoModel, folder, f"encoder {str(folder)!r}")
    widen_scores(model)
    if side == "query":
        put_query_expert(model, folder)
    return model.eval()


@dataclass(frozen=True)
class TextEncoder:
    """The encoder in a model artifact, for rows of a tokens artifact; it is opened when it is first used."""

    model: Artifact
    tokens: Artifact
    side: Side
    length: int | None = None  # tokens a row is cut to; none: as tokenised
    threads: int = 1
    precision: Precision = "fp32"

    @cached_property
    def facts(self) -> ModelSettings:
        return read_facts(model_folder(self.model).local())

    @property
    def representation(self) -> Representation:
        return self.facts.representation

    @cached_property
    def tokenizer(self) -> Path:
        return (self.tokens.place / "tokenizer").local()

    @property
    def prompt(self) -> str:
        """The words that the tokens artifact puts before each text of this side."""
        return str(self.tokens.record.get("config", {}).get(f"{self.side}_prompt", ""))

    @property
    def unpooled(self) -> int:
        """How many tokens of a prompt begin each row and take no part in the pooling; 0 if the model pools them."""
        return 0 if self.facts.form.pools_prompt or not self.prompt else prompt_tokens(self.tokenizer, self.prompt)

    def encode(self, rows: Sequence[NDArray[Any]]) -> Views:
        """The views of token rows, as `Encoder.encode`."""
        return self._encoder.encode(rows)

    def encode_queries(self, texts: Sequence[str]) -> Views:
        """The views of texts that are no rows yet, cut and prompted as the tokens artifact's queries; at least one."""
        cut = encoder(self.tokenizer, int(self.tokens.record["config"]["query_length"]))
        return self.encode([np.array(row) for row in cut([self.prompt + text for text in texts])])

    @cached_property
    def _encoder(self) -> Encoder:
        joined = self.tokens.record.get("config", {}).get("title_join", "space")
        vocabulary = Vocabulary.of(self.tokenizer).joined_by(joined)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        opened = open_encoder(model_folder(self.model).local(), vocabulary, self.side, device, self.unpooled)
        terms = self.representation.terms(self.side)
        return replace(opened, terms=terms, max_length=self.length, threads=self.threads, precision=self.precision)


def model_folder(model: Artifact) -> Place:
    """The encoder's folder in an artifact: `model/`, or the artifact itself.

    Raises:
        UserError: if there is no model in either.
    """
    for place in (model.place / "model", model.place):
        if (place / "config.json").exists() or (place / "modules.json").exists():
            return place
    raise UserError(f"{model.place} holds no encoder: config.json is missing; name the result of finetune or pretrain")
