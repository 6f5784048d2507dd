"""A teacher at work: pairs of a query and a passage, as texts, to scores.

Pairs are sorted by length and cut into fixed batches, each computed by one thread: scores do not depend, to the last
bit, on how many actors or threads there are; on what else is in a batch they depend by rounding alone.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from midmask.arrays import Ints32
from midmask.artifact import Place
from midmask.batch import TokenRows
from midmask.encoders.cross_encoder import read_cross_encoder
from midmask.errors import UserError
from midmask.retrieve.batches import length_batches, run_batches
from midmask.teacher.candidates import PassageTexts
from midmask.token_rows import encoder
from midmask.training.pairs import cut_rows
from midmask.training.table import read_table

BATCH_TOKENS = 4096
"""Padded tokens of one batch."""

PASSAGE_ROOM = 8
"""Tokens of a pair that a query must leave: special tokens, and a passage's first words."""

SCORED = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("relevant", pa.bool_()),
        ("score", pa.float32()),
        ("passage_cut", pa.bool_()),
        ("query_cut", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Reading:
    """What a teacher reads of a pair: see `score.ScoreConfig`. threads changes no bit."""

    query_length: int
    passage_length: int | None
    max_length: int | None
    titles: bool
    threads: int


class Scorer:
    """A sequence-classification folder with its own tokenizer, and the texts of a corpus.

    Raises:
        UserError: if the folder holds no teacher, or takes no pairs as long as asked for.
    """

    def __init__(self, model: Place, corpus: Place, reading: Reading) -> None:
        folder = model.local()
        self._reading = reading
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._teacher = read_cross_encoder(folder, reading.max_length).to(self._device)
        if self._teacher.max_length < reading.query_length + PASSAGE_ROOM:
            raise UserError(
                f"score: query_length = {reading.query_length}, but pairs have at most {self._teacher.max_length} "
                f"tokens; set stages.*.teacher.query_length={self._teacher.max_length - PASSAGE_ROOM} or less"
            )
        self._passage_length = min(reading.passage_length or self._teacher.max_length, self._teacher.max_length)
        # A token more than is read tells whether a text is cut.
        self._query_ids = encoder(folder, reading.query_length + 1)
        self._passage_ids = encoder(folder, self._passage_length + 1)
        self._queries = read_table(corpus / "queries.parquet")
        self._passages = PassageTexts(corpus, titles=reading.titles)

    def score(self, pairs: pa.Table) -> pa.Table:
        """The pairs (query_id, doc_id, relevant, row) in their order, with their scores and what was cut (SCORED).

        Raises:
            UserError: naming pairs whose score is not finite.
        """
        query_ids, query_of = np.unique(pairs["query_id"].to_numpy(), return_inverse=True)
        rows, passage_of = np.unique(pairs["row"].to_numpy(), return_inverse=True)
        whole_queries = _arrays(self._query_ids(self._texts(query_ids.tolist())))
        whole_passages = _arrays(self._passage_ids(self._passages.read(rows)))
        queries = [cut_rows(ids, self._reading.query_length) for ids in whole_queries]
        passages = [cut_rows(ids, self._passage_length) for ids in whole_passages]
        template, longest = self._teacher.template, self._teacher.max_length
        joint = len(template.between) - len(template.first) - len(template.last)
        uncut_N = _lengths(queries)[query_of] + _lengths(passages)[passage_of] + joint

        def run(batch: NDArray[np.int64]) -> NDArray[np.float32]:
            return self._score([queries[row] for row in query_of[batch]], [passages[row] for row in passage_of[batch]])

        batches = length_batches(np.minimum(uncut_N, longest), BATCH_TOKENS)
        found = run_batches(run, batches, self._reading.threads if self._device == "cpu" else 1)
        score_N = np.empty(len(pairs), np.float32)
        score_N[np.concatenate(batches)] = np.concatenate(found)
        _refuse_nan(score_N, pairs)
        query_cut_N = (_lengths(whole_queries) > self._reading.query_length)[query_of]
        passage_cut_N = (uncut_N > longest) | (_lengths(whole_passages) > self._passage_length)[passage_of]
        columns = [pairs[name] for name in ("query_id", "doc_id", "relevant")]
        return pa.table([*columns, score_N, passage_cut_N, query_cut_N], schema=SCORED)

    def _texts(self, query_ids: list[str]) -> list[str]:
        places = pc.index_in(pa.array(query_ids, pa.string()), value_set=self._queries["query_id"].combine_chunks())
        return [str(text) for text in self._queries["text"].take(places).to_pylist()]

    def _score(self, queries: list[Ints32], passages: list[Ints32]) -> NDArray[np.float32]:
        pad_id = self._teacher.template.pad_id
        pairs = self._teacher.join(_pad(queries, pad_id), _pad(passages, pad_id)).to(self._device)
        with torch.inference_mode():
            return np.asarray(self._teacher(pairs).cpu().numpy(), dtype=np.float32)


def _arrays(rows: list[list[int]]) -> list[Ints32]:
    return [np.array(row, np.int32) for row in rows]


def _lengths(rows: list[Ints32]) -> NDArray[np.int64]:
    return np.array([len(row) for row in rows], np.int64)


def _pad(rows: list[Ints32], pad_id: int) -> TokenRows:
    lengths_B = torch.from_numpy(_lengths(rows))
    ids_BL = torch.full((len(rows), int(lengths_B.max())), pad_id)
    ids_BL[torch.arange(ids_BL.shape[1]) < lengths_B[:, None]] = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    return TokenRows(ids_BL, lengths_B, torch.zeros_like(lengths_B))


def _refuse_nan(score_N: NDArray[np.float32], pairs: pa.Table) -> None:
    bad = np.flatnonzero(~np.isfinite(score_N))
    if len(bad):
        first = ", ".join(f"{row['query_id']} x {row['doc_id']}" for row in pairs.take(pa.array(bad[:5])).to_pylist())
        raise UserError(
            f"score: the teacher gives scores that are not finite for {len(bad)} pairs, among them {first}; its "
            "training went wrong, so train it with a smaller train.learning_rate"
        )
