"""Vectors of queries and of their passages as an evaluation used them: a fixed sample, read from its encodings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.core.arrays import Floats
from midmask.core.randomness import numpy_stream
from midmask.errors import UserError, unknown
from midmask.evaluation.embeddings import Map, embedding_map
from midmask.leaderboard.artifacts import artifact_of, evaluated
from midmask.retrieve.blocks import SELECTION, Block, blocks_in, passage_blocks
from midmask.retrieve.searched_queries import relevant_passages
from midmask.retrieve.views import read_views
from midmask.store.artifact import Artifact
from midmask.store.place import Place

PAIRS = 400
"""Pairs of a query and a relevant passage, as in CoT-MoTE."""


@dataclass(frozen=True)
class Encodings:
    """The artifacts that an evaluation searched."""

    corpus: Artifact
    queries: Artifact
    passages: Artifact
    tokens: Artifact
    split: str
    views: tuple[str, ...]  # names of the stored vectors, dense before lexical


@dataclass(frozen=True)
class EmbeddingSample:
    """N queries, each with one relevant passage, and their vectors as stored."""

    query_ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    queries_ND: Floats
    passages_ND: Floats


def encodings(place: Place | None) -> Encodings:
    """The encodings behind an evaluation.

    Args:
        place: of the evaluation's artifact, None for a run that does not tell.

    Raises:
        UserError: naming what there is not, or cannot be reached.
    """
    found = evaluated(place)
    if found.corpus is None or found.ranked is None:
        raise UserError("; ".join(found.missing))
    searched = found.ranked
    if "encoder" in searched.record["inputs"]:  # BM25's list is joined with the encoder's
        searched = _reached("encoder", Place(searched.record["inputs"]["encoder"]))
    inputs = searched.record["inputs"]
    if "passages" not in inputs:
        raise UserError("no encoder was searched with, so there are no vectors")
    parts = {role: _reached(role, Place(inputs[role])) for role in ("queries", "passages", "tokens")}
    if "late" in parts["passages"].result["views"]:
        raise UserError("the encoder gives a vector for each token and none for a whole text, so there is no map")
    counted = searched.record["config"].get("views", "all")
    views = [name for name in parts["passages"].result["views"] if counted in ("all", name)]
    return Encodings(found.corpus, **parts, split=found.split, views=tuple(views))


def draw_sample(source: Encodings, view: str, *, count: int = PAIRS, seed: int = 0) -> EmbeddingSample:
    """Pairs drawn at random among the split's relevant ones, one a query.

    Raises:
        UserError: for a view that there is not.
    """
    if view not in source.views:
        raise unknown("view", view, source.views)
    queries = blocks_in([source.queries.place / SELECTION])
    known = _rows(queries, "query_id", None)
    wanted = _drawn(source, set(known), count, numpy_stream(seed))
    passages = passage_blocks(source.tokens.place)
    rows = _rows(passages, "doc_id", {doc_id for _, doc_id in wanted})
    pairs = [(query_id, doc_id) for query_id, doc_id in wanted if doc_id in rows]
    return EmbeddingSample(
        tuple(query_id for query_id, _ in pairs),
        tuple(doc_id for _, doc_id in pairs),
        _vectors(source.queries.place, queries, view, [known[query_id] for query_id, _ in pairs]),
        _vectors(source.passages.place, passages, view, [rows[doc_id] for _, doc_id in pairs]),
    )


def map_embeddings(sample: EmbeddingSample, *, perplexity: float, seed: int) -> Map:
    """The sample in two dimensions, and its divergences.

    Raises:
        UserError: if it cannot be drawn.
    """
    try:
        return embedding_map(sample.queries_ND, sample.passages_ND, perplexity=perplexity, seed=seed)
    except ValueError as error:
        raise UserError(str(error)) from None


def _reached(role: str, place: Place) -> Artifact:
    artifact, why = artifact_of(place)
    if artifact is None:
        raise UserError(f"its {role} {place}: {why}")
    return artifact


def _drawn(source: Encodings, known: set[str], count: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Drawn pairs (query, one of its relevant passages), by query id."""
    qrels = relevant_passages(source.corpus.place, source.split)
    relevant: dict[str, list[str]] = {}
    for query_id, doc_id in zip(qrels["query_id"].to_pylist(), qrels["doc_id"].to_pylist(), strict=True):
        if query_id in known:
            relevant.setdefault(query_id, []).append(doc_id)
    names = sorted(relevant)
    chosen = sorted(rng.choice(len(names), min(count, len(names)), replace=False)) if names else []
    return [(names[at], str(rng.choice(sorted(relevant[names[at]])))) for at in chosen]


def _rows(blocks: Sequence[Block], name: str, wanted: set[str] | None) -> dict[str, int]:
    """Id -> its row over all blocks, for the wanted ids or, with none, for all."""
    found: dict[str, int] = {}
    values = None if wanted is None else pa.array(sorted(wanted), pa.string())
    for block in blocks:
        ids = block.read([name])[name].combine_chunks()
        at = np.arange(len(ids)) if values is None else np.flatnonzero(pc.is_in(ids, value_set=values))
        found |= zip(ids.take(pa.array(at)).to_pylist(), (block.start + at).tolist(), strict=True)
    return found


def _vectors(place: Place, blocks: Sequence[Block], view: str, rows: Sequence[int]) -> Floats:
    """The vectors at these rows, in their order."""
    wanted_N = np.array(rows, dtype=np.int64)
    parts = []
    for block in blocks:
        own = np.flatnonzero((wanted_N >= block.start) & (wanted_N < block.start + block.rows))
        if len(own):
            parts.append((own, _dense(place, block, view, wanted_N[own] - block.start)))
    if not parts:
        return np.empty((0, 0), np.float32)
    vectors_ND = np.empty((len(rows), parts[0][1].shape[1]), np.float32)
    for own, found_BD in parts:
        vectors_ND[own] = found_BD
    return vectors_ND


def _dense(place: Place, block: Block, view: str, rows: NDArray[np.int64]) -> Floats:
    """Some vectors of a block, words of a lexical view as columns."""
    views = read_views(place, block.name, [view])
    if views.dense_ND is not None:
        return np.asarray(views.dense_ND[rows], dtype=np.float32)
    assert views.lexical is not None, "one view was asked for"
    chosen = views.lexical.take(rows)
    vectors_BV = np.zeros((len(rows), chosen.width), np.float32)
    vectors_BV[np.repeat(np.arange(len(rows)), np.diff(chosen.offsets)), chosen.terms] = chosen.weights
    return vectors_BV
