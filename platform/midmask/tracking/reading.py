"""Reads tracked runs: as rows of plain data, their files, and the artifacts that they name.

Creates no store.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.store.entities import PagedList
from mlflow.utils import get_results_from_paginated_fn

from midmask.core.config import fingerprints_in
from midmask.tracking.names import ARTIFACT, sqlite_file
from midmask.tracking.opening import PAGE, PARENT, STATUS, is_written
from midmask.tracking.store import EXPERIMENT, alone_with, connect, explained

T = TypeVar("T")


def artifact_file(uri: str, run_id: str, path: str) -> Path | None:
    """An artifact of a finished run as a local file, None if the run has no such artifact. What lies on another machine
    is copied once, below XDG_CACHE_HOME, else below ~/.cache.

    Args:
        path: below the run's artifacts, such as `per_query/pydocs.dev.parquet`.

    Raises:
        UserError: if the store does not answer.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midmask"
    copy = cache / "artifacts" / run_id / path
    if copy.exists():
        return copy
    with explained(uri):
        client = connect(uri)
        place = client.get_run(run_id).info.artifact_uri
        parts = urlsplit(place)
        if parts.scheme in ("", "file"):
            file = Path(unquote(parts.path)) / path
            return file if file.exists() else None
        names = {item.path for item in client.list_artifacts(run_id, str(PurePosixPath(path).parent))}
        return _copy(f"{place}/{path}", copy, uri) if path in names else None


def _copy(place: str, copy: Path, uri: str) -> Path:
    """The copy appears at once and whole: another page may look for it meanwhile."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
        os.replace(download_artifacts(artifact_uri=place, dst_path=folder, tracking_uri=uri), copy)
    return copy


@dataclass(frozen=True)
class TrackedRow:
    """One run as MLflow has it; `metrics` holds each key's last value, `ended` is None while it runs."""

    run_id: str
    experiment_id: str
    name: str
    parent_id: str | None
    status: str
    started: datetime
    ended: datetime | None
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float]


def _read_runs(uri: str) -> list[Run]:
    """Every run that is not deleted, oldest first, so that a run that comes meanwhile moves no page."""
    return _read(
        uri,
        lambda client, experiment, count, token: client.search_runs(
            [experiment], max_results=count, order_by=["start_time ASC"], page_token=token
        ),
    )


def _read(uri: str, search: Callable[[MlflowClient, str, int, str | None], PagedList[T]]) -> list[T]:
    """What all pages of a search in the experiment hold.

    Raises:
        UserError: if the store does not answer.
    """
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        return []
    with explained(uri):
        with alone_with(uri):  # a job may be creating it
            client = connect(uri)
            experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return []
        return list(get_results_from_paginated_fn(partial(search, client, experiment.experiment_id), PAGE))


def read_runs(uri: str) -> list[TrackedRow]:
    """Every run of the experiment, newest first; empty if nothing was tracked there yet.

    Raises:
        UserError: if the store does not answer.
    """
    return [_row(run) for run in _read_runs(uri)][::-1]


def _row(run: Run) -> TrackedRow:
    info, data = run.info, run.data
    status = data.tags.get(STATUS, info.status.lower())
    ended = info.end_time if status != "running" else None  # a resumed run keeps the end of its first life
    return TrackedRow(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        name=info.run_name,
        parent_id=data.tags.get(PARENT),
        status=status,
        started=_time(info.start_time),
        ended=_time(ended) if ended else None,
        tags=dict(data.tags),
        params=dict(data.params),
        metrics=dict(data.metrics),
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_STEP_PLACE = re.compile(r"/[^/?]+/[^/?]+(?=\?|$)")
"""STEP/FINGERPRINT in the place of an artifact, before a URI's options."""


@dataclass(frozen=True)
class References:
    """The artifacts that tracked runs and registered models name, and the jobs that still run."""

    named: frozenset[str] = frozenset()  # fingerprints in runs that are not deleted, and in registered models
    storages: frozenset[str] = frozenset()  # places of the stores in which artifacts of these runs lie
    running: tuple[str, ...] = ()  # names of the runs that a process writes; those of other hosts are believed to live
    runs: int = 0  # how many there are


def read_references(uris: Iterable[str]) -> References:
    """Reads the references of tracking stores; all are empty if nothing was tracked there yet.

    Raises:
        UserError: if a store does not answer.
    """
    runs: list[Run] = []
    texts: list[Mapping[str, str]] = []
    for uri in uris:
        runs += _read_runs(uri)
        versions: list[ModelVersion] = _read(
            uri, lambda client, _, count, token: client.search_model_versions(max_results=count, page_token=token)
        )
        texts += [version.tags for version in versions]
    texts += [part for run in runs for part in (run.data.tags, run.data.params)]
    places = (text for values in texts for name, text in values.items() if name.split("/")[0] == ARTIFACT)
    return References(
        named=frozenset(name for values in texts for text in values.values() for name in fingerprints_in(text)),
        storages=frozenset(_STEP_PLACE.sub("", place) for place in places),
        running=tuple(run.info.run_name for run in runs if is_written(run)),
        runs=len(runs),
    )
