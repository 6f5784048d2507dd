"""A corpus whose documents are made of sentences, in three shards, with titles, queries and judgements."""

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.queries.document_spans import SPANS, SpansConfig
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import load_tokenizer

DOCUMENTS = 90
SPAN_LENGTH = 24
SPAN_LIMIT = SPAN_LENGTH - 2
WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in ("", "lin", "mor", "tus")]


def text_of(number: int) -> str:
    """One sentence for every tenth document, a sentence of 60 words for every seventh, else 2 to 12 sentences."""
    random_ = random.Random(number)
    lengths = [random_.randint(1, 14) for _ in range(1 if number % 10 == 0 else random_.randint(2, 12))]
    if number % 7 == 3:
        lengths[-1] = 60
    return " ".join(" ".join(random_.choices(WORDS, k=length)).capitalize() + "." for length in lengths)


def titled(number: int) -> str:
    return "" if number % 9 == 0 else f"Title {number // 4}"


def write_inputs(folder: Path) -> dict[str, Artifact]:
    """Corpus and tokens: 90 documents d0 … d89 in shards of 40; query i asks for document i; every third is dev."""
    corpus = folder / "corpus"
    (corpus / "docs").mkdir(parents=True)
    for shard, first in enumerate(range(0, DOCUMENTS, 40)):
        rows = range(first, min(first + 40, DOCUMENTS))
        columns = [[f"d{row}" for row in rows], [titled(row) for row in rows], [text_of(row) for row in rows]]
        table = pa.table(columns, names=["doc_id", "title", "text"])
        pq.write_table(table, corpus / "docs" / f"{shard:05d}.parquet", row_group_size=16)
    ids = [f"q{row}" for row in range(30)]
    asked = pa.table({"query_id": ids, "text": [f"what is {row}" for row in range(30)]})
    pq.write_table(asked, corpus / "queries.parquet")
    splits = ["dev" if row % 3 == 0 else "train" for row in range(30)]
    grades = pa.array([0 if row == 1 else 1 for row in range(30)], pa.int32())
    qrels = pa.table({"split": splits, "query_id": ids, "doc_id": [f"d{row}" for row in range(30)], "grade": grades})
    pq.write_table(qrels, corpus / "qrels.parquet")
    inputs = inputs_at(folder)
    config = TokensConfig(vocabulary_size=250, max_length=40, query_length=8)
    tokenise(config, {"corpus": inputs["corpus"]}, inputs["tokens"].place)
    return inputs


def inputs_at(folder: Path) -> dict[str, Artifact]:
    """What `write_inputs` has written."""
    return {name: Artifact(Place(str(folder / name)), {"fingerprint": name[0]}) for name in ("corpus", "tokens")}


def tokens_of(inputs: dict[str, Artifact], text: str) -> list[int]:
    tokenizer = load_tokenizer(Path(str(inputs["tokens"].place)) / "tokenizer")
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def made_spans(inputs: dict[str, Artifact], out: Path, **fields: Any) -> tuple[dict[str, Any], dict[str, list[dict]]]:
    """The result of cutting spans, and the rows of each document; numbers and special tokens are checked on the way."""
    result = SPANS(SpansConfig(**{"span_length": SPAN_LENGTH, "short_share": 0.0, **fields}), inputs, Place(str(out)))
    rows = [row for path in sorted((out / "spans").iterdir()) for row in pq.read_table(path).to_pylist()]
    documents = [(name, list(own)) for name, own in groupby(rows, lambda row: row["doc_id"])]
    assert len(dict(documents)) == len(documents)
    for _, own in documents:
        assert [row["number"] for row in own] == list(range(len(own)))
    tokenizer = load_tokenizer(Path(str(inputs["tokens"].place)) / "tokenizer")
    for ids in [row[name] for row in rows for name in ("ids", "overlap_ids")]:
        assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id) and 2 < len(ids) <= SPAN_LENGTH
    return result, dict(documents)
