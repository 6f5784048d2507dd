"""Which queries are searched: those of a split that can be judged, or a fixed sample of them."""

import logging
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.corpora.writer import ANSWERS, MISSING_PASSAGES
from midmask.errors import UserError, known_names
from midmask.randomness.texts import fixed_sample

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


def read_qrels(corpus: Artifact) -> pa.Table:
    """All judgements (split, query_id, doc_id, grade), those of passages that the collection lacks included."""
    with (corpus.place / "qrels.parquet").reading() as stream:
        return pq.read_table(stream)


def relevant_passages(corpus: Place, split: str | None = None) -> pa.Table:
    """Judgements of grade 1 or more, of one split or of all, without those of passages that the collection lacks: these
    have no text, so nothing can be trained on them.
    """
    with (corpus / "qrels.parquet").reading() as stream:
        qrels = pq.read_table(stream)
    relevant = qrels.filter(pc.greater_equal(qrels["grade"], 1))
    if split is not None:
        relevant = relevant.filter(pc.equal(relevant["split"], split))
    missing = is_missing(corpus, relevant)
    if count := pc.sum(missing).as_py():
        log.info("%d relevant passages are not in the collection and are left out", count)
    return relevant.filter(pc.invert(missing))


def is_missing(corpus: Place, judged: pa.Table) -> pa.ChunkedArray:
    """For each row of a table with a column doc_id, whether it names a judged passage that the collection lacks."""
    missing = MISSING_PASSAGES.empty_table()
    if "missing_passages.parquet" in corpus.names():
        with (corpus / "missing_passages.parquet").reading() as stream:
            missing = pq.read_table(stream)
    return pc.is_in(judged["doc_id"], value_set=missing["doc_id"])


def read_answers(corpus: Artifact) -> pa.Table:
    """Answer strings (split, query_id, answers) of a corpus; most have none."""
    if "answers.parquet" not in corpus.place.names():
        return ANSWERS.empty_table()
    with (corpus.place / "answers.parquet").reading() as stream:
        return pq.read_table(stream)
