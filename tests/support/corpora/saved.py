"""Datasets as `save_to_disk` of Hugging Face's `datasets` (5.2) lays them out, written with pyarrow alone."""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

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
