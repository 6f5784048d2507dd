"""Success@k by answer strings, as DPR evaluates open-domain question answering (Karpukhin et al. 2020).

A retrieved passage is a success if its text (the title not counted) holds one of the query's answers: both normalised
to NFD, cut into tokens (runs of letters, digits and marks; else single characters that are neither separators nor
control characters) and lower-cased, the answer's tokens standing in the text in a row.

A query without results scores 0. A query without an answer is a bad row of the collection and is not evaluated; an
answer without a token (a blank, say) is held by no passage, where DPR's code finds it in every one.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.corpora.ids import IdTable
from midmask.corpora.writer import QRELS
from midmask.evaluation import measures

NO_PASSAGE = ""
"""Stands in the judgements of a query that retrieved nothing, so that it is evaluated; no passage has this id."""

DEFAULT = ("Success@5", "Success@20", "Success@100")


def by_answers(names: Sequence[str]) -> list[str]:
    """Those of the measures that answer strings judge, where a split has them: Success@k. The others need judgements
    of passages, or, as recall, of all relevant ones.
    """
    return [str(measure) for measure in measures.parse(names) if measure.NAME == "Success"]


def deepest(names: Sequence[str]) -> int:
    """The largest k of Success@k; what ranks below it need not be judged."""
    return max(int(measure["cutoff"]) for measure in measures.parse(names))


def answer_qrels(ranked: pa.Table, answers: pa.Table, docs: Place) -> pa.Table:
    """Judgements (split, query_id, doc_id, grade) of the retrieved passages: 1 if one contains an answer, else 0.

    Args:
        ranked: query_id, doc_id. answers: split, query_id, answers, all of one split. docs: the corpus's folder of
            passages, of which a row group is in memory at a time.
    """
    ranked = ranked.filter(pc.is_in(ranked["query_id"], value_set=answers["query_id"]))
    wanted = {
        query_id: [needle for answer in own if (needle := join_answers(answer))]
        for query_id, own in zip(answers["query_id"].to_pylist(), answers["answers"].to_pylist(), strict=True)
    }
    query_ids, found = ranked["query_id"].to_pylist(), ranked["doc_id"].combine_chunks().dictionary_encode()
    known = IdTable()
    known.add(found.dictionary.to_pylist())
    codes = found.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes, np.arange(len(known) + 1), sorter=order)
    grades = np.zeros(len(ranked), np.int32)
    for ids, texts in _read_passages(docs):
        at = known.rows(ids.to_pylist())
        for place in np.flatnonzero(at >= 0).tolist():
            own = join_answers(texts[place].as_py())
            for row in order[starts[at[place]] : starts[at[place] + 1]].tolist():
                grades[row] = any(needle in own for needle in wanted[query_ids[row]])
    idle = sorted(wanted.keys() - set(query_ids))
    split = answers["split"][0].as_py()
    return pa.table(
        {
            "split": pa.repeat(split, len(ranked) + len(idle)),
            "query_id": pa.array(query_ids + idle, pa.string()),
            "doc_id": pa.array(ranked["doc_id"].to_pylist() + [NO_PASSAGE] * len(idle), pa.string()),
            "grade": pa.array([*grades.tolist(), *[0] * len(idle)], pa.int32()),
        },
        schema=QRELS,
    )


def join_answers(text: str) -> str:
    """DPR's tokens, each between two tabs; "" if there are none. A tab is no token, so `in` compares whole tokens."""
    tokens = _tokens().findall(unicodedata.normalize("NFD", text))
    return "\t" + "\t".join(token.lower() for token in tokens) + "\t" if tokens else ""


@functools.cache
def _tokens() -> re.Pattern[str]:
    r"""`[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]`, spelt out since Python's own `re` has no Unicode categories."""
    major = np.array([unicodedata.category(chr(code))[0] for code in range(sys.maxunicode + 1)])
    return re.compile(f"[{_ranges(np.isin(major, ['L', 'N', 'M']))}]+|[^{_ranges(np.isin(major, ['Z', 'C']))}]")


def _ranges(inside: NDArray[np.bool_]) -> str:
    """The characters whose codes are `inside`, as a character class has them."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(np.int8)))
    return "".join(f"\\U{first:08x}-\\U{stop - 1:08x}" for first, stop in edges.reshape(-1, 2).tolist())


def _read_passages(docs: Place) -> Iterator[tuple[pa.ChunkedArray, pa.ChunkedArray]]:
    """(ids, texts) of the passages, a row group at a time."""
    for shard in docs.names():
        with (docs / shard).reading() as stream:
            file = pq.ParquetFile(stream)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["doc_id", "text"])
                yield table["doc_id"].combine_chunks(), table["text"].combine_chunks()
