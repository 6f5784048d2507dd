"""Examples as a reader returns them, and a file of weights."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.store.place import Place


def all_passages(tokens: Place) -> tuple[list[str], list[list[int]]]:
    table = pa.concat_tables([pq.read_table(f"{tokens}/passages/{name}") for name in (tokens / "passages").names()])
    return table["doc_id"].to_pylist(), table["ids"].to_pylist()


def write_weights(tokens: Place, folder: Path) -> Place:
    """The weight of each token is its id over 4096, which half precision holds exactly."""
    (folder / "weights").mkdir(parents=True)
    for name in (tokens / "passages").names():
        ids = pq.read_table(f"{tokens}/passages/{name}")["ids"].to_pylist()
        weights = [np.array(row, np.float16) / np.float16(4096) for row in ids]
        table = pa.table({"weights": pa.array(weights, pa.list_(pa.float16()))})
        pq.write_table(table, folder / "weights" / name, row_group_size=70)
    return Place(str(folder))
