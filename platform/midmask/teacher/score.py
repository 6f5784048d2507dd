"""The scoring step: a teacher's score of every candidate.

candidates/<shard>   the pairs: some queries each, with their lists and relevant passages
scores/<shard>       their scores, each shard written by the process that made it
scores.parquet       query_id, doc_id, score (float32, a raw logit), by query, then document
scores.jsonl.gz      on request: {"query_id", "corpus_id": [...], "score": [...]} a line, best first (the "list"
                     layout of Hugging Face data sets), and which are relevant; the first lines with all texts
"""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.identity import Config, runtime
from midmask.retrieve.lines import write_lines
from midmask.sharded import Inputs, Sharded
from midmask.teacher.candidates import COUNTS, FOLDER, PassageTexts, by_query, write_candidates
from midmask.teacher.scorer import Reading, Scorer
from midmask.training.table import read_table

log = logging.getLogger(__name__)

SHOWN = 5
"""Queries of scores.jsonl.gz whose texts are written out."""


class ScoreConfig(Config):
    """The pairs to score, and how much of each the teacher reads."""

    split: str = Field("train", description="whose relevant passages, and whose ranked lists, are scored")
    depth: int | None = Field(None, ge=1, description="passages of a ranked list that are scored; none: all")
    titles: bool = Field(False, description="whether 'title text' is the passage, instead of the text alone")
    query_length: int = Field(
        32, ge=4, description="largest number of tokens of a query, special tokens included; the rest is cut"
    )
    passage_length: int | None = Field(
        None, ge=8, description="tokens of a passage, special tokens included; none: as many as the pair has room for"
    )
    max_length: int | None = Field(
        None, ge=16, description="tokens of a pair, the rest of its passage is cut; none: as many as the teacher takes"
    )
    jsonl: bool = Field(False, description="also write scores.jsonl.gz")
    shard_queries: int = Field(256, ge=1, description="queries of a shard, the unit of resuming and of spreading")
    threads: int = runtime(1, "CPU threads of each process", ge=1)


def _begin(config: ScoreConfig, inputs: Inputs, out: Place) -> None:
    if not (inputs["teacher"].place / "model" / "config.json").exists():
        raise UserError(
            f"{inputs['teacher'].place} holds no teacher: model/config.json is missing; name a sequence-classification "
            "model folder, or train one with midmask teach"
        )
    write_candidates(inputs, out, split=config.split, depth=config.depth, queries=config.shard_queries)


def _worker(config: ScoreConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    reading = Reading(config.query_length, config.passage_length, config.max_length, config.titles, config.threads)
    scorer = Scorer(inputs["teacher"].place / "model", inputs["corpus"].place, reading)

    def write(name: str) -> None:
        table = scorer.score(read_table(out / FOLDER / name))
        with (out / "scores" / name).writing() as stream:
            pq.write_table(table, stream, compression="zstd")
        log.info("scored %d pairs of shard %s", len(table), name)

    return write


def _finish(config: ScoreConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Puts the shards together, and counts.

    Returns:
        queries, pairs, positives, positives_unlisted (scored although in no list), passages_cut (pairs), queries_cut,
        positive_first_share (of the queries with a relevant passage, those where one of these has the highest score).
    """
    table = pa.concat_tables([read_table(out / "scores" / name) for name in (out / "scores").names()])
    with (out / "scores.parquet").writing() as stream:
        pq.write_table(table.select(["query_id", "doc_id", "score"]), stream, compression="zstd")
    if config.jsonl:
        _write_jsonl(table, config, inputs, out)
    queries_cut = len(pc.unique(table.filter(table["query_cut"])["query_id"]))
    if queries_cut:
        log.warning("%d queries are cut to %d tokens before they are scored", queries_cut, config.query_length)
    return {
        **(out / COUNTS).read_json(),
        "passages_cut": int(pc.sum(table["passage_cut"]).as_py()),
        "queries_cut": queries_cut,
        "positive_first_share": _share_of_positives_first(table),
    }


def _share_of_positives_first(table: pa.Table) -> float | None:
    best = table.group_by("query_id").aggregate([("score", "max")])
    positive = table.filter(table["relevant"]).group_by("query_id").aggregate([("score", "max")])
    both = positive.rename_columns(["query_id", "positive"]).join(best, "query_id")
    found = both["positive"].to_numpy() == both["score_max"].to_numpy()
    return round(float(np.mean(found)), 4) if len(found) else None


def _write_jsonl(table: pa.Table, config: ScoreConfig, inputs: Inputs, out: Place) -> None:
    with write_lines(out / "scores.jsonl.gz") as stream:
        for line in _jsonl_lines(table, config, inputs, out):
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def _jsonl_lines(table: pa.Table, config: ScoreConfig, inputs: Inputs, out: Place) -> Iterator[dict[str, Any]]:
    order = [("query_id", "ascending"), ("score", "descending"), ("doc_id", "ascending")]
    for number, rows in enumerate(by_query(table.sort_by(order))):
        line = {"query_id": rows["query_id"][0].as_py(), "corpus_id": rows["doc_id"].to_pylist()}
        line |= {name: rows[name].to_pylist() for name in ("score", "relevant")}
        yield {**line, **_texts_of(line, config, inputs, out)} if number < SHOWN else line


def _texts_of(line: dict[str, Any], config: ScoreConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """The query and the passages of a line, in its order."""
    corpus = inputs["corpus"].place
    queries = read_table(corpus / "queries.parquet")
    query = queries["text"][pc.index(queries["query_id"], line["query_id"]).as_py()].as_py()
    candidates = pa.concat_tables([read_table(out / FOLDER / name) for name in (out / FOLDER).names()[:SHOWN]])
    row_of = dict(zip(candidates["doc_id"].to_pylist(), candidates["row"].to_pylist(), strict=True))
    rows, place = np.unique([row_of[doc_id] for doc_id in line["corpus_id"]], return_inverse=True)
    texts = PassageTexts(corpus, titles=config.titles).read(rows)
    return {"query": query, "texts": [texts[number] for number in place]}


SCORE = Sharded("scores", FOLDER, _begin, _worker, _finish, stays=lambda config: True)
"""The step: teacher (its `model/`), corpus, and lists (`negatives…`, `ranked…`) in, scores out."""
