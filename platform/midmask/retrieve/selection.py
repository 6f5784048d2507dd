"""Which queries are searched: those of a split that can be judged, or a fixed sample of them."""

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Artifact
from midmask.corpora.writer import ANSWERS
from midmask.errors import UserError, known_names
from midmask.randomness.texts import fixed_sample


def judged_queries(
    corpus: Artifact, split: str, *, judged: Literal["any", "relevant"] = "any", limit: int | None = None
) -> list[str]:
    """Ids of the queries of a split that have a judgement or answer strings ("any"), or a relevant passage; sorted; a
    fixed sample if limited.

    Raises:
        UserError: naming the splits that the corpus has, if there is no such query.
    """
    qrels = read_qrels(corpus)
    within = pc.equal(qrels["split"], split)
    if judged == "relevant":
        within = pc.and_(within, pc.greater_equal(qrels["grade"], 1))
    names = pc.unique(qrels.filter(within)["query_id"]).to_pylist()
    answers = read_answers(corpus)
    if judged == "any" and len(answers):
        names = sorted({*names, *answers.filter(pc.equal(answers["split"], split))["query_id"].to_pylist()})
    if not names:
        splits = sorted({*qrels["split"].unique().to_pylist(), *answers["split"].unique().to_pylist()})
        name = corpus.result.get("name", "the collection")
        raise UserError(f"split {split!r}: {name} has no judged queries in it. {known_names(splits)}")
    return sorted(fixed_sample(names, limit))


def read_qrels(corpus: Artifact) -> pa.Table:
    with (corpus.place / "qrels.parquet").reading() as stream:
        return pq.read_table(stream)


def read_answers(corpus: Artifact) -> pa.Table:
    """Answer strings (split, query_id, answers) of a corpus; most have none."""
    if "answers.parquet" not in corpus.place.names():
        return ANSWERS.empty_table()
    with (corpus.place / "answers.parquet").reading() as stream:
        return pq.read_table(stream)
