"""The encoding step: the vectors of all passages of a corpus, or of a split's queries, in blocks.

    passages   the row groups of the tokens artifact            ─► dense/00000.npy …, lexical/00000.rows …
    queries    selection.parquet (query_id, ids), by query id   ─► the same

Which views there are is the representation's that the model was trained for; the vectors of tokens, in 8 bits, are
in late/.

A block that is there is not encoded again, so a killed encoding goes on. One process works through the blocks
(`encode`), or `backend.pool` deals them out to actors; the files are the same.

One encoding of the passages serves every evaluation and mining of its model. `encode/` in the storage may be deleted
at any time, since a finished step never reads its inputs.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Ints
from midmask.core.config import Config, added, runtime
from midmask.encoders.representation import Side
from midmask.errors import UserError
from midmask.retrieve.blocks import SELECTION, Block, blocks_in, passage_blocks, token_rows
from midmask.retrieve.searched_queries import select_queries
from midmask.retrieve.text_encoder import NotFinite, TextEncoder
from midmask.retrieve.views import are_there
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table

log = logging.getLogger(__name__)


class EncodeConfig(Config):
    """Which texts are encoded, and how far they are read."""

    WITHDRAWN = (("terms", None),)

    side: Literal["passages", "queries"] = Field(description="all passages of the corpus, or queries of a split")
    split: str | None = Field(None, description="whose queries; for passages none")
    judged: Literal["any", "relevant"] = Field(
        "any", description="queries with any judgement, or with a relevant passage"
    )
    max_queries: int | None = Field(
        None, ge=1, description="number of queries, chosen by a hash of their id; none: all"
    )
    length: int | None = Field(None, ge=4, description="tokens a text is cut to; none: as tokenised")
    precision: Literal["fp32", "bf16"] = added("fp32", "of the encoder's products")
    threads: int = runtime(1, "threads of each process", ge=1)


@dataclass(frozen=True)
class Encode:
    """An encoding's config and inputs. Inputs: model, tokens; for queries also corpus. The same class works in a loop
    and as a Ray actor, which holds the encoder from the first block on.
    """

    config: EncodeConfig
    inputs: Mapping[str, Artifact]
    out: Place
    started: float = field(default_factory=time.perf_counter, init=False, compare=False)

    def begin(self) -> int:
        """Selects the queries, if it is about queries; returns the number of blocks.

        Raises:
            UserError: if there is nothing to encode, or no model to encode it with.
        """
        if self.config.side == "queries":
            config, corpus, out = self.config, self.inputs["corpus"], self.out
            queries = read_table(self.inputs["tokens"].place / "queries.parquet")
            select_queries(queries, corpus, str(config.split), out, judged=config.judged, limit=config.max_queries)
        if not self.blocks:
            raise UserError(f"{self.inputs['tokens'].place} holds no passages to encode")
        return len(self.blocks)

    @cached_property
    def encoder(self) -> TextEncoder:
        config = self.config
        side: Side = "query" if config.side == "queries" else "passage"
        reading = config.length, config.threads, config.precision
        return TextEncoder(self.inputs["model"], self.inputs["tokens"], side, *reading)

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views, which are the folders that they are written to."""
        return self.encoder.representation.views

    @cached_property
    def blocks(self) -> list[Block]:
        if self.config.side == "queries":
            return blocks_in([self.out / SELECTION])
        return passage_blocks(self.inputs["tokens"].place)

    def encode(self, number: int) -> int:
        """Writes the views of a block; returns 1 if they were missing.

        Raises:
            UserError: naming the texts whose views are not finite.
        """
        block = self.blocks[number]
        if are_there(self.out, block.name, self.views):
            return 0
        name = "query_id" if self.config.side == "queries" else "doc_id"
        table = block.read([name, "ids"])
        try:
            views = self.encoder.encode(token_rows(table["ids"]))
        except NotFinite as error:
            names = table[name].take(pa.array(error.rows)).to_pylist()
            raise UserError(
                f"the encoder gives vectors that are not finite, among them of the {self.config.side} "
                f"{', '.join(map(repr, names[:5]))}; its training went wrong, so use an earlier checkpoint"
            ) from None
        views.write(self.out, block.name)
        log.info("encoded %s %d to %d", self.config.side, block.start, block.start + block.rows)
        return 1

    def finish(self) -> dict[str, Any]:
        """The step's result: how much was encoded, from what, and how many bytes each text takes."""
        rows = sum(block.rows for block in self.blocks)
        size = sum((self.out / folder).size() for folder in self.views)
        return {
            "views": list(self.views),
            "normalised": self.encoder.representation.normalise,
            "side": self.config.side,
            "split": self.config.split,
            "rows": rows,
            **self._reading(),
            "blocks": len(self.blocks),
            "model": self.inputs["model"].fingerprint,
            "tokens": self.inputs["tokens"].fingerprint,
            "bytes": size,
            "seconds": round(time.perf_counter() - self.started, 3),
            "bytes_per_passage" if self.config.side == "passages" else "bytes_per_query": round(size / rows, 2),
        }

    def _reading(self) -> dict[str, Any]:
        """How far texts were read: tokens of the longest, share that was cut; for passages, whether with titles."""
        tokens, length, passages = self.inputs["tokens"], self.config.length, self.config.side == "passages"
        config = tokens.record.get("config", {})
        read_to = config.get("max_length" if passages else "query_length")
        titles = {"titles": config.get("titles")} if passages else {}
        if length is not None and (read_to is None or length < read_to):
            return {"length": length, "cut_share": round(float((self._lengths() > length).mean()), 4), **titles}
        if passages:
            return {"length": read_to, "cut_share": tokens.result.get("cut_share"), **titles}
        cut = pc.mean(read_table(self.out / SELECTION, ["cut"])["cut"]).as_py()
        return {"length": read_to, "cut_share": round(cut or 0.0, 4)}

    def _lengths(self) -> Ints:
        """Tokens of every text, as tokenised."""
        if self.config.side == "passages":
            return (self.inputs["tokens"].place / "lengths.npy").read_array().astype(np.int64)
        ids = read_table(self.out / SELECTION, ["ids"])["ids"]
        return np.asarray(pc.list_value_length(ids).to_numpy(), dtype=np.int64)


def encode(config: EncodeConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The one-process step."""
    work = Encode(config, inputs, out)
    for block in range(work.begin()):
        work.encode(block)
    return work.finish()
