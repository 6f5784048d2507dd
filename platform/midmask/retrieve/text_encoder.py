"""The encoder of one side (queries or passages) as a search needs it: token rows to the views that are stored or
scored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midmask.artifact import Artifact, Place
from midmask.encoders.model_settings import ModelSettings, read_facts
from midmask.encoders.pooling import Side
from midmask.encoders.precision import Precision
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.retrieve.models import Encoder, open_encoder
from midmask.retrieve.vectors import BATCH_TOKENS, Encoding, encode_rows
from midmask.retrieve.views import Views
from midmask.token_rows import encoder, prompt_tokens
from midmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextEncoder:
    """The encoder in a model artifact, for rows of a tokens artifact; it is opened when it is first used.

    length: tokens a row is cut to; none: as tokenised. terms: words of a lexical view that are kept; none: as many as
    the model was trained for.
    """

    model: Artifact
    tokens: Artifact
    side: Side
    length: int | None = None
    terms: int | None = None
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
        """The views of token rows.

        Raises:
            NotFinite: if there is a NaN or an infinity among them.
        """
        return encode_rows(self._encoder, rows, self._encoding)

    def encode_queries(self, texts: Sequence[str]) -> Views:
        """The views of texts that are no rows yet, cut and prompted as the tokens artifact's queries; at least one."""
        cut = encoder(self.tokenizer, int(self.tokens.record["config"]["query_length"]))
        return self.encode([np.array(row) for row in cut([self.prompt + text for text in texts])])

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        joined = self.tokens.record.get("config", {}).get("title_join", "space")
        return Vocabulary.of(self.tokenizer).joined_by(joined)

    @cached_property
    def _encoder(self) -> Encoder:
        folder = model_folder(self.model).local()
        return open_encoder(folder, self._vocabulary, self.side, self._encoding.device, self.unpooled)

    @cached_property
    def _encoding(self) -> Encoding:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return Encoding(
            pad_id=self._vocabulary.pad_id,
            terms=self.terms or self.representation.terms(self.side),
            max_length=self.length,
            batch_tokens=BATCH_TOKENS[device],
            device=device,
            threads=self.threads,
            precision=self.precision,
        )


def model_folder(model: Artifact) -> Place:
    """Where an artifact keeps its encoder: in `model/`, or in itself.

    Raises:
        UserError: if there is no model in either.
    """
    for place in (model.place / "model", model.place):
        if (place / "config.json").exists() or (place / "modules.json").exists():
            return place
    raise UserError(f"{model.place} holds no encoder: config.json is missing; name the result of finetune or pretrain")
