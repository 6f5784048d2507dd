"""Approximate indexes of dense vectors, by faiss: settings, training, the step that builds one, and its recall.

    encoded passages ─► index (of all passages) ─► index/passages.* ─► every search of every split
    encoded queries ─► sample ─► exact search ─┐
    encoded queries ─► approximate search ─────┴► recall, among the results of the approximate search

An index is built once, by one process, so that a search finds the same passages on any number of machines: each of them
opens the whole index and searches some of the queries. "Flat" is exact and needs no index of its own: the vectors are
searched as they are, a shard on each machine. Recall is the share of an exact search's best passages that an
approximate one finds; sample and exact search are steps of their own, so that all indexes of one encoding are held
against one list.

An index is mapped into memory, so that processes of one machine share its pages; but faiss reads the fast-scan codes
of PQ (`x4fs`) into the memory of each process.
"""

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from midmask.core.arrays import Floats
from midmask.core.config import Config, added, runtime
from midmask.core.randomness import fixed_sample, mix
from midmask.errors import UserError, last_line
from midmask.retrieve import ranked
from midmask.retrieve.blocks import QUERY_BLOCK, SELECTION, blocks_in, passage_blocks
from midmask.retrieve.dense import load_faiss
from midmask.retrieve.views import Views, read_views
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table, write_table

TRAINING_ROWS = 262_144
"""Passages that a trained index (IVF, SQ8, PQ, OPQ) learns from: drawn from the whole collection by a hash of the row,
since collections are often sorted by topic or source.
"""

SAMPLE_KEY = 16
"""Of the hash that draws them."""


@dataclass(frozen=True)
class VectorBlocks:
    """Vectors in blocks, each read when it is needed: a collection's may be more than memory holds."""

    lengths: Sequence[int]  # rows of each block
    read: Callable[[int], Floats]  # the number of a block -> its vectors, float32 [n, D]

    def __iter__(self) -> Iterator[Floats]:
        return map(self.read, range(len(self.lengths)))


def _sample_rows(vectors: VectorBlocks, size: int) -> Floats:
    """So many of all vectors, those with the lowest hash of their row, in row order; all where there are no more."""
    count = sum(vectors.lengths)
    is_drawn_N = np.ones(count, bool)
    if size < count:
        is_drawn_N[np.argpartition(mix(SAMPLE_KEY, np.arange(count)), size)[size:]] = False
    parts = np.split(is_drawn_N, np.cumsum(vectors.lengths)[:-1])
    return np.concatenate([np.asarray(block)[drawn] for block, drawn in zip(vectors, parts, strict=True)])


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
    """The index of dense vectors that a search uses, and its build and search parameters."""

    index: str = Field(FLAT, description="faiss factory string, such as IVF256,Flat or HNSW32; Flat is exact")
    nprobe: int | None = Field(None, ge=1, description="IVF: lists searched for each query; none: one in 8, at least 8")
    ef_search: int | None = Field(
        None, ge=1, description="HNSW: candidates kept while searching; none: the depth, at least 64"
    )
    ef_construction: int | None = Field(
        None, ge=1, description="HNSW: candidates kept while building; none: faiss's own, 40"
    )

    rescore: int = added(
        1,
        "approximate index: candidates, for each passage that is ranked, that are scored again with the stored vectors",
        ge=1,
        le=1000,
    )

    @model_validator(mode="after")
    def _parameters_belong_to_the_index(self) -> Self:
        kinds = {
            "nprobe": ("IVF", "IVF256,Flat"),
            "ef_search": ("HNSW", "HNSW32"),
            "ef_construction": ("HNSW", "HNSW32"),
        }
        for name, (kind, example) in kinds.items():
            value = getattr(self, name)
            if value is not None and kind not in self.index:
                raise ValueError(f"{name} = {value} with index = {self.index}: {name} is of {kind}, as index={example}")
        if self.is_exact and self.rescore != 1:
            raise ValueError(f"rescore = {self.rescore} with index = Flat: all scores are exact; leave it at 1")
        return self

    @property
    def is_exact(self) -> bool:
        return self.index == FLAT

    def learns(self, width: int | None) -> bool:
        """Whether the index learns from vectors before they are added: IVF, SQ8, PQ, OPQ; not HNSW32 or SQfp16.

        Args:
            width: of the vectors; none: not known.
        """
        return not (self.is_exact or empty_index(self.index, width or WIDTH, "").is_trained)

    def check_index(self, place: str, width: int | None) -> None:
        """Finds a wrong index before anything is computed.

        Args:
            place: path of these fields, as typed (`evaluation`). width: of the vectors; none: not known.

        Raises:
            UserError: if faiss does not know the factory string, for this width, or for more lists than there are.
        """
        if self.is_exact:
            return
        empty = empty_index(self.index, width or WIDTH, place)
        lists = list_count(empty)
        if self.nprobe is not None and lists is not None and self.nprobe > lists:
            raise UserError(
                f"{place}.nprobe = {self.nprobe}: index = {self.index} has {lists} lists; set {lists} or less"
            )


class IndexConfig(Config):
    """What index is built of the passages' vectors."""

    index: str = Field(description="faiss factory string")
    ef_construction: int | None = Field(None, ge=1, description="HNSW: candidates kept while building; none: faiss's")
    training_rows: int | None = added(
        None, f"passages that it learns from, drawn from the whole collection; none: {TRAINING_ROWS:,}", ge=1
    )
    threads: int = runtime(1, "threads of the build", ge=1)


