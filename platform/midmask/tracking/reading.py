"""Reads tracked runs: as rows of plain data, their files, and the histories of their metrics. Creates no store."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import Experiment, LoggedModel, Run, ViewType
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from midmask.errors import UserError
from midmask.tracking.names import collection_key, sqlite_file
from midmask.tracking.store import EXPERIMENT, FAILURES, alone_with, connect, unreachable, unusable
from midmask.tracking.writer import PARENT


def artifact_file(uri: str, run_id: str, path: str, cache: Path) -> Path | None:
    """An artifact of a finished run as a local file, None if the run has no such artifact.

    Args:
        path: below the run's artifacts, such as `per_query/pydocs.dev.parquet`.
        cache: what lies on another machine is copied below this folder, once.

    Raises:
        UserError: if the store does not answer.
    """
    copy = cache / run_id / path
    if copy.exists():
        return copy
    try:
        client = connect(uri)
        place = client.get_run(run_id).info.artifact_uri
        if (local := _local(place)) is not None:
            return file if (file := local / path).exists() else None
        names = {item.path for item in client.list_artifacts(run_id, str(PurePosixPath(path).parent))}
        return _copy(f"{place}/{path}", copy, uri) if path in names else None
    except FAILURES as error:
        raise UserError(unreachable(uri, error)) from None


def _local(place: str) -> Path | None:
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def _copy(place: str, copy: Path, uri: str) -> Path:
    """The copy appears at once and whole: another page may look for it meanwhile."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
        fetched = download_artifacts(artifact_uri=place, dst_path=folder, tracking_uri=uri)
        os.replace(fetched, copy)
    return copy


class MetricPoint(NamedTuple):
    """A value at a step; `time`: when it was logged, in seconds since 1970."""

    step: int
    value: float
    time: float


History = list[MetricPoint]
"""By step."""


def read_histories(uri: str, run_id: str, keys: Iterable[str]) -> dict[str, History]:
    """Key -> its history; if a step was logged twice, the later value counts.

    Raises:
        UserError: if the store does not answer, or has no such run.
    """
    try:
        client = connect(uri)
        histories = {key: client.get_metric_history(run_id, key) for key in keys}
    except FAILURES as error:
        raise UserError(unreachable(uri, error)) from None
    return {
        key: sorted(
            {metric.step: _point(metric) for metric in sorted(metrics, key=lambda metric: metric.timestamp)}.values()
        )
        for key, metrics in histories.items()
    }


def _point(metric) -> MetricPoint:  # type: ignore[no-untyped-def]  # MLflow's Metric, as an entity or a message
    return MetricPoint(metric.step, metric.value, metric.timestamp / 1000)


PAGE = 1000
NAMED_AT_ONCE = 200
"""Ids in one request for runs by name, which a server may get in an address."""


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


