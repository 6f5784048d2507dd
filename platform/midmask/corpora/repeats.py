"""Counts of passages that say the same, or nearly so, for collections that keep them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from midmask.corpora.duplicates import clusters, signatures, similar_pairs
from midmask.randomness.texts import Hashes, hash64

COMPARED = 100_000
"""Passages that are compared for near-duplicates: the first ones, at 400 bytes each."""


class Repeats:
    """Texts that stream by, 8 bytes each; `summary()` at the end."""

    def __init__(self, compared: int = COMPARED) -> None:
        self._room = compared
        self._hashes: list[Hashes] = []
        self._signatures: list[np.ndarray] = []

    def watch(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The tables as they are."""
        for table in tables:
            texts = table.column("text").to_pylist()
            self._hashes.append(hash64(texts))
            if texts[: self._room]:
                self._signatures.append(signatures(texts[: self._room]))
                self._room -= len(texts[: self._room])
            yield table

    def summary(self) -> dict[str, int]:
        """exact_copies: passages whose text came before. compared: passages that were compared for near-duplicates; of
        these near_duplicate_clusters of two or more, with near_duplicates passages in them.
        """
        total = sum(map(len, self._hashes))
        unique = len(np.unique(np.concatenate(self._hashes))) if self._hashes else 0
        compared = sum(map(len, self._signatures))
        sizes = np.zeros(0, np.int64)
        if compared:
            roots = clusters(compared, similar_pairs(np.concatenate(self._signatures)))
            sizes = np.unique(roots, return_counts=True)[1]
        return {
            "exact_copies": total - unique,
            "compared": compared,
            "near_duplicate_clusters": int((sizes > 1).sum()),
            "near_duplicates": int(sizes[sizes > 1].sum()),
        }
