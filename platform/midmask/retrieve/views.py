"""The views of texts, and the files of a block of them: `dense/00000.npy`, `lexical/00000.rows`, `late/00000.npy` and
`.lengths.npy`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midmask.arrays import Floats, Ints
from midmask.artifact import Place
from midmask.retrieve.coded_tokens import CodedTokens, coded_size, load_array, read_coded
from midmask.retrieve.packed import packed_size, read_lengths, read_rows, write_rows
from midmask.retrieve.sparse import SparseRows

SHORTEST = 1e-12
"""The length that a shorter vector is divided by, as torch does it."""


@dataclass(frozen=True)
class Views:
    """Of N texts: dense_ND, float32 [N, D], and lexical, N rows over the vocabulary, of which one may be missing; or
    late, the vectors of their tokens in 8 bits, alone.
    """

    dense_ND: Floats | None
    lexical: SparseRows | None
    late: CodedTokens | None = None

    def write(self, place: Place, name: str) -> None:
        """Writes the files of a block; each appears whole."""
        if self.dense_ND is not None:
            with (place / "dense" / f"{name}.npy").writing() as stream:
                np.save(stream, self.dense_ND)
        if self.lexical is not None:
            with (place / "lexical" / f"{name}.rows").writing() as stream:
                write_rows(stream, self.lexical)
        if self.late is not None:
            self.late.write(place / "late", name)

    def take(self, rows: Ints) -> "Views":
        """Those of some texts, in the given order, of dense and lexical views."""
        dense_ND = None if self.dense_ND is None else np.asarray(self.dense_ND)[rows]
        return Views(dense_ND, None if self.lexical is None else self.lexical.take(rows))

    @classmethod
    def concat(cls, parts: Sequence["Views"]) -> "Views":
        """Dense and lexical views of several blocks, one after the other."""
        dense = [part.dense_ND for part in parts if part.dense_ND is not None]
        lexical = [part.lexical for part in parts if part.lexical is not None]
        return cls(np.concatenate(dense) if dense else None, SparseRows.concat(lexical) if lexical else None)

    def narrowed(self, width: int | None, *, normalise: bool) -> "Views":
        """With the first `width` dimensions of each dense vector alone, of length 1 again if so; none: all."""
        if width is None or self.dense_ND is None:
            return self
        first_NW = np.array(self.dense_ND[:, :width])
        if normalise:
            first_NW /= np.maximum(np.linalg.norm(first_NW, axis=1, keepdims=True), SHORTEST)
        return Views(first_NW, self.lexical)

    def pruned(self, terms: int | None) -> "Views":
        """With the `terms` heaviest words of each text alone; none: all that are there."""
        return self if terms is None or self.lexical is None else Views(self.dense_ND, self.lexical.heaviest(terms))


def are_there(place: Place, name: str, folders: Sequence[str]) -> bool:
    """Whether a block's files are there, all of them."""
    files = {"dense": f"{name}.npy", "lexical": f"{name}.rows", "late": f"{name}.npy"}
    return all((place / folder / files[folder]).exists() for folder in folders)


def read_views(place: Place, name: str, folders: Sequence[str]) -> Views:
    """A block; its dense part and its token vectors are memory-mapped where they are local files."""
    if "late" in folders:
        return Views(None, None, read_coded(place / "late", name))
    dense_ND = load_array(place / "dense" / f"{name}.npy") if "dense" in folders else None
    if "lexical" not in folders:
        return Views(dense_ND, None)
    with (place / "lexical" / f"{name}.rows").reading() as stream:
        return Views(dense_ND, read_rows(stream))


def stored_size(place: Place, name: str, folders: Sequence[str], terms: int | None, width: int | None = None) -> int:
    """Bytes of a block's files if no more than the `terms` heaviest words of each text were kept, and `width` first
    dimensions of its vector; none: as they are."""
    if "late" in folders:
        return coded_size(place / "late", name)
    dense = place / "dense" / f"{name}.npy"
    size = 0
    if "dense" in folders:
        size = dense.size() if width is None else load_array(dense)[:, :width].nbytes
    if "lexical" not in folders:
        return size
    lexical = place / "lexical" / f"{name}.rows"
    if terms is None:
        return size + lexical.size()
    with lexical.reading() as stream:
        lengths, width = read_lengths(stream)
    return size + packed_size(np.minimum(lengths, terms), width)
