"""A snapshot as a Parquet file: one row a run, its tags, params and metrics as maps; the times in the file's metadata.

The file is a cache and nothing more. One of another format, a torn one, or one that cannot be written is as none: then
everything is read again. It appears whole, by renaming, so that pages of several servers may share it; whoever comes
last wins, and any of them is true.
"""

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.identity import fingerprint
from midmask.leaderboard.snapshot import Snapshot
from midmask.tracking import TrackedRow, sqlite_file

log = logging.getLogger(__name__)

FORMAT = 2
"""Of the file; one of another number is read as none."""

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run_id", "experiment_id", "name", "parent_id", "status")),
        *((name, _TIME) for name in ("started", "ended")),
        *((name, _TEXTS) for name in ("tags", "params")),
        ("metrics", pa.map_(pa.string(), pa.float64())),
    ]
)
MAPS = ("tags", "params", "metrics")


def snapshot_place(uri: str) -> Path:
    """Beside a SQLite file that lies in a folder which may be written; else in the user's cache folder."""
    path = sqlite_file(uri)
    if path is not None and os.access(path.parent, os.W_OK):
        return Path(f"{path}.runs.parquet")
    return cache_folder() / f"{fingerprint({'store': uri})}.runs.parquet"


def cache_folder() -> Path:
    """`midmask` below XDG_CACHE_HOME, else below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midmask"


def save(snapshot: Snapshot, path: Path) -> None:
    """Writes the file, or says in the log why it cannot be written."""
    about = {
        "format": FORMAT,
        "store": snapshot.store,
        "looked": snapshot.looked.isoformat(),
        "whole": snapshot.whole.isoformat(),
        "deleted": sorted(snapshot.deleted),
    }
    columns = {name: [getattr(run, name) for run in snapshot.runs.values()] for name in SCHEMA.names}
    columns |= {name: [list(own.items()) for own in columns[name]] for name in MAPS}
    table = pa.table(columns, schema=SCHEMA.with_metadata({"midmask": json.dumps(about)}))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            pq.write_table(table, name, compression="zstd")
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        log.warning("the snapshot of the runs is not kept, so the next start reads them all again: %s", error)


def load(path: Path) -> Snapshot | None:
    """The snapshot in this file, None if there is none that this version can read."""
    with contextlib.suppress(OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        table = pq.read_table(pa.BufferReader(path.read_bytes()))  # by its path it is opened twice, and may be replaced
        about = json.loads((table.schema.metadata or {}).get(b"midmask", b"{}"))
        if about.get("format") == FORMAT and table.schema.equals(SCHEMA):
            runs = {run.run_id: run for run in _runs(table)}
            looked, whole = (datetime.fromisoformat(about[name]) for name in ("looked", "whole"))
            return Snapshot(about["store"], looked, whole, runs, frozenset(about["deleted"]))
    return None


def _runs(table: pa.Table) -> Iterator[TrackedRow]:
    plain = {name: table[name].to_pylist() for name in SCHEMA.names if name not in MAPS}
    maps = {name: _dicts(table[name]) for name in MAPS}
    for at in range(len(table)):
        yield TrackedRow(**{name: values[at] for name, values in {**plain, **maps}.items()})


def _dicts(column: pa.ChunkedArray) -> list[Mapping[str, Any]]:
    """A map column as dicts. Equal texts are one object: a hundred settings of thousands of runs are few texts."""
    maps = column.combine_chunks()
    keys, values = _shared(maps.keys), _shared(maps.items)
    return [
        dict(zip(keys[start:end], values[start:end], strict=True)) for start, end in pairwise(maps.offsets.to_pylist())
    ]


def _shared(values: pa.Array) -> list[Any]:
    if not pa.types.is_string(values.type):
        return list(values.to_pylist())
    encoded = values.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [texts[at] for at in encoded.indices.to_numpy()]
