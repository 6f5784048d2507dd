"""A collection of any size: Wikipedia's passages again and again, each time under ids of their own, and queries."""

import gzip
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

WIKI = Path(__file__).resolve().parents[3] / "shared" / "data" / "wiki" / "corpus.jsonl.gz"

QUERIES = {"train": 2000, "dev": 500}
"""Queries of each split: as many at every size, so that what grows with passages alone is seen."""

WORDS = 8
"""Of a query: the first ones of its passage."""


def write_collection(folder: Path, passages: int, wiki: Path = WIKI) -> str:
    """Writes a BEIR folder and returns its name as a corpus.

    Every query is the beginning of one passage, which is judged relevant; passages are drawn over the whole collection.
    """
    (folder / "qrels").mkdir(parents=True)
    drawn = random.Random(0).sample(range(passages), sum(QUERIES.values()))
    split_of = dict(zip(drawn, (split for split, count in QUERIES.items() for _ in range(count)), strict=True))
    qrels = {split: ["query-id\tcorpus-id\tscore\n"] for split in QUERIES}
    with open(folder / "corpus.jsonl", "w") as corpus, open(folder / "queries.jsonl", "w") as queries:
        for number, row in enumerate(itertools.islice(_rows(wiki), passages)):
            corpus.write(json.dumps(row) + "\n")
            if split := split_of.get(number):
                words = " ".join(row["text"].split()[:WORDS])
                queries.write(json.dumps({"_id": f"q{number}", "text": words}) + "\n")
                qrels[split].append(f"q{number}\t{row['_id']}\t1\n")
    for split, lines in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(lines))
    return f"beir:{folder}"


def _rows(wiki: Path) -> Iterator[dict[str, str]]:
    """Wikipedia's passages without end, each round under other ids."""
    for again in itertools.count():
        with gzip.open(wiki, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                yield {**row, "_id": f"{again}-{row['_id']}"}
