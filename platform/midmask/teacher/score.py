"""A teacher's scores of pairs of a query and a passage: the step that computes them, and the one that reads a file.

Scored are every listed candidate, and the relevant passages of the listed queries. Negatives alone would not do: a loss
compares them with the positive, and published code ends with a KeyError where that has no score.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from midmask.core.batch import TokenRows
from midmask.core.config import Config, file_fingerprint, runtime
from midmask.corpora.opening import write_lines
from midmask.encoders.cross_encoder import read_cross_encoder
from midmask.errors import UserError
from midmask.exchange.score_files import read_scores_file
from midmask.mining.listed import find_listed, stretches
from midmask.mining.negatives import SCORES
from midmask.retrieve.blocks import StoredPassages
from midmask.retrieve.searched_queries import judged_queries, relevant_passages
from midmask.retrieve.text_encoder import length_batches, run_batches
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_table, write_table
from midmask.text.tokens import encoder
from midmask.training.examples import TokenTable

log = logging.getLogger(__name__)


BATCH_TOKENS = 4096
"""Padded tokens of one batch."""

PASSAGE_ROOM = 8
"""Tokens of a pair that a query must leave: special tokens, and a passage's first words."""


class Scorer:
    """A sequence-classification folder with its own tokenizer, and the texts of a corpus.

    Raises:
        UserError: if the folder holds no teacher, or takes no pairs as long as asked for.
    """

    def __init__(self, model: Place, corpus: Place, config: "ScoreConfig") -> None:
        folder = model.local()
        self._titles, self._threads = config.titles, config.threads
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._teacher = read_cross_encoder(folder).to(self._device)
        if self._teacher.max_length < config.query_length + PASSAGE_ROOM:
            raise UserError(
                f"score: query_length = {config.query_length}, but pairs have at most {self._teacher.max_length} "
                f"tokens; set stages.*.teacher.query_length={self._teacher.max_length - PASSAGE_ROOM} or less"
            )
        passage_length = min(config.passage_length or self._teacher.max_length, self._teacher.max_length)
        self._query_ids, self._passage_ids = encoder(folder, config.query_length), encoder(folder, passage_length)
        self._queries = read_table(corpus / "queries.parquet")
        self._passages = StoredPassages(corpus)

    def score(self, pairs: pa.Table) -> pa.Table:
        """The pairs (query_id, doc_id, relevant, row) in their order, with a column `score` in place of `row`.

        Raises:
            UserError: naming pairs whose score is not finite.
        """
        query_ids, query_of = np.unique(pairs["query_id"].to_numpy(), return_inverse=True)
        rows, passage_of = np.unique(pairs["row"].to_numpy(), return_inverse=True)
        queries = _tensors(self._query_ids(self._texts(query_ids.tolist())))
        stored = [self._passages.row(row) for row in rows.tolist()]
        texts = [f"{title} {text}".strip() if self._titles else text for _, title, text in stored]
        passages = _tensors(self._passage_ids(texts))
        template, longest = self._teacher.template, self._teacher.max_length
        joint = len(template.between) - len(template.first) - len(template.last)
        uncut_N = _lengths(queries)[query_of] + _lengths(passages)[passage_of] + joint

        def run(batch: NDArray[np.int64]) -> NDArray[np.float32]:
            return self._score([queries[row] for row in query_of[batch]], [passages[row] for row in passage_of[batch]])

        batches = length_batches(np.minimum(uncut_N, longest), BATCH_TOKENS)
        scores = run_batches(run, batches, self._threads if self._device == "cpu" else 1)
        score_N = np.empty(len(pairs), np.float32)
        score_N[np.concatenate(batches)] = np.concatenate(scores)
        _refuse_nan(score_N, pairs)
        return pairs.drop_columns("row").append_column("score", pa.array(score_N))

    def _texts(self, query_ids: list[str]) -> list[str]:
        places = pc.index_in(pa.array(query_ids, pa.string()), value_set=self._queries["query_id"].combine_chunks())
        return [str(text) for text in self._queries["text"].take(places).to_pylist()]

    def _score(self, queries: list[Tensor], passages: list[Tensor]) -> NDArray[np.float32]:
        pad_id = self._teacher.template.pad_id
        pairs = self._teacher.join(_pad(queries, pad_id), _pad(passages, pad_id)).to(self._device)
        with torch.inference_mode():
            return np.asarray(self._teacher(pairs).cpu().numpy(), dtype=np.float32)


def _tensors(rows: list[list[int]]) -> list[Tensor]:
    return [torch.tensor(row, dtype=torch.int64) for row in rows]


