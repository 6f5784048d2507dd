"""The views of texts (dense, lexical, token vectors in 8 bits), and the files of a block of them.

    dense/00000.npy          float32 [N, D]
    lexical/00000.rows       sparse rows, packed
    late/00000.npy           a record for each token, text after text: `scale`, float32; `codes`, int8 [D]
    late/00000.lengths.npy   int32 [N], the tokens of each text

A token vector is its scale times its codes, which lie in -127 … 127; the largest one is at an end of that range. So a
token takes D + 4 bytes, and no component is wrong by more than half a scale.

Shapes: N texts, T tokens of all of them, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from midmask.core.arrays import Floats, Ints, Ints32
from midmask.retrieve.sparse import heaviest, pack_rows, stacked, unpack_rows
from midmask.store.place import Place

if TYPE_CHECKING:
    from scipy.sparse import csr_array

T = TypeVar("T")

LARGEST_CODE = 127


@dataclass(frozen=True)
class CodedTokens:
    """The token vectors of N texts in 8 bits, text after text."""

    records_T: NDArray[Any]  # structured as in the file; may be memory-mapped
    lengths_N: Ints32  # number of tokens of each text

    @staticmethod
    def code(vectors_TD: Floats, lengths_N: Ints32) -> "CodedTokens":
        """The codes of finite vectors; a vector of zeros has scale 0."""
        records_T = np.empty(len(vectors_TD), dtype=[("scale", "<f4"), ("codes", "i1", (vectors_TD.shape[1],))])
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
        for ending, array in zip(SUFFIXES["late"], (self.lengths_N, self.records_T), strict=True):
            (folder / f"{name}{ending}").write_array(array)


def starts_of(lengths: NDArray[np.integer]) -> Ints:
    """The position of each text's first token, where the texts lie one after the other."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def token_places(starts: Ints, lengths: NDArray[np.integer]) -> Ints:
    """The positions of all tokens of the texts that begin there, text after text."""
    return np.repeat(starts - starts_of(lengths), lengths) + np.arange(int(lengths.sum()))


def read_coded(folder: Place, name: str) -> CodedTokens:
    """A block's token vectors; the records are memory-mapped where they are a local file."""
    return CodedTokens(load_array(folder / f"{name}.npy"), load_array(folder / f"{name}.lengths.npy"))


def load_array(place: Place) -> NDArray[Any]:
    """An array of NumPy's format: memory-mapped where it is a local file, read otherwise."""
    if place.is_path:
        return np.load(place.local(), mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    return place.read_array()


SHORTEST = 1e-12
"""The length that a shorter vector is divided by, as torch does it."""


@dataclass(frozen=True)
class Views:
    """The views of N texts: dense vectors, lexical rows or both; or token vectors alone."""

    dense_ND: Floats | None
    lexical: "csr_array | None"  # N rows over the vocabulary
    late: CodedTokens | None = None  # the vectors of the texts' tokens in 8 bits

    @property
    def vectors_ND(self) -> Floats:
        """The dense vectors, which must be there."""
        return np.asarray(_present("dense", self.dense_ND))

    @property
    def words(self) -> "csr_array":
        """The lexical rows, which must be there."""
        return _present("lexical", self.lexical)

    @property
    def tokens(self) -> CodedTokens:
        """The token vectors, which must be there."""
        return _present("late", self.late)

    def write(self, place: Place, name: str) -> None:
        """Writes the files of a block; each appears whole."""
        if self.dense_ND is not None:
            (place / "dense" / f"{name}.npy").write_array(self.dense_ND)
        if self.lexical is not None:
            (place / "lexical" / f"{name}.rows").write(pack_rows(self.lexical))
        if self.late is not None:
            self.late.write(place / "late", name)

    def take(self, rows: Ints) -> "Views":
        """The views of some texts, in the given order."""
        return Views(
            None if self.dense_ND is None else np.asarray(self.dense_ND)[rows],
            None if self.lexical is None else self.lexical[rows],
            None if self.late is None else self.late.take(rows),
        )

    @classmethod
    def concat(cls, parts: Sequence["Views"]) -> "Views":
        """The views of several blocks, one after the other."""
        dense = [part.dense_ND for part in parts if part.dense_ND is not None]
        lexical = [part.lexical for part in parts if part.lexical is not None]
        late = [part.late for part in parts if part.late is not None]
        return cls(
            np.concatenate(dense) if dense else None,
            stacked(lexical) if lexical else None,
            CodedTokens.concat(late) if late else None,
        )

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
        return self if terms is None or self.lexical is None else Views(self.dense_ND, heaviest(self.lexical, terms))


def _present(name: str, view: T | None) -> T:
    if view is None:
        raise ValueError(f"there is no {name} view of these texts")
    return view


SUFFIXES = {"dense": (".npy",), "lexical": (".rows",), "late": (".lengths.npy", ".npy")}
"""View -> endings of a block's files; with the last one of them, a block is whole."""


def are_there(place: Place, name: str, folders: Sequence[str]) -> bool:
    """Whether a block's files are there, all of them."""
    return all((place / folder / f"{name}{SUFFIXES[folder][-1]}").exists() for folder in folders)


def read_views(place: Place, name: str, folders: Sequence[str]) -> Views:
    """Reads a block; its dense part and its token vectors are memory-mapped where they are local files."""
    return Views(
        load_array(place / "dense" / f"{name}.npy") if "dense" in folders else None,
        unpack_rows((place / "lexical" / f"{name}.rows").read()) if "lexical" in folders else None,
        read_coded(place / "late", name) if "late" in folders else None,
    )


def stored_size(place: Place, name: str, folders: Sequence[str], terms: int | None, width: int | None = None) -> int:
    """Bytes of a block's files if no more than the `terms` heaviest words of each text were kept, and `width` first
    dimensions of its vector; none: as they are."""
    sizes = {view: sum((place / view / f"{name}{end}").size() for end in SUFFIXES[view]) for view in folders}
    if "dense" in sizes and width is not None:
        sizes["dense"] = load_array(place / "dense" / f"{name}.npy")[:, :width].nbytes
    if "lexical" in sizes and terms is not None:
        sizes["lexical"] = len(pack_rows(read_views(place, name, ("lexical",)).pruned(terms).words))
    return sum(sizes.values())