class StoreReader:
    """Reads runs, models and versions of one store. Every method raises UserError if the store does not answer."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: MlflowClient | None = None
        self._experiment: Experiment | None = None
        path = sqlite_file(uri)
        if path is None or path.exists():
            with self._name_errors(), alone_with(uri):  # a job may be creating it
                self._client = connect(uri)
                self._experiment = self._client.get_experiment_by_name(EXPERIMENT)

    @property
    def identity(self) -> str:
        """Identifies the store, so that one made anew in the same place is distinguished from the one before; empty
        while nothing is tracked.
        """
        experiment = self._experiment
        return f"{experiment.experiment_id} of {experiment.creation_time}" if experiment else ""

    def all(self, progress: Callable[[int], None] = lambda count: None) -> list[TrackedRow]:
        """Every run that is not deleted, oldest first, so that a run that comes meanwhile moves no page.

        Args:
            progress: called with the number of runs read, after each page.
        """
        rows: list[TrackedRow] = []
        for page in self._pages(""):
            rows += map(_row, page)
            progress(len(rows))
        return rows

    def running_or_since(self, when: datetime) -> list[TrackedRow]:
        """Runs that have not ended, and those that began or ended then or later: MLflow keeps no time of change."""
        at = int(when.timestamp() * 1000)
        queries = (f"attributes.{what}" for what in ("status = 'RUNNING'", f"start_time >= {at}", f"end_time >= {at}"))
        return list({run.run_id: run for query in queries for run in self._rows(query)}.values())

    def named(self, run_ids: Collection[str]) -> list[TrackedRow]:
        """The named runs that are not deleted."""
        ids = sorted(run_ids)
        parts = (ids[start : start + NAMED_AT_ONCE] for start in range(0, len(ids), NAMED_AT_ONCE))
        queries = (f"attributes.run_id IN ({', '.join(repr(run_id) for run_id in part)})" for part in parts)
        return [run for query in queries for run in self._rows(query)]

    def deleted(self) -> frozenset[str]:
        """Ids of the runs that were deleted and may be restored."""
        return frozenset(run.info.run_id for page in self._pages("", ViewType.DELETED_ONLY) for run in page)

    def runs(self) -> Iterator[Run]:
        """Every run that is not deleted, as MLflow has it."""
        return (run for page in self._pages("") for run in page)

    def run(self, run_id: str) -> Run:
        """One run, with the models it used: MLflow lists runs without these."""
        assert self._client is not None, "a run is listed before"
        with self._name_errors():
            return self._client.get_run(run_id)

    def models(self) -> list[LoggedModel]:
        """Every checkpoint that runs made or used, as MLflow has it."""
        models: list[LoggedModel] = []
        token: str | None = None
        while self._client is not None and self._experiment is not None:
            with self._name_errors():
                page = self._client.search_logged_models([self._experiment.experiment_id], page_token=token)
            models += page
            token = page.token
            if not token:
                break
        return models

    def versions(self) -> list[ModelVersion]:
        """Every version of a model in the registry."""
        versions: list[ModelVersion] = []
        token: str | None = None
        while self._client is not None:
            with self._name_errors():
                page = self._client.search_model_versions(max_results=PAGE, page_token=token)
            versions += page
            token = page.token
            if not token:
                break
        return versions

    def _rows(self, query: str) -> Iterator[TrackedRow]:
        return (_row(run) for page in self._pages(query) for run in page)

    def _pages(self, query: str, view: int = ViewType.ACTIVE_ONLY) -> Iterator[list[Run]]:
        token = None
        while self._client is not None and self._experiment is not None:
            with self._name_errors():
                page = self._client.search_runs(
                    [self._experiment.experiment_id], query, view, PAGE, ["start_time ASC"], token
                )
            yield page
            token = page.token
            if not token:
                break

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            raise UserError(unreachable(self._uri, error)) from None
        except UserError:
            raise
        except Exception as error:  # protobuf's ParseError, KeyError, TypeError, … of answers that are not MLflow's
            raise UserError(unusable(self._uri, error)) from error


def read_runs(uri: str) -> list[TrackedRow]:
    """Every run of the experiment, newest first; empty if nothing was tracked there yet.

    Raises:
        UserError: if the store does not answer.
    """
    return StoreReader(uri).all()[::-1]


def _row(run: Run) -> TrackedRow:
    info, data = run.info, run.data
    status = data.tags.get("midmask.status", info.status.lower())
    ended = info.end_time if status != "running" else None  # a resumed run keeps the end of its first life
    return TrackedRow(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        name=info.run_name,
        parent_id=data.tags.get(PARENT),
        status=status,
        started=_time(info.start_time),
        ended=_time(ended) if ended else None,
        tags={**_dataset_tags(run), **data.tags},
        params=dict(data.params),
        metrics=dict(data.metrics),
    )


def _dataset_tags(run: Run) -> dict[str, str]:
    """The tags `collection_key` of the datasets that the run was evaluated on: runs of older versions lack them."""
    return {
        collection_key(dataset_input.dataset.name): dataset_input.dataset.digest
        for dataset_input in (run.inputs.dataset_inputs if run.inputs else [])
        if any(tag.key == MLFLOW_DATASET_CONTEXT and "eval" in tag.value.split(", ") for tag in dataset_input.tags)
    }


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
