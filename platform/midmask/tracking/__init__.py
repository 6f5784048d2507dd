"""Tracked runs: the only home of MLflow.

    names       which store, as a URI; measure <-> metric key
    store       the store, created once, and what an error of it means
    outbox      a run's values on disk until they have arrived, and the thread that carries them
    writer      which runs a living process writes, and how busy its machine is meanwhile
    lineage     datasets and models: what runs read and made
    runs        Tracker, what a job's driver holds; TrackedRun, one run, open to be written to
    reading     runs as rows of plain data, their files as local files, histories of metrics
    references  which artifacts of a store tracked runs and registered models name
    models      finished models in the registry; imported where it is used, as MLflow's own models take long to import

Runs carry the tags `midmask.job|recipe|objective|step|corpus|fingerprint|status`; status is running, finished, failed,
killed, pruned, or cached (a run that only points, by `midmask.cached_run`, to the finished one).

The names below are imported when they are first used: what only needs an address does not wait for MLflow.
"""

from typing import TYPE_CHECKING

from midmask.core.registry import import_when_used

if TYPE_CHECKING:
    from midmask.core.redaction import redacted
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
        resolve_tracking_uri,
        result_key,
        self_matches_key,
        sqlite_file,
        ui_address,
        ui_command,
    )
    from midmask.tracking.reading import StoreReader, TrackedRow, artifact_file, read_runs
    from midmask.tracking.runs import Found, TrackedRun, Tracker
    from midmask.tracking.store import Patience, why_silent

_NAMES = {
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
        "resolve_tracking_uri",
        "result_key",
        "self_matches_key",
        "sqlite_file",
        "ui_address",
        "ui_command",
    ),
    "reading": ("StoreReader", "TrackedRow", "artifact_file", "read_runs"),
    "runs": ("Found", "TrackedRun", "Tracker"),
    "store": ("Patience", "why_silent"),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names} | {
    "redacted": "midmask.core.redaction"
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
