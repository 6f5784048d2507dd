"""Reads tracked runs: as rows of plain data, their files and histories, and the artifacts that they name.

Creates no store.
"""

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import Experiment, LoggedModel, Run, ViewType
from mlflow.entities.model_registry import ModelVersion

from midmask.core.config import fingerprints_in
from midmask.tracking.names import ARTIFACT, sqlite_file
from midmask.tracking.opening import PARENT, STATUS, STEP, is_written
from midmask.tracking.sending import unsent_files
from midmask.tracking.store import EXPERIMENT, alone_with, connect, explained


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
    with explained(uri):
        client = connect(uri)
        histories = {key: client.get_metric_history(run_id, key) for key in keys}
    return {
        key: sorted({metric.step: _point(metric) for metric in sorted(metrics, key=lambda one: one.timestamp)}.values())
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
            with explained(uri), alone_with(uri):  # a job may be creating it
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
        with explained(self._uri):
            return self._client.get_run(run_id)

    def models(self) -> list[LoggedModel]:
        """Every checkpoint that runs made or used, as MLflow has it."""
        return [
            model
            for page in self._read(lambda client, of, token: client.search_logged_models(of, page_token=token))
            for model in page
        ]

    def versions(self) -> list[ModelVersion]:
        """Every version of a model in the registry."""

        def search(client: MlflowClient, of: list[str], token: str | None) -> Any:
            return client.search_model_versions(max_results=PAGE, page_token=token)

        return [version for page in self._read(search) for version in page]

    def _rows(self, query: str) -> Iterator[TrackedRow]:
        return (_row(run) for page in self._pages(query) for run in page)

    def _pages(self, query: str, view: int = ViewType.ACTIVE_ONLY) -> Iterator[list[Run]]:
        return self._read(
            lambda client, of, token: client.search_runs(of, query, view, PAGE, ["start_time ASC"], token)
        )

    def _read(self, search: Callable[[MlflowClient, list[str], str | None], Any]) -> Iterator[Any]:
        """The pages of a search; none while nothing is tracked."""
        token = None
        while self._client is not None and self._experiment is not None:
            with explained(self._uri):
                page = search(self._client, [self._experiment.experiment_id], token)
            yield page
            token = page.token
            if not token:
                break


def read_runs(uri: str) -> list[TrackedRow]:
    """Every run of the experiment, newest first; empty if nothing was tracked there yet.

    Raises:
        UserError: if the store does not answer.
    """
    return StoreReader(uri).all()[::-1]


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

    # fingerprints in runs that are not deleted, their models, registered models, and values not sent yet
    named: frozenset[str] = frozenset()
    # fingerprints of the models of a sweep's trials, whose runs name no evaluations
    tried: frozenset[str] = frozenset()
    storages: frozenset[str] = frozenset()  # places of the stores in which artifacts of these runs lie
    running: tuple[str, ...] = ()  # names of the runs that a process writes; those of other hosts are believed to live
    runs: int = 0  # how many there are

    def __or__(self, other: "References") -> "References":
        return References(
            self.named | other.named,
            self.tried | other.tried,
            self.storages | other.storages,
            (*self.running, *other.running),
            self.runs + other.runs,
        )


def read_references(uri: str, home: Path) -> References:
    """Reads the references of one tracking store; all are empty if nothing was tracked there yet.

    Args:
        home: the folder of `mlflow-unsent/`, where values wait that have not reached the store.

    Raises:
        UserError: if the store does not answer.
    """
    unsent = [{"": path.read_text()} for path in unsent_files(home, uri)]
    reader = StoreReader(uri)
    runs = {run.info.run_id: run for run in reader.runs()}
    models = {model.model_id: model for model in reader.models()}
    trials = [name for name, run in runs.items() if run.data.tags.get(STEP) == "trial"]
    in_trials = set[str]().union(*(_models_of(reader.run(name)) for name in trials)) & models.keys()
    # A model that a run only used is in the record of what the run made; one whose maker is not known counts.
    counted = [
        model
        for name, model in models.items()
        if name in in_trials or not model.source_run_id or model.source_run_id in runs
    ]
    texts = [dict(part) for run in runs.values() for part in (run.data.tags, run.data.params)]
    texts += [dict(record.tags) for record in (*counted, *reader.versions())]
    places = (text for values in texts for name, text in values.items() if name.split("/")[0] == ARTIFACT)
    return References(
        named=_fingerprints(texts + unsent),
        tried=_fingerprints(dict(models[name].tags) for name in in_trials),
        storages=frozenset(_STEP_PLACE.sub("", place) for place in places),
        running=tuple(run.info.run_name for run in runs.values() if is_written(run)),
        runs=len(runs),
    )


def _models_of(run: Run) -> set[str]:
    """Ids of the models that a run used or made."""
    used = run.inputs.model_inputs if run.inputs else []
    made = run.outputs.model_outputs if run.outputs else []
    return {link.model_id for link in (*used, *made)}


def _fingerprints(texts: Iterable[Mapping[str, str]]) -> frozenset[str]:
    return frozenset(name for values in texts for text in values.values() for name in fingerprints_in(text))