def _lengths(rows: list[Tensor]) -> NDArray[np.int64]:
    return np.array([len(row) for row in rows], np.int64)


def _pad(rows: list[Tensor], pad_id: int) -> TokenRows:
    lengths_B = torch.from_numpy(_lengths(rows))
    return TokenRows(pad_sequence(rows, True, pad_id), lengths_B, torch.zeros_like(lengths_B))


def _refuse_nan(score_N: NDArray[np.float32], pairs: pa.Table) -> None:
    bad = np.flatnonzero(~np.isfinite(score_N))
    if len(bad):
        first = ", ".join(f"{row['query_id']} x {row['doc_id']}" for row in pairs.take(pa.array(bad[:5])).to_pylist())
        raise UserError(
            f"score: the teacher gives scores that are not finite for {len(bad)} pairs, among them {first}; its "
            "training went wrong, so train it with a smaller train.learning_rate"
        )


class ScoreConfig(Config):
    """The pairs to score, and how much of each the teacher reads."""

    WITHDRAWN = (("depth", None), ("max_length", None))

    split: str = Field("train", description="whose relevant passages, and whose ranked lists, are scored")
    titles: bool = Field(False, description="whether 'title text' is the passage, instead of the text alone")
    query_length: int = Field(
        32, ge=4, description="largest number of tokens of a query, special tokens included; the rest is cut"
    )
    passage_length: int | None = Field(
        None, ge=8, description="tokens of a passage, special tokens included; none: as many as the pair has room for"
    )
    jsonl: bool = Field(False, description="also write scores.jsonl.gz")
    shard_queries: int = Field(256, ge=1, description="queries of a shard, the unit of resuming and of spreading")
    threads: int = runtime(1, "CPU threads of each process", ge=1)


FOLDER = "candidates"
COUNTS = "candidates.json"


def write_candidates(inputs: Inputs, out: Place, *, split: str, queries: int) -> None:
    """Writes `candidates/00000.parquet` …, `queries` queries each: query_id, doc_id, relevant, and row, the passage's
    number in the corpus; by query, then document. Does nothing if it is done.

    Args:
        inputs: corpus, and any number of lists whose names begin with "negatives" (negatives.parquet) or "ranked" (of a
            search, of BM25 or from a file).
        split: whose relevant passages, and whose ranked lists.

    Raises:
        UserError: if there is nothing to score.
    """
    if (out / COUNTS).exists():
        return
    listed = _drop_repeated(pa.concat_tables([_PAIRS.empty_table(), *_read_lists(inputs, split)]))
    if not len(listed):
        raise UserError(f"score: no list names a query of split {split!r}; mine negatives for it first")
    relevant = relevant_passages(inputs["corpus"].place, split)
    relevant = _drop_repeated(relevant.filter(pc.is_in(relevant["query_id"], value_set=listed["query_id"])))
    table = _drop_repeated(pa.concat_tables([listed, relevant]))
    table = table.join(relevant.append_column("relevant", pa.repeat(True, len(relevant))), ["query_id", "doc_id"])
    table = table.set_column(2, "relevant", pc.fill_null(table["relevant"], False))
    table = table.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    table = table.append_column("row", pa.array(TokenTable(inputs["corpus"].place / "docs").rows_of(table["doc_id"])))
    for number, some in enumerate(by_query(table, queries)):
        write_table(some, out / FOLDER / f"{number:05d}.parquet")
    counts = {"queries": len(pc.unique(table["query_id"])), "pairs": len(table), "positives": len(relevant)}
    (out / COUNTS).write_json({**counts, "positives_unlisted": len(table) - len(listed)})


_PAIRS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])


def _read_lists(inputs: Inputs, split: str) -> Iterator[pa.Table]:
    for name in sorted(inputs):
        if name.startswith("negatives"):
            yield read_table(inputs[name].place / "negatives.parquet", _PAIRS.names)
        elif name.startswith("ranked"):
            query_ids = judged_queries(inputs["corpus"], split, judged="relevant")
            for piece, _ in stretches(find_listed([inputs[name]]), None, query_ids, split):
                yield piece.select(_PAIRS.names)


def _drop_repeated(table: pa.Table) -> pa.Table:
    """Each (query_id, doc_id) once."""
    return table.group_by(_PAIRS.names).aggregate([])


