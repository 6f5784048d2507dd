"""Tracked runs: the only home of MLflow.

    names     measure <-> metric key
    address   which store, as a URI
    store     the store, created once
    failures  what an error of it means
    journal   a run's values on disk until they have arrived
    sender    the thread that carries them
    lineage   datasets and models: what runs read and made
    lease     which runs a living process writes
    machine   how busy the driver's machine is meanwhile
    run       TrackedRun: one run, open to be written to
    runs      Tracker: what a job's driver holds
    reading   runs as rows of plain data: all, or those that changed
    files     artifacts of runs as local files
    models    finished models in the registry; imported where it is used, since MLflow's own models take long to import

Runs carry the tags `midmask.job|recipe|objective|step|corpus|fingerprint|status`; status is running, finished, failed,
killed, pruned, or cached (a run that only points, by `midmask.cached_run`, to the finished one).

The names below are imported when they are first used: what only needs an address does not wait for MLflow.
"""

from typing import TYPE_CHECKING

from midmask.lazy import import_when_used

if TYPE_CHECKING:
    from midmask.redaction import redacted
    from midmask.tracking.address import resolve_tracking_uri, sqlite_file, ui_address, ui_command
    from midmask.tracking.failures import Patience
    from midmask.tracking.files import artifact_file
    from midmask.tracking.lineage import Dataset, TrackedModel
    from midmask.tracking.names import (
        ARTIFACT,
        LOG,
        PROGRESS,
        RUN_FILE,
        artifact_key,
        collection_key,
        is_measure,
        made_here_key,
        measure_of,
        metric_key,
        queries_key,
        result_key,
        self_matches_key,
    )
    from midmask.tracking.reading import StoreReader, TrackedRow, read_runs
    from midmask.tracking.run import TrackedRun
    from midmask.tracking.runs import Found, Tracker
    from midmask.tracking.store import why_silent

_NAMES = {
    "address": ("resolve_tracking_uri", "sqlite_file", "ui_address", "ui_command"),
    "failures": ("Patience",),
    "files": ("artifact_file",),
    "lineage": ("Dataset", "TrackedModel"),
    "names": (
        "ARTIFACT",
        "RUN_FILE",
        "LOG",
        "PROGRESS",
        "artifact_key",
        "collection_key",
        "is_measure",
        "made_here_key",
        "measure_of",
        "metric_key",
        "queries_key",
        "result_key",
        "self_matches_key",
    ),
    "reading": ("StoreReader", "TrackedRow", "read_runs"),
    "run": ("TrackedRun",),
    "runs": ("Found", "Tracker"),
    "store": ("why_silent",),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names} | {
    "redacted": "midmask.redaction"
}

__all__ = [
    "ARTIFACT",
    "LOG",
    "PROGRESS",
    "RUN_FILE",
    "Dataset",
    "Found",
    "Patience",
    "StoreReader",
    "TrackedModel",
    "TrackedRow",
    "TrackedRun",
    "Tracker",
    "artifact_file",
    "artifact_key",
    "collection_key",
    "is_measure",
    "made_here_key",
    "measure_of",
    "metric_key",
    "queries_key",
    "read_runs",
    "redacted",
    "resolve_tracking_uri",
    "result_key",
    "self_matches_key",
    "sqlite_file",
    "ui_address",
    "ui_command",
    "why_silent",
]


__getattr__ = import_when_used(__name__, _MODULES)
