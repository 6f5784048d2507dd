"""The histories of metrics: the values that a run logged at its steps."""

from collections.abc import Iterable

from midmask.errors import UserError
from midmask.tracking.failures import FAILURES, unreachable
from midmask.tracking.store import connect

History = list[tuple[int, float]]
"""(step, value), by step."""


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
        key: sorted({metric.step: metric.value for metric in sorted(own, key=lambda one: one.timestamp)}.items())
        for key, own in told.items()
    }
