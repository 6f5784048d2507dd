"""The read_scores step: a teacher's scores that others have published, in place of a teacher.

    scores.parquet   query_id, doc_id, score, by query, then document, as the scoring step writes it

Pairs of queries that the corpus lacks are left out and counted: published files hold whole training sets.
"""

import logging
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.exchange.score_files import read_scores_file
from midmask.identity import Config, file_fingerprint
from midmask.mining.negatives import SCORES
from midmask.training.table import read_table

log = logging.getLogger(__name__)

PAIRS = 1 << 20
"""Pairs that are Python objects at a time."""


class ReadScoresConfig(Config):
    """Scores from a file."""

    file: str = Field(
        description="scores by query: .parquet or .jsonl in the list layout, SimLM's .jsonl, .pkl of "
        "scores[query][passage], or .tsv of query, passage, score; all but .parquet may be gzip'd"
    )


def scores_content(file: str) -> dict[str, str]:
    """Fingerprint of the file.

    Raises:
        UserError: if there is no such file.
    """
    if not Path(file).is_file():
        raise UserError(f"teacher.scores = {file}: there is no such file")
    return {Path(file).name: file_fingerprint(file)}


def read_scores(config: ReadScoresConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input corpus.

    Raises:
        UserError: for a file of another layout, a pair that is scored twice, or no pair of the corpus at all.
    """
    pairs = read_scores_file(Place(config.file))
    known = read_table(inputs["corpus"].place / "queries.parquet")["query_id"].combine_chunks()
    tables, read = [SCORES.empty_table()], 0
    for some in iter(lambda: list(islice(pairs, PAIRS)), []):
        table = pa.table([list(column) for column in zip(*some, strict=True)], schema=SCORES)
        read += len(table)
        tables.append(table.filter(pc.is_in(table["query_id"], value_set=known)))
    table = pa.concat_tables(tables).sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    _refuse_repeated(table, config.file)
    if not len(table):
        raise UserError(f"teacher.scores = {config.file}: none of its {read} pairs is of a query of this corpus")
    if len(table) < read:
        log.warning("%s: %d of %d pairs are of queries that the corpus lacks", config.file, read - len(table), read)
    with (out / "scores.parquet").writing() as stream:
        pq.write_table(table, stream, compression="zstd")
    return {"pairs": len(table), "pairs_of_unknown_queries": read - len(table)}


def _refuse_repeated(table: pa.Table, file: str) -> None:
    query, doc = table["query_id"].combine_chunks(), table["doc_id"].combine_chunks()
    same = pc.and_(pc.equal(query[1:], query[:-1]), pc.equal(doc[1:], doc[:-1]))
    if len(table) > 1 and pc.any(same).as_py():
        row = pc.index(same, True).as_py()
        raise UserError(f"teacher.scores = {file}: query {query[row]}, passage {doc[row]} is scored more than once")
