"""Where tracked runs go: which store, how it is created once, and what an error of it means."""

import contextlib
import fcntl
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import mlflow.store.db.utils
import requests
import sqlalchemy.exc
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from midmask.errors import UserError
from midmask.tracking.names import redacted

log = logging.getLogger(__name__)

T = TypeVar("T")

EXPERIMENT = "midmask"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https", "databricks")
_ADVICE = "Use sqlite:///mlflow.db, a database (postgresql://…, mysql://…, mssql://…) or an MLflow server (http://…)."
_REFUSALS = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "NOT_FOUND",
    "NOT_IMPLEMENTED",
}


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds, for a store that does not answer.

    answer: for what a job cannot go on without (opening the store, creating a run).
    close: for the last values, before they are left in the journal.
    flush: how long values are gathered before they are sent together.
    retry, longest_retry: the first and the longest pause between attempts.
    """

    answer: float = 300.0
    close: float = 60.0
    flush: float = 1.0
    retry: float = 1.0
    longest_retry: float = 30.0


def resolve_tracking_uri(flag: str | None, home: Path) -> str:
    """The store's URI: the flag, else MLFLOW_TRACKING_URI, else `sqlite:///<home>/mlflow.db`.

    A relative SQLite path is resolved against `home`.

    Raises:
        UserError: for a `file:` store or a folder, which MLflow no longer keeps, and for anything unknown.
    """
    uri = (flag or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db").strip()
    scheme = _scheme(uri)
    shown = redacted(uri)
    if scheme == "sqlite":
        return _absolute_sqlite(uri, home)
    if scheme == "file" or (":" not in uri and scheme not in SERVERS):
        raise UserError(f"tracking URI {shown!r} is a folder, a store that MLflow has given up. {_ADVICE}")
    if scheme not in DATABASES + SERVERS:
        raise UserError(f"tracking URI {shown!r}: MLflow knows no store {scheme!r}. {_ADVICE}")
    return uri


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower()


def _absolute_sqlite(uri: str, home: Path) -> str:
    prefix, _, rest = uri.partition(":///")
    path, mark, query = rest.partition("?")
    if not path or path == ":memory:":
        raise UserError(f"tracking URI {uri!r} names no file, so nothing would be kept. {_ADVICE}")
    if unfit := set(str(home.absolute() / path)) & set("#%?"):
        raise UserError(
            f"tracking URI {uri!r} below {home}: MLflow opens no file with {min(unfit)!r} in its path. {_ADVICE}"
        )
    return f"{prefix}:///{(home.absolute() / path)}{mark}{query}"


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store, None for any other."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


def is_database(uri: str) -> bool:
    return _scheme(uri) in DATABASES


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


def is_refusal(error: Exception) -> bool:
    """Whether the store has answered and will answer the same again; all else may pass (away, busy, locked, full)."""
    return isinstance(error, MlflowException) and error.error_code in _REFUSALS


FAILURES = (MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError)


def patiently(call: Callable[[], T], uri: str, patience: Patience) -> T:
    """`call()`, tried again for `patience.answer` seconds while the store is away, with one warning.

    Raises:
        UserError: if it stays away, refuses, or sends what MLflow's client cannot read.
    """
    end, pause, warned = time.monotonic() + patience.answer, patience.retry, False
    while True:
        try:
            return call()
        except FAILURES as error:
            if is_refusal(error):
                raise UserError(unusable(uri, error)) from error
            if time.monotonic() + pause > end:
                raise UserError(unreachable(uri, error)) from None
            if not warned:
                log.warning(
                    "the tracking store %s does not answer (%s); waiting up to %.0f s",
                    redacted(uri),
                    reason(error),
                    patience.answer,
                )
                warned = True
        except (UserError, KeyboardInterrupt):
            raise
        except Exception as error:  # protobuf's ParseError, KeyError, TypeError, … of answers that are not MLflow's
            raise UserError(unusable(uri, error)) from error
        time.sleep(pause)
        pause = min(2 * pause, patience.longest_retry)


def reason(error: Exception) -> str:
    """One line without credentials: a refusal's own, else that of the error at the bottom (connection refused)."""
    while not is_refusal(error) and isinstance(below := error.__cause__ or error.__context__, Exception):
        error = below
    return redacted(str(error).partition("\n")[0])[:200]


def unreachable(uri: str, error: Exception) -> str:
    """One line for a person: which store, why, what to do."""
    what = "check that the database can be read" if is_database(uri) else "start the server"
    return (
        f"the tracking store {redacted(uri)} does not answer: {reason(error)}; {what}, "
        "or name another with --tracking-uri or MLFLOW_TRACKING_URI"
    )


def unusable(uri: str, error: Exception) -> str:
    """One line for a person, about a store that answers, but not with what was asked."""
    return (
        f"the tracking store {redacted(uri)} answers with an error ({type(error).__name__}: {reason(error)}); check "
        "that it is the address of an MLflow server, or name another with --tracking-uri or MLFLOW_TRACKING_URI"
    )


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
