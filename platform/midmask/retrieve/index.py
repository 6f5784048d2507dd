"""Approximate indexes: their settings and checks, and the step that builds one.

    encoded passages ─► index (faiss or Seismic, of all passages) ─► index/passages.* ─► every search of every split

An index is built once, by one process, so that a search finds the same passages on any number of machines: each of them
opens the whole index and searches some of the queries. "Flat" is exact and needs no index of its own: the vectors are
searched as they are, a shard on each machine.

An index is mapped into memory, not read, so that processes of one machine share its pages: lists and codes of IVF, SQ
and PQ, and HNSW's graph. faiss reads the fast-scan codes of PQ (`x4fs`) into the memory of each process, and builds
NSG in a way that asks for many passages.
"""

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from midmask.arrays import Floats
from midmask.artifact import Artifact, Place
from midmask.errors import UserError, last_line
from midmask.identity import Config, added, runtime
from midmask.retrieve.blocks import Block, passage_blocks
from midmask.retrieve.dense import load_faiss
from midmask.retrieve.index_training import TRAINING_ROWS, VectorBlocks, learn
from midmask.retrieve.seismic import HEAP_FACTOR, QUERY_CUT, SEISMIC, SeismicIndex, build_seismic_index, load_seismic
from midmask.retrieve.views import read_views

FLAT = "Flat"

LISTS_SEARCHED = 8
"""Without `nprobe`, one of so many lists is searched, and at least so many lists: on SQuAD's size nearly all that an
exact search finds, where faiss's own default of a single list loses one in eight."""

EF_SEARCH = 64
"""Without `ef_search`, candidates that HNSW keeps while it searches, if fewer passages are asked for."""

FILE = "passages.faiss"

WIDTH = 1536
"""Stands for a width that is not known: all usual numbers of PQ's parts divide it."""


