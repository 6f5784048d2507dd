"""Mined negatives as training data of sentence-transformers: tuples (anchor, positive, negative_1, …, negative_n).

Its trainers take the columns in this order, whatever their names. `datasets.load_dataset("json", data_files=FILE)`
reads a file.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from midmask.corpora.opening import write_lines
from midmask.errors import UserError
from midmask.exchange.negatives_files import read_negatives_file
from midmask.retrieve.blocks import StoredPassages
from midmask.retrieve.searched_queries import relevant_passages
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.text.tokens import join_titles


class TrainingTuple(NamedTuple):
    """A query, a relevant passage, and the query's hard negatives, the best rank first."""

    query_id: str
    query: str
    positive_id: str
    positive: str
    negative_ids: list[str]
    negatives: list[str]


QUERIES_AT_ONCE = 10_000
"""Queries whose passages are in memory at a time: about 0.2 GB with 30 negatives of 100 words each."""


def training_tuples(mined: Artifact, corpus: Artifact, *, titles: bool) -> Iterator[TrainingTuple]:
    """A tuple for each query that has negatives and each of its relevant passages; queries by id.

    Args:
        mined: of a mining step. corpus: the collection that it mined. titles: whether passages are 'title text'.
    """
    split = mined.record["config"]["split"]
    positives: defaultdict[str, list[str]] = defaultdict(list)
    for row in relevant_passages(corpus.place, split).select(["query_id", "doc_id"]).to_pylist():
        positives[row["query_id"]].append(row["doc_id"])
    queries = read_table(corpus.place / "queries.parquet", ["query_id", "text"])
    query_texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    stored, entries = StoredPassages(corpus.place), read_negatives_file(mined.place / "negatives.jsonl.gz")
    while block := list(islice(entries, QUERIES_AT_ONCE)):
        negatives = {entry.query_id: list(chain.from_iterable(entry.negatives.values())) for entry in block}
        listed = chain.from_iterable([*positives[query_id], *ids] for query_id, ids in negatives.items())
        texts = _texts(stored, set(listed), titles=titles)
        for query_id, ids in negatives.items():
            for positive in positives[query_id]:
                pair = (query_id, query_texts[query_id], positive, texts[positive])
                yield TrainingTuple(*pair, ids, [texts[doc_id] for doc_id in ids])


def _texts(stored: StoredPassages, doc_ids: Collection[str], *, titles: bool) -> dict[str, str]:
    passages = stored.find(sorted(doc_ids)).values()
    heads, bodies = [title for _, title, _ in passages], [text for _, _, text in passages]
    texts = join_titles(heads, bodies) if titles else bodies
    return dict(zip((doc_id for doc_id, _, _ in passages), texts, strict=True))


def write_training_tuples(tuples: Iterable[TrainingTuple], negatives: int, file: Place) -> int:
    """Writes a JSON line {"anchor", "positive", "negative_1", …} for each tuple with that many negatives, and returns
    their number. Others are left out, as by sentence-transformers: a trainer cannot read an empty column.

    Args:
        file: gzip'd if its name ends in .gz.

    Raises:
        UserError: if no tuple has so many.
    """
    written = 0
    with write_lines(file) as out:
        for row in tuples:
            if len(row.negatives) == negatives:
                columns = {f"negative_{number}": text for number, text in enumerate(row.negatives, start=1)}
                line = {"anchor": row.query, "positive": row.positive, **columns}
                out.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                written += 1
        if not written:
            raise UserError(f"{file}: no query has {negatives} negatives; ask for fewer (per_query), or filter less")
    return written
