"""Where tracked runs go: which store, and how it is created once."""

import contextlib
import fcntl
import logging
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import mlflow.store.db.utils
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from midmask.errors import UserError
from midmask.redaction import HIDDEN, redacted
from midmask.tracking.address import is_database, sqlite_file
from midmask.tracking.failures import FAILURES, unreachable

EXPERIMENT = "midmask"


def connect(uri: str) -> MlflowClient:
    """A client that leaves waiting to us: MLflow's own retries take four minutes for a server, two for a database."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    mlflow.store.db.utils.MAX_RETRY_COUNT = 1  # no setting of MLflow's reaches it
    return MlflowClient(tracking_uri=uri)


def why_silent(uri: str) -> str:
    """Why a store does not answer, in one line; empty if it does, or if it is a file that a first run will make."""
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        return ""
    try:
        connect(uri).get_experiment_by_name(EXPERIMENT)
    except FAILURES as error:
        return unreachable(uri, error)
    return ""


def create_store(uri: str, home: Path) -> tuple[MlflowClient, str]:
    """The client and the id of the experiment `midmask`, both made if they are not there.

    A fresh SQLite file that several processes open at once is ruined for good, so they queue at a lock beside it.

    Raises:
        UserError: if the experiment was deleted.
    """
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # else it says that it makes its tables
    with alone_with(uri):
        client = connect(uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            place = artifact_place(home) if is_database(uri) else None
            try:
                return client, str(client.create_experiment(EXPERIMENT, artifact_location=place))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another host was faster
                    raise
                experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment.lifecycle_stage != "active":
        raise UserError(
            f"the experiment {EXPERIMENT!r} of {redacted(uri)} is deleted; bring it back with{_secret(uri)}: "
            f"MLFLOW_TRACKING_URI={shlex.quote(redacted(uri))} mlflow experiments restore -x {experiment.experiment_id}"
        )
    return client, str(experiment.experiment_id)


def _secret(uri: str) -> str:
    return "" if redacted(uri) == uri else f" (the password in place of {HIDDEN})"


def artifact_place(home: Path) -> str:
    """`<home>/mlartifacts` as a URI. MLflow decodes it once, hence `quote`."""
    return f"file://{quote(str(home.absolute() / 'mlartifacts'))}"


@contextlib.contextmanager
def alone_with(uri: str) -> Iterator[None]:
    """Holds the lock beside a SQLite file while it is opened; other stores guard themselves."""
    path = sqlite_file(uri)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