def by_query(table: pa.Table, queries: int = 1) -> Iterator[pa.Table]:
    """A table that is sorted by query in pieces of `queries` queries each."""
    names = table["query_id"].combine_chunks()
    begins = np.append(True, pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False))
    for start, stop in pairwise([*np.flatnonzero(begins)[::queries].tolist(), len(table)]):
        yield table.slice(start, stop - start)


def _begin(config: ScoreConfig, inputs: Inputs, out: Place) -> None:
    if not (inputs["teacher"].place / "model" / "config.json").exists():
        raise UserError(
            f"{inputs['teacher'].place} holds no teacher: model/config.json is missing; name a sequence-classification "
            "model folder, or train one with midmask teach"
        )
    write_candidates(inputs, out, split=config.split, queries=config.shard_queries)


def _worker(config: ScoreConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    scorer = Scorer(inputs["teacher"].place / "model", inputs["corpus"].place, config)

    def write(name: str) -> None:
        table = scorer.score(read_table(out / FOLDER / name))
        write_table(table, out / "scores" / name)
        log.info("scored %d pairs of shard %s", len(table), name)

    return write


def _finish(config: ScoreConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Joins the shards' scores into one file.

    Returns:
        queries, pairs, positives, positives_unlisted (scored although in no list).
    """
    table = pa.concat_tables([read_table(out / "scores" / name) for name in (out / "scores").names()])
    write_table(table.select(SCORES.names), out / "scores.parquet")
    if config.jsonl:
        _write_jsonl(table, out / "scores.jsonl.gz")
    return dict((out / COUNTS).read_json())


def _write_jsonl(table: pa.Table, place: Place) -> None:
    """A line for each query: {"query_id", "corpus_id": [ids], "score": [numbers], "relevant": [booleans]}; best
    passages first.
    """
    order = [("query_id", "ascending"), ("score", "descending"), ("doc_id", "ascending")]
    with write_lines(place) as stream:
        for rows in by_query(table.sort_by(order)):
            line = {"query_id": rows["query_id"][0].as_py(), "corpus_id": rows["doc_id"].to_pylist()}
            line |= {name: rows[name].to_pylist() for name in ("score", "relevant")}
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


SCORE = Sharded(folder="scores", over=FOLDER, begin=_begin, worker=_worker, finish=_finish, stays=lambda config: True)
"""The step: teacher (its `model/`), corpus, and lists (`negatives…`, `ranked…`) in, scores out."""


PAIRS_AT_ONCE = 1 << 20
"""Pairs that are Python objects at a time."""


class ReadScoresConfig(Config):
    """Scores from a file."""

    file: str = Field(
        description="scores by query: .parquet or .jsonl in the list layout, SimLM's .jsonl, or .tsv of query, "
        "passage, score; all but .parquet may be gzip'd"
    )


def scores_content(file: str) -> dict[str, str]:
    """Fingerprint of the file.

    Raises:
        UserError: if there is no such file.
    """
    return {Path(file).name: file_fingerprint(file, f"teacher.scores = {file}")}


def read_scores(config: ReadScoresConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input corpus.

    Raises:
        UserError: for a file of another layout, a pair that is scored twice, or no pair of the corpus at all.
    """
    pairs = read_scores_file(Place(config.file))
    query_ids = read_table(inputs["corpus"].place / "queries.parquet")["query_id"].combine_chunks()
    tables, read = [SCORES.empty_table()], 0
    for some in iter(lambda: list(islice(pairs, PAIRS_AT_ONCE)), []):
        table = pa.table([list(column) for column in zip(*some, strict=True)], schema=SCORES)
        read += len(table)
        tables.append(table.filter(pc.is_in(table["query_id"], value_set=query_ids)))
    table = pa.concat_tables(tables).sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    _refuse_repeated(table, config.file)
    if not len(table):
        raise UserError(f"teacher.scores = {config.file}: none of its {read} pairs is of a query of this corpus")
    if len(table) < read:
        log.warning("%s: %d of %d pairs are of queries that the corpus lacks", config.file, read - len(table), read)
    write_table(table, out / "scores.parquet")
    return {"pairs": len(table), "pairs_of_unknown_queries": read - len(table)}


def _refuse_repeated(table: pa.Table, file: str) -> None:
    query, doc = table["query_id"].combine_chunks(), table["doc_id"].combine_chunks()
    same = pc.and_(pc.equal(query[1:], query[:-1]), pc.equal(doc[1:], doc[:-1]))
    if len(table) > 1 and pc.any(same).as_py():
        row = pc.index(same, True).as_py()
        raise UserError(f"teacher.scores = {file}: query {query[row]}, passage {doc[row]} is scored more than once")
