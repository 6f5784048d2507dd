"""Where tracked runs go: which store, and how it is created once."""

import contextlib
import fcntl
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import mlflow.store.db.utils
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from midmask.errors import UserError
from midmask.redaction import redacted
from midmask.tracking.failures import DATABASES, is_database, scheme_of

EXPERIMENT = "midmask"
SERVERS = ("http", "https", "databricks")
_ADVICE = "Use sqlite:///mlflow.db, a database (postgresql://…, mysql://…, mssql://…) or an MLflow server (http://…)."


def resolve_tracking_uri(flag: str | None, home: Path) -> str:
    """The store's URI: the flag, else MLFLOW_TRACKING_URI, else `sqlite:///<home>/mlflow.db`.

    A relative SQLite path is resolved against `home`.

    Raises:
        UserError: for a `file:` store or a folder, which MLflow no longer keeps, and for anything unknown.
    """
    uri = (flag or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db").strip()
    scheme = scheme_of(uri)
    shown = redacted(uri)
    if scheme == "sqlite":
        return _absolute_sqlite(uri, home)
    if scheme == "file" or (":" not in uri and scheme not in SERVERS):
        raise UserError(f"tracking URI {shown!r} is a folder, a store that MLflow has given up. {_ADVICE}")
    if scheme not in DATABASES + SERVERS:
        raise UserError(f"tracking URI {shown!r}: MLflow knows no store {scheme!r}. {_ADVICE}")
    return uri


def _absolute_sqlite(uri: str, home: Path) -> str:
    shown = redacted(uri)
    prefix, _, rest = uri.partition(":///")
    path, mark, query = rest.partition("?")
    if not path or path == ":memory:":
        raise UserError(f"tracking URI {shown!r} names no file, so nothing would be kept. {_ADVICE}")
    if unfit := set(str(home.absolute() / path)) & set("#%?"):
        raise UserError(
            f"tracking URI {shown!r} below {home}: MLflow opens no file with {min(unfit)!r} in its path. {_ADVICE}"
        )
    return f"{prefix}:///{(home.absolute() / path)}{mark}{query}"


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store, None for any other."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


def connect(uri: str) -> MlflowClient:
    """A client that leaves waiting to us: MLflow's own retries take four minutes for a server, two for a database."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    mlflow.store.db.utils.MAX_RETRY_COUNT = 1  # no setting of MLflow's reaches it
    return MlflowClient(tracking_uri=uri)


def create_store(uri: str, home: Path) -> tuple[MlflowClient, str]:
    """The client and the id of the experiment `midmask`, both made if they are not there.

    A fresh SQLite file that several processes open at once is ruined for good, so they queue at a lock beside it.

    Raises:
        UserError: if the experiment was deleted.
    """
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
            f"the experiment {EXPERIMENT!r} of {redacted(uri)} is deleted; "
            f"bring it back with: mlflow experiments restore -x {experiment.experiment_id}"
        )
    return client, str(experiment.experiment_id)


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


def ui_command(uri: str) -> str:
    """What to type to look at the runs in MLflow's own pages."""
    if not is_database(uri):
        return f"open {redacted(uri)}"
    return f"mlflow ui --backend-store-uri {shlex.quote(redacted(uri))} --host 127.0.0.1 --port 5000"


def ui_address(uri: str, ui: str | None = None) -> str:
    """The root of MLflow's pages: `ui` if given, the server itself, or where `ui_command` puts them."""
    if ui:
        return ui.rstrip("/")
    if is_database(uri):
        return "http://127.0.0.1:5000"
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
