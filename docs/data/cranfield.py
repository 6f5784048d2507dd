"""Cranfield in BEIR's layout, from ir_datasets, which downloads it when it is first read:

    pip install ir-datasets
    python docs/data/cranfield.py data/cranfield

A score is 5 minus the collection's code: 4 is a complete answer, 1 of minimum interest. Its -1, no interest, is 0.
(ir_datasets describes the codes 1 to 4 the other way round.) Documents without text go, and their judgements.
"""

import json
import sys
from pathlib import Path

import ir_datasets


def squeeze(text: str) -> str:
    """The text with single spaces in place of line breaks and other white space."""
    return " ".join(text.split())


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def main(out: str) -> None:
    source = ir_datasets.load("cranfield")
    passages = {
        doc.doc_id: {"_id": doc.doc_id, "title": squeeze(doc.title), "text": squeeze(doc.text)}
        for doc in source.docs_iter()
        if doc.text.strip()
    }
    queries = [{"_id": query.query_id, "text": squeeze(query.text)} for query in source.queries_iter()]
    judgements = [
        f"{row.query_id}\t{row.doc_id}\t{5 - row.relevance if row.relevance > 0 else 0}"
        for row in source.qrels_iter()
        if row.doc_id in passages
    ]
    for name, rows in (("corpus", passages.values()), ("queries", queries)):
        write_lines(Path(out, f"{name}.jsonl"), [json.dumps(row, ensure_ascii=False) for row in rows])
    write_lines(Path(out, "qrels", "test.tsv"), ["query-id\tcorpus-id\tscore", *judgements])
    print(f"{out}: {len(passages):,} passages, {len(queries):,} queries, {len(judgements):,} judgements")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
