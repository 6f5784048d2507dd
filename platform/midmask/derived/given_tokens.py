"""The step "read_tokens": passages that were tokenised elsewhere become a tokens artifact, without queries.

Rows may have special tokens at their ends or not; this is recognised by the tokens, and all rows must agree. Both are
written as `tokenise` writes them: [CLS] row [SEP]. Shapes: B rows of a block, F of them that are not empty, K that are
kept, T tokens end to end.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pydantic import Field

from midmask.arrays import Ints
from midmask.artifact import Artifact, Place, start_afresh
from midmask.corpora.writer import write_shards
from midmask.errors import UserError
from midmask.exchange.token_files import TokenBlock, read_token_files, token_files
from midmask.identity import Config, runtime
from midmask.tokens import PASSAGES, TOKENISED_QUERIES, finish_tokens
from midmask.vocabulary import Vocabulary

log = logging.getLogger(__name__)


EMPTY = "empty row"


class ReadTokensConfig(Config):
    """Token rows from a folder. What its files hold is the artifact's identity, not where they lie."""

    folder: str = runtime(..., "folder or URI of .parquet or .arrow files with a column input_ids or token_ids")
    max_length: int = Field(
        ge=8, le=8192, description="largest number of tokens of a passage, special tokens included; the rest is cut"
    )


def tokens_content(folder: str) -> dict[str, Any]:
    """Fingerprints of the files, for the step's identity.

    Raises:
        UserError: if there are none.
    """
    place = Place.named(folder)
    return {"files": {name: (place / name).digest() for name in token_files(place)}}


def read_tokens(config: ReadTokensConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input `like`, the tokens whose vocabulary these share. Empty rows go to quarantine.jsonl.

    Raises:
        UserError: naming file and row, for a token id beyond the vocabulary, padding, or special tokens that other
            rows have not; if no row is left.
    """
    start_afresh(out)
    tokenizer = (inputs["like"].place / "tokenizer").local()
    (out / "tokenizer").upload(tokenizer)
    with (out / "quarantine.jsonl").writing() as quarantine:
        reading = _TokenReading(config, Vocabulary.of(tokenizer), quarantine)
        blocks = read_token_files(Place.named(config.folder))
        kept = write_shards((reading.rows(block) for block in blocks), out / "passages", PASSAGES)
    if not kept:
        raise UserError(f"tokens:{config.folder}: there is no row with tokens in it")
    log.info("%s: %d rows of %d read, %d of them cut", config.folder, kept, reading.read, reading.cut)
    return {
        **finish_tokens(out, TOKENISED_QUERIES.empty_table(), reading.cut),
        "had_special_tokens": reading.framed,
        "rows_read": reading.read,
        "rows_kept": kept,
        "rows_cut": reading.cut,
        "rows_quarantined": {EMPTY: reading.read - kept},
    }


class _TokenReading:
    """One reading of a folder. framed: whether rows come with special tokens at their ends; none: not seen yet."""

    def __init__(self, config: ReadTokensConfig, vocabulary: Vocabulary, quarantine: BinaryIO) -> None:
        self._config, self._vocabulary, self._quarantine = config, vocabulary, quarantine
        self.framed: bool | None = None
        self.read = self.cut = 0

    def rows(self, block: TokenBlock) -> pa.Table:
        """A block's rows as a tokens artifact stores them, without the empty ones."""
        self._check_ids(block)
        ends_B = np.cumsum(block.lengths)
        starts_B = ends_B - block.lengths
        self._look(block, starts_B, ends_B)
        inner_B = block.lengths - 2 * bool(self.framed)
        kept_K = np.flatnonzero(inner_B > 0)
        self._quarantine_empty(block, np.flatnonzero(inner_B <= 0))
        inner_K = np.minimum(inner_B[kept_K], self._config.max_length - 2)
        self.read += len(inner_B)
        self.cut += int((inner_K < inner_B[kept_K]).sum())
        ids = _add_specials(block.flat, starts_B[kept_K] + bool(self.framed), inner_K, self._vocabulary)
        return pa.table([block.doc_ids.take(pa.array(kept_K)), ids], schema=PASSAGES)

    def _check_ids(self, block: TokenBlock) -> None:
        size, pad_id = self._vocabulary.size, self._vocabulary.pad_id
        if len(bad_T := np.flatnonzero((block.flat < 0) | (block.flat >= size))):
            raise UserError(
                f"{self._locate(block, bad_T[0])}: token id {block.flat[bad_T[0]]}, but the vocabulary of the recipe's "
                f"corpus has {size:,} entries, from 0. Name the tokenizer that made the rows: tokens.tokenizer=FOLDER"
            )
        if len(padding_T := np.flatnonzero(block.flat == pad_id)):
            raise UserError(
                f"{self._locate(block, padding_T[0])}: token id {pad_id} is padding; write rows without padding"
            )

    def _locate(self, block: TokenBlock, token: int) -> str:
        row = int(np.searchsorted(np.cumsum(block.lengths), token, side="right"))
        return f"tokens:{self._config.folder}, {block.file}, row {block.first + row}"

    def _look(self, block: TokenBlock, starts_B: Ints, ends_B: Ints) -> None:
        """Whether rows have special tokens at their ends, which all must agree in."""
        filled_F = np.flatnonzero(block.lengths)
        begins_F = block.flat[starts_B[filled_F]] == self._vocabulary.cls_id
        closes_F = block.flat[ends_B[filled_F] - 1] == self._vocabulary.sep_id
        if self.framed is None and len(filled_F):
            self.framed = bool(begins_F[0])
        strange_F = np.flatnonzero((begins_F != bool(self.framed)) | (closes_F != bool(self.framed)))
        if len(strange_F):
            raise UserError(
                f"{self._locate(block, starts_B[filled_F[strange_F[0]]])}: [CLS] and [SEP] at its ends: "
                "only one is there, or the rows before it differ; write all rows with both, or all without"
            )

    def _quarantine_empty(self, block: TokenBlock, empty: Ints) -> None:
        for row in empty.tolist():
            line = {"kind": EMPTY, "file": block.file, "row": block.first + row, "doc_id": block.doc_ids[row].as_py()}
            self._quarantine.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def _add_specials(flat_T: Ints, starts_K: Ints, lengths_K: Ints, vocabulary: Vocabulary) -> pa.ListArray:
    """[CLS], `lengths` tokens from `starts` on, [SEP], for each row; list<int32>."""
    ends_K = np.cumsum(lengths_K + 2)
    begins_K = ends_K - lengths_K - 2
    total = int(lengths_K.sum())
    ids_T = np.empty(total + 2 * len(lengths_K), dtype=np.int32)
    inner_T = np.ones(len(ids_T), dtype=bool)
    inner_T[begins_K] = inner_T[ends_K - 1] = False
    shift_K = starts_K - (np.cumsum(lengths_K) - lengths_K)
    ids_T[inner_T] = flat_T[np.arange(total) + np.repeat(shift_K, lengths_K)]
    ids_T[begins_K], ids_T[ends_K - 1] = vocabulary.cls_id, vocabulary.sep_id
    offsets = np.concatenate([[0], ends_K]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids_T))
