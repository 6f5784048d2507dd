"""Token vectors in 8 bits, and the two files of a block of texts.

    late/00000.npy           a record for each token, text after text: `scale`, float32; `codes`, int8 [D]
    late/00000.lengths.npy   int32 [N], the tokens of each text

A vector is its scale times its codes, which lie in -127 … 127; the largest one is at an end of that range. So a token
takes D + 4 bytes, and no component is wrong by more than half a scale. Both files are NumPy's own format.

Shapes: N texts, T tokens of all of them, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midmask.arrays import Floats, Ints, Ints32
from midmask.artifact import Place

LARGEST_CODE = 127


@dataclass(frozen=True)
class CodedTokens:
    """Of N texts: records_T, structured as in the file, perhaps memory-mapped; lengths_N, int32, the tokens of each."""

    records_T: NDArray[Any]
    lengths_N: Ints32

    @staticmethod
    def code(vectors_TD: Floats, lengths_N: Ints32) -> "CodedTokens":
        """The codes of finite vectors; a vector of zeros has scale 0."""
        records_T = np.empty(len(vectors_TD), dtype=record_type(vectors_TD.shape[1]))
        scale_T = np.abs(vectors_TD).max(axis=1, initial=0.0) / np.float32(LARGEST_CODE)
        records_T["scale"] = scale_T
        records_T["codes"] = np.rint(vectors_TD / np.where(scale_T > 0, scale_T, 1.0)[:, None])
        return CodedTokens(records_T, lengths_N.astype(np.int32))

    def __len__(self) -> int:
        return len(self.lengths_N)

    @property
    def width(self) -> int:
        return int(self.records_T.dtype["codes"].shape[0])

    @property
    def starts_N(self) -> Ints:
        """The position of each text's first token."""
        return starts_of(self.lengths_N)

    def take(self, rows: Ints) -> "CodedTokens":
        """The texts at these positions, in this order; only their records are read."""
        lengths = self.lengths_N[rows]
        return CodedTokens(self.records_T[token_places(self.starts_N[rows], lengths)], lengths)

    @staticmethod
    def concat(parts: Sequence["CodedTokens"]) -> "CodedTokens":
        return CodedTokens(
            np.concatenate([part.records_T for part in parts]), np.concatenate([part.lengths_N for part in parts])
        )

    def write(self, folder: Place, name: str) -> None:
        """Writes a block's files; the records come last, so that a block with records is whole."""
        for suffix, array in ((".lengths", self.lengths_N), ("", self.records_T)):
            with (folder / f"{name}{suffix}.npy").writing() as stream:
                np.save(stream, array)


def starts_of(lengths: NDArray[np.integer]) -> Ints:
    """The position of each text's first token, where the texts lie one after the other."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def token_places(starts: Ints, lengths: NDArray[np.integer]) -> Ints:
    """The positions of all tokens of the texts that begin there, text after text."""
    return np.repeat(starts - starts_of(lengths), lengths) + np.arange(int(lengths.sum()))


def record_type(width: int) -> np.dtype[Any]:
    """The type of a token's record, `width` + 4 bytes."""
    return np.dtype([("scale", "<f4"), ("codes", "i1", (width,))])


def read_coded(folder: Place, name: str) -> CodedTokens:
    """A block's token vectors; the records are memory-mapped where they are a local file."""
    return CodedTokens(load_array(folder / f"{name}.npy"), load_array(folder / f"{name}.lengths.npy"))


def coded_size(folder: Place, name: str) -> int:
    """Bytes of a block's files."""
    return sum((folder / f"{name}{suffix}.npy").size() for suffix in (".lengths", ""))


def load_array(place: Place) -> NDArray[Any]:
    """An array of NumPy's format: memory-mapped where it is a local file, read otherwise."""
    if place.is_path:
        return np.load(place.local(), mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    with place.reading() as stream:
        return np.load(stream, allow_pickle=False)  # type: ignore[no-any-return]
