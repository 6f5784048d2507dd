"""Tracked runs as rows of plain data, for whoever only looks."""

from dataclasses import dataclass
from datetime import UTC, datetime

from mlflow.entities import Run

from midmask.errors import UserError
from midmask.tracking.runs import PARENT
from midmask.tracking.store import EXPERIMENT, FAILURES, alone_with, connect, sqlite_file, unreachable

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


def read_runs(uri: str) -> list[TrackedRow]:
    """Every run of the experiment, newest first; empty if nothing was tracked there yet. Creates nothing.

    Raises:
        UserError: if the store does not answer.
    """
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        return []
    rows: list[TrackedRow] = []
    try:
        with alone_with(uri):  # a job may be creating it
            client = connect(uri)
            experiment = client.get_experiment_by_name(EXPERIMENT)
        token = None
        while experiment is not None:
            found = client.search_runs(
                [experiment.experiment_id], max_results=PAGE, page_token=token, order_by=["start_time DESC"]
            )
            rows += [_row(run) for run in found]
            token = found.token
            if not token:
                break
    except FAILURES as error:
        raise UserError(unreachable(uri, error)) from None
    return rows


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
        tags=dict(data.tags),
        params=dict(data.params),
        metrics=dict(data.metrics),
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