def build_index(config: IndexConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: passages (encoded), tokens. Writes `index/passages.faiss`.

    Raises:
        UserError: for fewer passages than the index has lists or codes to learn.
    """
    started = time.perf_counter()
    blocks = passage_blocks(inputs["tokens"].place)

    def read(number: int) -> Floats:
        return read_views(inputs["passages"].place, blocks[number].name, ("dense",)).vectors_ND

    index = build_faiss_index(VectorBlocks([block.rows for block in blocks], read), config)
    passages = int(index.ntotal)
    with tempfile.TemporaryDirectory() as folder:
        load_faiss().write_index(index, str(Path(folder) / FILE))
        (out / "index").upload(Path(folder))
        size = (Path(folder) / FILE).stat().st_size
    return {
        "passages": passages,
        "bytes": size,
        "bytes_per_passage": round(size / passages, 2),
        "seconds": round(time.perf_counter() - started, 3),
    }


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
        sample_ND = _sample_rows(vectors, config.training_rows or TRAINING_ROWS)
        try:
            index.train(sample_ND)
        except RuntimeError as error:
            raise UserError(
                f"index = {config.index!r}: {len(sample_ND)} passages are too few to learn it ({last_line(error)}); "
                "use fewer lists, or Flat"
            ) from None
    faiss.omp_set_num_threads(config.threads)
    for block in vectors:
        index.add(np.ascontiguousarray(block, dtype=np.float32))
    return index


def open_index(folder: Path, fields: IndexFields, depth: int) -> Any:
    """The index of a finished step, ready to be searched: its file is mapped into memory as far as faiss can.

    Args:
        depth: passages that will be asked for.
    """
    faiss = load_faiss()
    index = faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP_IFC)
    set_search_parameters(index, fields, depth)
    return index


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
    ivf = load_faiss().try_extract_index_ivf(index)
    return None if ivf is None else int(ivf.nlist)


def set_search_parameters(index: Any, fields: IndexFields, depth: int) -> None:
    """Sets how far an index is searched.

    Args:
        depth: passages asked for.
    """
    space, lists = load_faiss().ParameterSpace(), list_count(index)
    if lists is not None:
        nprobe = fields.nprobe or max(LISTS_SEARCHED, lists // LISTS_SEARCHED)
        space.set_index_parameter(index, "nprobe", min(nprobe, lists))
    if re.search("HNSW", fields.index):
        space.set_index_parameter(index, "efSearch", fields.ef_search or max(EF_SEARCH, depth))


SAMPLED_QUERIES = 256
"""Queries of the sample: the standard error of a recall of 0.95 at a cutoff of 100 is then below 0.005."""

CUTOFFS = (10, 100)
"""Ranks down to which recall is measured, beside the depth of the search."""

KEPT_FACTS = ("views", "normalised", "side", "split", "model", "tokens", "length", "cut_share")
"""Facts of an encoding that are those of its sample too."""


class SampleConfig(Config):
    """How many encoded queries are drawn."""

    queries: int = Field(SAMPLED_QUERIES, ge=1, le=QUERY_BLOCK, description="queries, chosen by a hash of their id")


def draw_sample(config: SampleConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Input: queries, encoded. Writes the encoding of some of them, in one block. The vectors are copied:
    encoded again in other batches, they would differ in the last bits.
    """
    started, encoded = time.perf_counter(), inputs["queries"]
    queries = read_table(encoded.place / SELECTION)
    drawn = fixed_sample(queries["query_id"].to_pylist(), config.queries)
    is_drawn_N = pc.is_in(queries["query_id"], value_set=pa.array(drawn, pa.string())).to_numpy()
    parts = [
        read_views(encoded.place, block.name, encoded.result["views"]).take(
            np.flatnonzero(is_drawn_N[block.start : block.start + block.rows])
        )
        for block in blocks_in([encoded.place / SELECTION])
    ]
    write_table(queries.filter(is_drawn_N), out / SELECTION, row_group_size=QUERY_BLOCK, compression="snappy")
    (block,) = blocks_in([out / SELECTION])
    Views.concat(parts).write(out, block.name)
    return {
        **{name: encoded.result[name] for name in KEPT_FACTS if name in encoded.result},
        "rows": len(drawn),
        "blocks": 1,
        "seconds": round(time.perf_counter() - started, 3),
    }


def measure_recall(exact: Place, ranking: Place, depth: int) -> dict[str, float]:
    """The share of an exact ranking's passages down to a rank that another ranking has down to the same rank.

    Passages are compared by id: of copies with equal scores at the edge, only the one that the exact search lists
    counts.

    Args:
        exact: ranked list of the sample. ranking: of at least the same queries. depth: passages asked for.

    Returns:
        queries: of the sample. at_10, at_100: where the depth allows. at_depth.
    """
    best = ranked.read(exact)
    queries = best["query_id"].unique().to_pylist()
    approximate = ranked.read_queries(ranking, queries, ["query_id", "doc_id", "rank"])
    cutoffs = {f"at_{cutoff}": cutoff for cutoff in CUTOFFS if cutoff <= depth} | {"at_depth": depth}
    shares = {name: _recall_at(best, approximate, cutoff) for name, cutoff in cutoffs.items()}
    return {"queries": len(queries), **{name: round(share, 4) for name, share in shares.items()}}


def _recall_at(best: pa.Table, run: pa.Table, cutoff: int) -> float:
    pairs = [table.filter(pc.less_equal(table["rank"], cutoff)).select(["query_id", "doc_id"]) for table in (best, run)]
    return float(len(pairs[0].join(pairs[1], ["query_id", "doc_id"], join_type="inner")) / len(pairs[0]))
