"""Embeddings that come from elsewhere or go there: one id and one vector a text.

    manifest.json     {"format": 1, "rows", "width", "dtype", "shards": [{"file", "rows"}, …]}
    ids.txt           an id a line, in the order of the rows
    00000.npy …       float32 [rows, width], read by memory map

Tevatron's pickles `(array, ids)` are read; what is written here never needs unpickling.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError  # numpy raises it, of the header of a damaged .npy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.errors import UserError, reason
from midmask.exchange.pickles import PickledArray, read_pickle

Floats = NDArray[np.float32]

MANIFEST, IDS = "manifest.json", "ids.txt"
FORMAT = 1


@dataclass(frozen=True)
class Embeddings:
    """ids: one a row, none twice. shards: float32 [rows, width] each, in order; may lie on disk."""

    ids: Sequence[str]
    shards: Sequence[Floats]

    @property
    def width(self) -> int:
        return int(self.shards[0].shape[1])

    def blocks(self) -> Iterator[tuple[Sequence[str], Floats]]:
        """(ids, vectors) shard by shard."""
        start = 0
        for vectors_ND in self.shards:
            yield self.ids[start : start + len(vectors_ND)], vectors_ND
            start += len(vectors_ND)


def write_embeddings(folder: Place, blocks: Iterable[tuple[Sequence[str], Floats]]) -> int:
    """Writes a folder, a shard for each block of (ids, float32 [rows, width]); returns the number of rows.

    Memory holds one block and all ids. The manifest comes last, so that half a folder is not taken for a whole one.

    Raises:
        UserError: naming the id that is empty, stands twice, holds a line break, or has a vector that is not finite.
        ValueError: if ids and vectors, or the widths of blocks, do not match.
    """
    ids: list[str] = []
    shards: list[dict[str, Any]] = []
    width: int | None = None
    for names, vectors_ND in blocks:
        width = vectors_ND.shape[1] if width is None else width
        if vectors_ND.dtype != np.float32 or vectors_ND.shape != (len(names), width):
            raise ValueError(f"{len(names)} ids with {vectors_ND.dtype} {vectors_ND.shape}, of width {width} before")
        _check_vectors(str(folder), names, vectors_ND)
        shards.append({"file": f"{len(shards):05d}.npy", "rows": len(names)})
        with (folder / shards[-1]["file"]).writing() as stream:
            np.save(stream, vectors_ND, allow_pickle=False)
        ids += names
    if width is None:
        raise UserError(f"{folder}: no embeddings to write")
    _check_ids(str(folder), ids)
    (folder / IDS).write("".join(f"{name}\n" for name in ids).encode())
    manifest = {"format": FORMAT, "rows": len(ids), "width": width, "dtype": "float32", "shards": shards}
    (folder / MANIFEST).write_json(manifest)
    return len(ids)


def read_embeddings(folder: Path) -> Embeddings:
    """A folder that `write_embeddings` wrote; vectors stay on disk until they are asked for.

    Raises:
        UserError: if it is of a newer format, or its files are not those that the manifest says.
    """
    manifest = Place(str(folder / MANIFEST))
    if not manifest.exists():
        raise UserError(f"{folder}: no embeddings; {MANIFEST} is missing")
    try:
        said = manifest.read_json()
        if said["format"] > FORMAT:
            raise UserError(f"{manifest}: format = {said['format']}, but this midmask knows {FORMAT}. Use a newer one.")
        ids = (folder / IDS).read_text("utf-8").split("\n")[:-1]
        shards = [
            np.load(folder / _plain_name(shard["file"]), mmap_mode="r", allow_pickle=False) for shard in said["shards"]
        ]
        wanted = [("float32", (shard["rows"], said["width"])) for shard in said["shards"]]
    except (OSError, ValueError, KeyError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise UserError(f"{folder}: no embeddings can be read there ({reason(error)})") from None
    found = [(str(shard.dtype), shard.shape) for shard in shards]
    if not found or found != wanted or len(ids) != said["rows"] or sum(map(len, shards)) != len(ids):
        raise UserError(f"{folder}: {len(ids)} ids and shards {found}, but {MANIFEST} says {said['rows']} and {wanted}")
    _check_ids(str(folder), ids)
    return Embeddings(ids, shards)


def read_tevatron(place: Place) -> Embeddings:
    """A pickle `(array, ids)` as Tevatron's encode writes it; half precision becomes single. Nothing in it is run.

    Raises:
        UserError: if it holds anything else.
    """
    found = read_pickle(place)
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[0], PickledArray):
        raise UserError(f"{place}: not a pair of an array and ids, as Tevatron writes embeddings")
    vectors_ND, names = found[0].values, found[1]
    names = names.values.tolist() if isinstance(names, PickledArray) else names
    if vectors_ND.ndim != 2 or vectors_ND.dtype.kind != "f":
        raise UserError(f"{place}: an array {vectors_ND.dtype} {vectors_ND.shape} instead of floats [rows, width]")
    if not isinstance(names, list | tuple) or not all(type(name) in (str, int) for name in names):
        raise UserError(f"{place}: its ids are not a list of texts or integers")
    if len(names) != len(vectors_ND):
        raise UserError(f"{place}: {len(names)} ids for {len(vectors_ND)} vectors")
    ids = [str(name) for name in names]
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    _check_vectors(str(place), ids, vectors_ND)
    _check_ids(str(place), ids)
    return Embeddings(ids, [vectors_ND])


def _plain_name(name: str) -> str:
    if Path(name).name != name:
        raise ValueError(f"a shard {name!r} outside of the folder")
    return name


def _check_vectors(place: str, ids: Sequence[str], vectors_ND: Floats) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))
    if len(bad):
        raise UserError(f"{place}: the vector of {ids[bad[0]]!r} is not finite ({len(bad)} such vectors); encode again")


def _check_ids(place: str, ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if not name or "\n" in name or "\r" in name:
            raise UserError(f"{place}: the id {name!r} is empty or holds a line break")
        if name in seen:
            raise UserError(f"{place}: the id {name!r} stands twice")
        seen.add(name)
