"""Identifiers: their rows in order of arrival."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midmask.core.arrays import Ints


class IdTable:
    """Ids in order of arrival, row 0 first; about 150 bytes an id of 10 characters."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, ids: Sequence[str]) -> Ints:
        """The row of each id, -1 where it is unknown; int64 [N]."""
        return np.array([self._rows.get(name, -1) for name in ids], np.int64)

    def add(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Adds the ids that are new; True where an id was new, False where it was there (or came earlier in `ids`)."""
        new = np.zeros(len(ids), bool)
        for place, name in enumerate(ids):
            row = len(self._rows)
            new[place] = self._rows.setdefault(name, row) == row
        return new
