"""Small collections in ir_datasets: registered from files, and laid where the package caches those of an id of its own.

ir_datasets is imported where it is used: it makes its folder when it is imported, and a test says where.
"""

from pathlib import Path
from typing import Any, NamedTuple

from tests.support.corpora.collections import json_lines, write

PASSAGES = [(f"d{n}", f"title {n}" if n % 3 else "", f"passage {n} of a small set") for n in range(12)]
QUERIES = {"train": [0, 1, 2], "dev": [3, 4], "test": [5, 6, 7]}
GRADES = {number: number % 4 for number in range(8)}


class TitledDoc(NamedTuple):
    doc_id: str
    title: str
    text: str


def register(name: str, folder: Path) -> None:
    """`name` with children train, valid and test, made of files."""
    import ir_datasets
    from ir_datasets import formats, util

    lines = {"docs.tsv": ["\t".join(row) for row in PASSAGES]}
    for split, numbers in QUERIES.items():
        lines[f"{split}.queries.tsv"] = [f"{number}\tquery number {number}?" for number in numbers]
        lines[f"{split}.qrels"] = [f"{number} 0 d{number} {GRADES[number]}" for number in numbers]
    for file, own in lines.items():
        write(folder / file, "".join(f"{line}\n" for line in own).encode())

    def local(file: str) -> Any:
        return util.LocalDownload(folder / file)

    docs = formats.TsvDocs(local("docs.tsv"), doc_cls=TitledDoc)
    ir_datasets.registry.register(name, ir_datasets.Dataset(docs))
    for split, child in (("train", "train"), ("dev", "valid"), ("test", "test")):
        parts = formats.TsvQueries(local(f"{split}.queries.tsv")), formats.TrecQrels(local(f"{split}.qrels"), {})
        ir_datasets.registry.register(f"{name}/{child}", ir_datasets.Dataset(docs, *parts))


def write_as_beir(folder: Path) -> None:
    """What `register` registers."""
    write(folder / "corpus.jsonl", json_lines([{"_id": d, "title": t, "text": x} for d, t, x in PASSAGES]))
    asked = [{"_id": str(n), "text": f"query number {n}?"} for own in QUERIES.values() for n in own]
    write(folder / "queries.jsonl", json_lines(asked))
    for split, own in QUERIES.items():
        judged = [f"{n}\td{n}\t{GRADES[n]}\n" for n in own]
        write(folder / "qrels" / f"{split}.tsv", "".join(["query-id\tcorpus-id\tscore\n", *judged]).encode())


def write_msmarco(home: Path, leave_out: str = "") -> None:
    """The files of msmarco-passage/dev/small where the package caches them."""
    lines = {
        "collection.tsv": [f"{n}\t{text}" for n, (_, _, text) in enumerate(PASSAGES)],
        "dev/small/queries.tsv": ["300\twhat is passage 3", "400\twhat is passage 4"],
        "dev/small/qrels": ["300 0 3 1", "400 0 4 1"],
    }
    write(home / "msmarco-passage" / "irds_version.txt", b"v2")
    for file, own in lines.items():
        path = home / "msmarco-passage" / file
        path.unlink(missing_ok=True)
        if file != leave_out:
            write(path, "".join(f"{line}\n" for line in own).encode())
