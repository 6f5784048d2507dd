"""Small collections written to disk, and artifacts read back, for the tests of corpora."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from midmask.corpora import CorpusConfig, prepare
from midmask.store.place import Place


def write(path: Path, data: bytes) -> None:
    """The bytes, packed if the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def write_beir(folder: Path, *, passages: int = 40, queries: int = 20, packed: bool = False) -> None:
    """d0, d1, ... and q0, q1, ...; query k's relevant passage is d k; splits train, dev, test in turn."""
    end = ".gz" if packed else ""
    docs = [{"_id": f"d{n}", "title": f"title {n}", "text": f"passage {n} of a small set"} for n in range(passages)]
    write(folder / f"corpus.jsonl{end}", json_lines(docs))
    asked = [{"_id": f"q{n}", "text": f"what is passage {n}?"} for n in range(queries)]
    write(folder / f"queries.jsonl{end}", json_lines(asked))
    for index, split in enumerate(("train", "dev", "test")):
        rows = [f"q{n}\td{n}\t1\n" for n in range(index, queries, 3)]
        write(folder / "qrels" / f"{split}.tsv{end}", "".join(["query-id\tcorpus-id\tscore\n", *rows]).encode())


def prepared(name: str, out: Path, **fields: Any) -> dict[str, Any]:
    """The result of the one-process step."""
    return prepare(CorpusConfig(name=name, **fields), {}, Place(str(out)))


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file or a folder of them."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def quarantine(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]


def contents(out: Path) -> dict[str, bytes]:
    """All files of an artifact by name."""
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
