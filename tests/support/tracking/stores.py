"""How long the tests wait for a store, what their runs are called, and what a store holds."""

from mlflow import MlflowClient

from midmask.tracking import (
    Patience,
)

QUICK = Patience(answer=30, close=20, flush=0.02, retry=0.05, longest_retry=0.2)
NEVER = Patience(answer=30, close=0.1, flush=3600, retry=0.05)
"""Gathers for an hour, so that nothing reaches the store before the process dies."""

TAGS = {"midmask.fingerprint": "f00d", "midmask.step": "pretrain"}


def history(uri: str, run_id: str, key: str) -> list[tuple[int, float]]:
    """(step, value) of every point the store holds, asked from MLflow itself."""
    return sorted((point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, key))
