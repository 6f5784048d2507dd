"""Identifiers: a compact exact table of millions of them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.core.arrays import Ints
from midmask.core.randomness import Hashes, hash64


class IdTable:
    """Ids in order of arrival, row 0 first; about 25 bytes an id of 10 characters.

    Sorted runs of (hash, row) are searched and merged as they grow, as in a log-structured merge tree. A hash that is
    found is compared with the id itself, so that two ids with one hash stay two ids.
    """

    def __init__(self, hash_bits: int = 64) -> None:
        self._mask = np.uint64(2**hash_bits - 1)
        self._runs: list[tuple[Hashes, Ints]] = []
        self._chunks: list[pa.StringArray] = []
        self._starts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> str:
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        return str(self._chunks[chunk][row - self._starts[chunk]])

    def rows(self, ids: Sequence[str]) -> Ints:
        """The row of each id, -1 where it is unknown; int64 [N]."""
        return self._find_rows(ids, hash64(ids) & self._mask)

    def _find_rows(self, ids: Sequence[str], hashes: Hashes) -> Ints:
        rows = np.full(len(ids), -1, np.int64)
        for run_hashes, run_rows in self._runs:
            first = np.searchsorted(run_hashes, hashes)
            last = np.searchsorted(run_hashes, hashes, side="right")
            for index in np.flatnonzero(last > first).tolist():
                for row in run_rows[first[index] : last[index]]:
                    if self[int(row)] == ids[index]:
                        rows[index] = row
        return rows

    def add(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Adds the ids that are new; True where an id was new, False where it was there (or came earlier in `ids`)."""
        hashes = hash64(ids) & self._mask
        new = self._find_rows(ids, hashes) < 0
        seen: set[str] = set()
        for index in np.flatnonzero(new).tolist():
            new[index] = ids[index] not in seen
            seen.add(ids[index])
        fresh = [ids[index] for index in np.flatnonzero(new).tolist()]
        if fresh:
            order = np.argsort(hashes[new], kind="stable")
            self._starts.append(self._count)
            self._chunks.append(pa.array(fresh, pa.string()))
            self._runs.append((hashes[new][order], self._count + order))
            self._count += len(fresh)
            self._merge()
        return new

    def _merge(self) -> None:
        while len(self._runs) > 1 and len(self._runs[-1][0]) * 2 > len(self._runs[-2][0]):
            (left_hashes, left_rows), (right_hashes, right_rows) = self._runs[-2:]
            hashes, rows = np.concatenate([left_hashes, right_hashes]), np.concatenate([left_rows, right_rows])
            order = np.argsort(hashes, kind="stable")
            self._runs[-2:] = [(hashes[order], rows[order])]
