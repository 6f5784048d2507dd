"""Tokenising on the cluster: Ray Data maps over the corpus's shards, each written to the storage by the worker that
cut it.
"""

from collections.abc import Mapping
from typing import Any

import ray.data

from midmask.artifact import Artifact, Place
from midmask.tokens import TokensConfig, finish, save_tokenizer, tokenise_shard


def tokenise(config: TokensConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The same files as the one-process step. Shards that an earlier, killed run has written are not cut again."""
    corpus = inputs["corpus"].place
    save_tokenizer(config, corpus, out)
    present = set((out / "passages").names())
    missing = [name for name in (corpus / "docs").names() if name not in present]

    def cut(row: dict[str, str]) -> dict[str, str]:
        tokenise_shard(config, corpus, out, row["shard"])
        return row

    if missing:
        shards = ray.data.from_items([{"shard": name} for name in missing], override_num_blocks=len(missing))
        shards.context.enable_progress_bars = False
        shards.map(cut).materialize()
    return finish(config, corpus, out)
