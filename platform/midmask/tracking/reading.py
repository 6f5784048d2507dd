"""Reads tracked runs: as rows of plain data, their files, and the artifacts that they name.

Creates no store.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModel, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.store.entities import PagedList

from midmask.core.config import fingerprints_in
from midmask.tracking.names import ARTIFACT, sqlite_file
from midmask.tracking.opening import PARENT, STATUS, STEP, is_written
from midmask.tracking.store import EXPERIMENT, alone_with, connect, explained

T = TypeVar("T")


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


PAGE = 1000


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
        self._client: MlflowClient | None = None  # None while nothing is tracked
        self._experiments: list[str] = []
        path = sqlite_file(uri)
        if path is None or path.exists():
            with explained(uri), alone_with(uri):  # a job may be creating it
                client = connect(uri)
                if experiment := client.get_experiment_by_name(EXPERIMENT):
                    self._client, self._experiments = client, [experiment.experiment_id]

    def runs(self) -> Iterator[Run]:
        """Every run that is not deleted, oldest first, so that a run that comes meanwhile moves no page."""
        return self._read(
            lambda client, token: client.search_runs(
                self._experiments, max_results=PAGE, order_by=["start_time ASC"], page_token=token
            )
        )

    def run(self, run_id: str) -> Run:
        """One run, with the models it used: MLflow lists runs without these."""
        assert self._client is not None, "a run is listed before"
        with explained(self._uri):
            return self._client.get_run(run_id)

    def models(self) -> Iterator[LoggedModel]:
        """Every checkpoint that runs made or used."""
        return self._read(lambda client, token: client.search_logged_models(self._experiments, page_token=token))

    def versions(self) -> Iterator[ModelVersion]:
        """Every version of a model in the registry."""
        return self._read(lambda client, token: client.search_model_versions(max_results=PAGE, page_token=token))

    def _read(self, search: Callable[[MlflowClient, str | None], PagedList[T]]) -> Iterator[T]:
        """What the pages of a search hold."""
        token = None
        while self._client is not None:
            with explained(self._uri):
                page = search(self._client, token)
            yield from page
            token = page.token
            if not token:
                break


def read_runs(uri: str) -> list[TrackedRow]:
    """Every run of the experiment, newest first; empty if nothing was tracked there yet.

    Raises:
        UserError: if the store does not answer.
    """
    return [_row(run) for run in StoreReader(uri).runs()][::-1]


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

    # fingerprints in runs that are not deleted, their models, and registered models
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


def read_references(uri: str) -> References:
    """Reads the references of one tracking store; all are empty if nothing was tracked there yet.

    Raises:
        UserError: if the store does not answer.
    """
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
        named=_fingerprints(texts),
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
