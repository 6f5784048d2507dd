"""The histories of metrics: the values that a run logged at its steps, and when."""

from collections.abc import Iterable
from typing import NamedTuple

from midmask.errors import UserError
from midmask.tracking.failures import FAILURES, unreachable
from midmask.tracking.store import connect


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
        told = {key: client.get_metric_history(run_id, key) for key in keys}
    except FAILURES as error:
        raise UserError(unreachable(uri, error)) from None
    return {
        key: sorted({one.step: _point(one) for one in sorted(own, key=lambda one: one.timestamp)}.values())
        for key, own in told.items()
    }


def read_last(uri: str, run_id: str) -> dict[str, MetricPoint]:
    """Key -> the last point of its history.

    Raises:
        UserError: as `read_histories`.
    """
    try:
        data = connect(uri).get_run(run_id).data
    except FAILURES as error:
        raise UserError(unreachable(uri, error)) from None
    return {metric.key: _point(metric) for metric in data.to_proto().metrics}


def _point(metric) -> MetricPoint:  # type: ignore[no-untyped-def]  # MLflow's Metric, as an entity or a message
    return MetricPoint(metric.step, metric.value, metric.timestamp / 1000)
