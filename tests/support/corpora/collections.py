"""Small collections written to disk, and artifacts read back. Some collections lie as `save_to_disk` of Hugging Face's
`datasets` (5.2) lays them out, written with pyarrow alone.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
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


BATCH = 1_000
"""Rows of a record batch."""

DTYPES = {"double": "float64", "float": "float32"}
"""What `datasets` calls Arrow's types, where it has other names."""


def save(folder: Path, table: pa.Table, *, shards: int = 1) -> None:
    """`Dataset.save_to_disk`: state.json, dataset_info.json, and contiguous shards as IPC streams; a table without rows
    has no file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    types = {field.name: str(field.type) for field in table.schema}
    features = {name: {"dtype": DTYPES.get(kind, kind), "_type": "Value"} for name, kind in types.items()}
    schema = table.schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    shards = shards if len(table) else 0
    names = [f"data-{number:05d}-of-{shards:05d}.arrow" for number in range(shards)]
    first = 0
    for number, name in enumerate(names):
        length = len(table) // shards + (number < len(table) % shards)
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            writer.write_table(table.slice(first, length).cast(schema), max_chunksize=BATCH)
        first += length
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "b3f73a2ce25216f6"}
    state |= {"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False}
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2))


def save_splits(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """`DatasetDict.save_to_disk`: dataset_dict.json, and a dataset for each split."""
    for split, table in tables.items():
        save(folder / split, table)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(tables)}))


def write_saved(folder: Path, *, passages: int = 40, queries: int = 20) -> None:
    """The collection of `collections.write_beir` as the hub has BEIR's: corpus and queries as splits of their own name,
    judgements with a score of floating point, the split dev called validation.
    """
    docs = [{"_id": f"d{n}", "title": f"title {n}", "text": f"passage {n} of a small set"} for n in range(passages)]
    asked = [{"_id": f"q{n}", "text": f"what is passage {n}?"} for n in range(queries)]
    save(folder / "corpus", pa.Table.from_pylist(docs), shards=3)
    save_splits(folder / "queries", {"queries": pa.Table.from_pylist(asked)})
    judged = {}
    for index, split in enumerate(("train", "validation", "test")):
        rows = [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1.0} for n in range(index, queries, 3)]
        judged[split] = pa.Table.from_pylist(rows)
    save_splits(folder / "qrels", judged)


def write_saved_texts(folder: Path) -> None:
    """One dataset of texts without ids, with columns that nobody reads."""
    rows = [{"text": f"text number {n}", "url": f"u{n}", "meta": {"n": n}} for n in range(40)]
    save(folder, pa.Table.from_pylist(rows), shards=2)