class IndexFields(Config):
    """The index that a search uses, and its build and search parameters: of dense vectors, or of words."""

    index: str = Field(
        FLAT,
        description="faiss factory string for dense vectors, such as IVF256,Flat or HNSW32; Seismic for words; Flat is "
        "exact",
    )
    nprobe: int | None = Field(None, ge=1, description="IVF: lists searched for each query; none: one in 8, at least 8")
    ef_search: int | None = Field(
        None, ge=1, description="HNSW: candidates kept while searching; none: the depth, at least 64"
    )
    ef_construction: int | None = Field(
        None, ge=1, description="HNSW: candidates kept while building; none: faiss's own, 40"
    )

    rescore: int = added(
        1,
        "approximate index: candidates, for each passage that is ranked, that are scored again with the stored "
        "vectors; 0: none, the index's own scores rank",
        ge=0,
        le=1000,
    )
    query_cut: int | None = added(
        None, f"Seismic: heaviest words of a query whose lists are searched; none: {QUERY_CUT}", ge=1
    )
    heap_factor: float | None = added(
        None,
        f"Seismic: how much the summary of passages is trusted before they are passed over, lower finds more; none: "
        f"{HEAP_FACTOR}",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _parameters_belong_to_the_index(self) -> Self:
        kinds = {
            "nprobe": ("IVF", "IVF256,Flat"),
            "ef_search": ("HNSW", "HNSW32"),
            "ef_construction": ("HNSW", "HNSW32"),
            "query_cut": (SEISMIC, SEISMIC),
            "heap_factor": (SEISMIC, SEISMIC),
        }
        for name, (kind, example) in kinds.items():
            value = getattr(self, name)
            if value is not None and kind not in self.index:
                raise ValueError(f"{name} = {value} with index = {self.index}: {name} is of {kind}, as index={example}")
        if self.is_exact and self.rescore != 1:
            raise ValueError(f"rescore = {self.rescore} with index = Flat: all scores are exact; leave it at 1")
        if self.is_of_words and self.rescore == 0:
            raise ValueError(f"rescore = 0 with index = {SEISMIC}: its own weights have 16 bits; set 1 or more")
        return self

    @property
    def is_exact(self) -> bool:
        return self.index == FLAT

    @property
    def is_of_words(self) -> bool:
        """Whether it finds by the lexical view, not by the dense one."""
        return self.index == SEISMIC

    def learns(self, width: int | None) -> bool:
        """Whether the index learns from vectors before they are added: IVF, SQ8, PQ, OPQ; not HNSW32 or SQfp16.

        Args:
            width: of the vectors; none: not known.
        """
        return not (self.is_exact or self.is_of_words or empty_index(self.index, width or WIDTH, "").is_trained)

    def check_index(self, place: str, width: int | None) -> None:
        """Finds a wrong index before anything is computed.

        Args:
            place: path of these fields, as typed (`evaluation`). width: of the vectors; none: not known.

        Raises:
            UserError: if faiss does not know the factory string, for this width, or for more lists than there are; if
                Seismic is wanted and not installed.
        """
        if self.is_exact:
            return
        if self.is_of_words:
            load_seismic()
            return
        found = empty_index(self.index, width or WIDTH, place)
        lists = list_count(found)
        if self.nprobe is not None and lists is not None and self.nprobe > lists:
            raise UserError(
                f"{place}.nprobe = {self.nprobe}: index = {self.index} has {lists} lists; set {lists} or less"
            )


class IndexConfig(Config):
    """What index is built of the passages' vectors."""

    index: str = Field(description="faiss factory string, or Seismic")
    ef_construction: int | None = Field(None, ge=1, description="HNSW: candidates kept while building; none: faiss's")
    training_rows: int | None = added(
        None, f"passages that it learns from, drawn from the whole collection; none: {TRAINING_ROWS:,}", ge=1
    )
    threads: int = runtime(1, "threads of the build", ge=1)


def build_index(config: IndexConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: passages (encoded), tokens. Writes `index/passages.faiss`, or Seismic's file in its place.

    Raises:
        UserError: for fewer passages than the index has lists or codes to learn, or for negative weights of words.
    """
    started = time.perf_counter()
    blocks = passage_blocks(inputs["tokens"].place)
    with tempfile.TemporaryDirectory() as folder:
        write = _write_seismic if config.index == SEISMIC else _write_faiss
        passages = write(config, inputs["passages"].place, blocks, Path(folder))
        (out / "index").upload(Path(folder))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "passages": passages,
        "bytes": size,
        "bytes_per_passage": round(size / passages, 2),
        "seconds": round(time.perf_counter() - started, 3),
    }


def _write_faiss(config: IndexConfig, encoded: Place, blocks: Sequence[Block], folder: Path) -> int:
    def read(number: int) -> Floats:
        dense_ND = read_views(encoded, blocks[number].name, ("dense",)).dense_ND
        assert dense_ND is not None
        return dense_ND

    index = build_faiss_index(VectorBlocks([block.rows for block in blocks], read), config)
    load_faiss().write_index(index, str(folder / FILE))
    return int(index.ntotal)


def _write_seismic(config: IndexConfig, encoded: Place, blocks: Sequence[Block], folder: Path) -> int:
    words = [read_views(encoded, block.name, ("lexical",)).lexical for block in blocks]
    return build_seismic_index([block for block in words if block is not None], folder, config.threads)


def build_faiss_index(vectors: VectorBlocks, config: IndexConfig) -> Any:
    """A faiss index of all vectors, in order.

    Raises:
        UserError: as `build_index`, or for an unknown factory string.
    """
    faiss, width = load_faiss(), vectors.read(0).shape[1]
    index = empty_index(config.index, width, "")
    if config.ef_construction is not None:
        faiss.ParameterSpace().set_index_parameter(index, "efConstruction", config.ef_construction)
    # Several threads learn an OPQ rotation that differs in its last digits.
    faiss.omp_set_num_threads(1 if "OPQ" in config.index else config.threads)
    if not index.is_trained:
        learn(index, config.index, vectors, config.training_rows or TRAINING_ROWS)
    faiss.omp_set_num_threads(config.threads)
    for block in vectors:
        index.add(np.ascontiguousarray(block, dtype=np.float32))
    return index


def open_index(place: Place, fields: IndexFields, depth: int) -> Any:
    """The index of a finished step, ready to be searched: faiss's with its file mapped into memory as far as faiss can,
    or Seismic's, which is read.

    Args:
        depth: passages that will be asked for.
    """
    folder = (place / "index").local()
    if fields.is_of_words:
        return SeismicIndex(folder, fields.query_cut, fields.heap_factor)
    index = open_faiss_index(folder)
    set_search_parameters(index, fields, depth)
    return index


def open_faiss_index(folder: Path) -> Any:
    faiss = load_faiss()
    return faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP_IFC)


def empty_index(factory: str, width: int, place: str) -> Any:
    """A faiss index without vectors.

    Raises:
        UserError: if faiss knows no such index of that width.
    """
    faiss = load_faiss()
    try:
        return faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        field = f"{place}.index" if place else "index"
        raise UserError(
            f"{field} = {factory!r}: faiss knows no such index for {width} dimensions ({last_line(error)}); "
            "use Flat, IVF256,Flat or HNSW32"
        ) from None


def list_count(index: Any) -> int | None:
    """Lists of an IVF index; None of another."""
    found = load_faiss().try_extract_index_ivf(index)
    return None if found is None else int(found.nlist)


def set_search_parameters(index: Any, fields: IndexFields, depth: int) -> None:
    """Sets how far an index is searched.

    Args:
        depth: passages asked for.
    """
    space, lists = load_faiss().ParameterSpace(), list_count(index)
    if lists is not None:
        wanted = fields.nprobe or max(LISTS_SEARCHED, lists // LISTS_SEARCHED)
        space.set_index_parameter(index, "nprobe", min(wanted, lists))
    if re.search("HNSW", fields.index):
        space.set_index_parameter(index, "efSearch", fields.ef_search or max(EF_SEARCH, depth))
