"""A few examples of derived artifacts, as text, to be read by people."""

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.vocabulary import load_tokenizer

EXAMPLES = 3
WIDTH = 100
"""Characters of a text that are shown."""


def preview(name: str, artifact: Artifact, tokens: Place) -> str:
    """The counts of an artifact of spans or pseudo-queries, then its first examples.

    Args:
        name: "spans" or "pseudo_queries".
        tokens: the artifact whose tokenizer made the ids.
    """
    examples = _spans(artifact.place, tokens) if name == "spans" else _pseudo_queries(artifact.place, tokens)
    return "\n".join([*_counts(artifact.result), "", *(line for lines in examples for line in [*lines, ""])]).rstrip()


def _counts(result: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in result.items():
        label = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _counts(value, f"{label}: ")
        else:
            yield f"{label:<28}{value:>14,}"


def _spans(place: Place, tokens: Place) -> Iterator[list[str]]:
    """Of a document: its spans in order, and what overlaps the first of them."""
    tokenizer = load_tokenizer((tokens / "tokenizer").local())
    with (place / "starts.npy").reading() as stream:
        starts = np.load(stream, allow_pickle=False)[: EXAMPLES + 1].tolist()
    rows = list(islice(_read_rows(place / "spans"), starts[-1]))
    for start, end in pairwise(starts):
        document = rows[start:end]
        lines = [f"{document[0]['doc_id']}: {len(document)} spans"]
        lines += [f"  span {row['number']:<4}{_decode(tokenizer, row['ids'])}" for row in document]
        yield [*lines, f"  overlap  {_decode(tokenizer, document[0]['overlap_ids'])}"]


def _pseudo_queries(place: Place, tokens: Place) -> Iterator[list[str]]:
    """Of a passage that has any: its queries, and the passage as the model sees it."""
    tokenizer = load_tokenizer((tokens / "tokenizer").local())
    passages = zip(_read_rows(place / "pseudo_queries"), _read_rows(tokens / "passages"), strict=True)
    with_query = ((row, passage) for row, passage in passages if row["queries"])
    for row, passage in islice(with_query, EXAMPLES):
        lines = [f"{row['doc_id']}: {len(row['queries'])} queries", f"  passage {_decode(tokenizer, passage['ids'])}"]
        yield [*lines, *(f"  query   {query[:WIDTH]}" for query in row["queries"])]


def _read_rows(folder: Place) -> Iterator[dict[str, Any]]:
    for name in folder.names():
        with (folder / name).reading() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(batch_size=256):
                yield from batch.to_pylist()


def _decode(tokenizer: Any, ids: list[int]) -> str:
    text = str(tokenizer.decode(ids, skip_special_tokens=True))
    return f"({len(ids)} tokens) {text if len(text) <= WIDTH else text[: WIDTH - 1] + '…'}"
