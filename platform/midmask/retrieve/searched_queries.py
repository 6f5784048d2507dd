"""Which queries are searched: those of a split that can be judged, or a sample; and never to find themselves.

A query that is a passage of its own corpus (ArguAna, Quora) never retrieves itself. Which passage that is, is a
property of the corpus (`corpora.assemble`). BEIR's evaluation leaves it out, too.
"""

import logging
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.core.randomness import fixed_sample
from midmask.corpora.checked_rows import pair_texts
from midmask.corpora.writer import ANSWERS, MISSING_PASSAGES, SELF_MATCHES
from midmask.errors import UserError, known_names
from midmask.retrieve import ranked
from midmask.retrieve.blocks import QUERY_BLOCK, SELECTION
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table, write_table

log = logging.getLogger(__name__)


def judged_queries(
    corpus: Artifact, split: str, *, judged: Literal["any", "relevant"] = "any", limit: int | None = None
) -> list[str]:
    """Ids of the queries of a split that have a judgement or answer strings ("any"), or a relevant passage in the
    collection; sorted; a fixed sample if limited.

    Raises:
        UserError: naming the splits that the corpus has, if there is no such query.
    """
    qrels = read_qrels(corpus)
    if judged == "relevant":
        within = relevant_passages(corpus.place, split)
    else:
        within = qrels.filter(pc.equal(qrels["split"], split))
    names = pc.unique(within["query_id"]).to_pylist()
    answers = read_answers(corpus)
    if judged == "any" and len(answers):
        names = sorted({*names, *answers.filter(pc.equal(answers["split"], split))["query_id"].to_pylist()})
    if not names:
        splits = sorted({*qrels["split"].unique().to_pylist(), *answers["split"].unique().to_pylist()})
        name = corpus.result.get("name", "the collection")
        raise UserError(f"split {split!r}: {name} has no judged queries in it. {known_names(splits)}")
    return sorted(fixed_sample(names, limit))


def select_queries(
    queries: pa.Table,
    corpus: Artifact,
    split: str,
    out: Place,
    *,
    judged: Literal["any", "relevant"],
    limit: int | None,
) -> None:
    """Writes the rows (query_id, …) of the queries that `judged_queries` names, by query id, unless it is done."""
    if not (out / SELECTION).exists():
        query_ids = pa.array(judged_queries(corpus, split, judged=judged, limit=limit), pa.string())
        chosen = queries.filter(pc.is_in(queries["query_id"], value_set=query_ids)).sort_by("query_id")
        write_table(chosen, out / SELECTION, row_group_size=QUERY_BLOCK, compression="snappy")


def read_qrels(corpus: Artifact) -> pa.Table:
    """All judgements (split, query_id, doc_id, grade), those of passages that the collection lacks included."""
    return read_table(corpus.place / "qrels.parquet")


def relevant_passages(corpus: Place, split: str | None = None) -> pa.Table:
    """Judgements of grade 1 or more, of one split or of all, without those of passages that the collection lacks: these
    have no text, so nothing can be trained on them.
    """
    qrels = read_table(corpus / "qrels.parquet")
    relevant = qrels.filter(pc.greater_equal(qrels["grade"], 1))
    if split is not None:
        relevant = relevant.filter(pc.equal(relevant["split"], split))
    missing = is_missing(corpus, relevant)
    if count := pc.sum(missing).as_py():
        log.info("%d relevant passages are not in the collection and are left out", count)
    return relevant.filter(pc.invert(missing))


def is_missing(corpus: Place, judged: pa.Table) -> pa.ChunkedArray:
    """For each row of a table with a column doc_id, whether it names a judged passage that the collection lacks."""
    missing = _read_if_there(corpus, "missing_passages.parquet", MISSING_PASSAGES)
    return pc.is_in(judged["doc_id"], value_set=missing["doc_id"])


def are_passages(corpus: Place, doc_ids: pa.Array) -> NDArray[np.bool_]:
    """For each of these ids, whether it is a passage's; one file of ids is in memory at a time."""
    is_passage = np.zeros(len(doc_ids), bool)
    for name in (corpus / "docs").names():
        ids = read_table(corpus / "docs" / name, ["doc_id"])["doc_id"]
        is_passage |= pc.is_in(doc_ids, value_set=ids).to_numpy(zero_copy_only=False)
    return is_passage


def read_answers(corpus: Artifact) -> pa.Table:
    """Answer strings (split, query_id, answers) of a corpus; most have none."""
    return _read_if_there(corpus.place, "answers.parquet", ANSWERS)


def read_self_matches(corpus: Artifact) -> pa.Table:
    """The pairs (query_id, doc_id) of a corpus artifact; most have none."""
    return _read_if_there(corpus.place, "self_matches.parquet", SELF_MATCHES)


def _read_if_there(corpus: Place, file: str, schema: pa.Schema) -> pa.Table:
    return read_table(corpus / file) if file in corpus.names() else schema.empty_table()


def excluded_pairs(source: Artifact, corpus: Artifact) -> pa.Table:
    """The pairs that an evaluation leaves out of a ranked list: none of a list from a run file, which is measured as it
    is.
    """
    pairs = read_self_matches(corpus)
    return pairs.slice(0, 0) if "run" in source.result.get("read", {}) else pairs


def is_self(table: pa.Table, pairs: pa.Table) -> NDArray[np.bool_]:
    """Marks each row (query_id, doc_id) of a table that is one of the pairs."""
    rows = np.flatnonzero(pc.is_in(table["query_id"], value_set=pairs["query_id"]).to_numpy())
    matches = pc.is_in(pair_texts(table.take(pa.array(rows))), value_set=pair_texts(pairs)).to_numpy()
    mask = np.zeros(len(table), bool)
    mask[rows[matches]] = True
    return mask


def without_self(table: pa.Table, pairs: pa.Table, depth: int | None = None) -> tuple[pa.Table, int]:
    """A ranked list (`ranked.SCHEMA`) without the pairs, and how many it held; ranks close up, from 1 on.

    A search has to go one passage deeper than `depth`, to which the list is cut, for a full list to be left.
    """
    keep = ~is_self(table, pairs)
    return ranked.with_ranks(table.filter(pa.array(keep)).drop_columns("rank"), depth), int((~keep).sum())
