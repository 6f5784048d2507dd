"""Creates the tracking store and connects to it; decides whether an error means to wait, or one line to the user."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import mlflow.store.db.utils
import requests
import sqlalchemy.exc
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from midmask.core.redaction import HIDDEN, redacted
from midmask.errors import UserError
from midmask.tracking.names import JOB_STEPS, is_database, is_measure, sqlite_file

log = logging.getLogger(__name__)

T = TypeVar("T")

EXPERIMENT = "midmask"

VIEW, MOST_COLUMNS, WIDTH = "midmask", 8, 190
"""Of the view that `save_view` saves: its key, columns for measures, and the pixels of such a column."""

KIND = {"mlflow.experimentKind": "custom_model_development"}
"""The experiment's tag with which MLflow opens its runs, not its pages for GenAI."""

_REFUSALS = {
    *("BAD_REQUEST", "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"),
    *("NOT_FOUND", "NOT_IMPLEMENTED"),
}
_DENIED = (401, 403)
_MAY_NOT_BE_WRITTEN = (errno.EROFS, errno.EACCES, errno.EPERM)

FAILURES = (MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError)


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds, for a store that does not answer."""

    answer: float = 60.0  # for what a job cannot begin without
    close: float = 60.0  # for the last values, before they are written to disk
    flush: float = 1.0  # while which values are gathered, to be sent together
    retry: float = 1.0  # the first pause between attempts
    longest_retry: float = 30.0  # the longest


def is_refusal(error: Exception) -> bool:
    """Whether the store has answered and will answer the same again; all else may pass (away, busy, locked, full)."""
    return isinstance(error, MlflowException) and error.error_code in _REFUSALS


def _lasts(error: Exception, uri: str) -> bool:
    """Whether waiting does not help: the store refuses this request or these credentials, or may not be written."""
    if isinstance(error, MlflowException) and not is_database(uri) and error.get_http_status_code() in _DENIED:
        return True
    may_not_be_written = getattr(error, "errno", None) in _MAY_NOT_BE_WRITTEN or "readonly database" in str(error)
    return is_refusal(error) or may_not_be_written


def reason(error: Exception) -> str:
    """One line without credentials: a refusal's own, else that of the error at the bottom (connection refused)."""
    while not is_refusal(error) and isinstance(below := error.__cause__ or error.__context__, Exception):
        error = below
    return redacted(str(error).partition("\n")[0])[:200]


def unreachable(uri: str, error: Exception) -> str:
    """The user's error for a store that does not answer, or not as a store does: which, why, what to do."""
    check = (
        "check that the database, and the project's folder (MIDMASK_HOME), can be read and written"
        if is_database(uri)
        else "start the server, and check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
        "MLFLOW_TRACKING_TOKEN, if it asks for them"
    )
    return (
        f"the tracking store {redacted(uri)} does not answer ({type(error).__name__}: {reason(error)}); {check}; or "
        "name another with --tracking-uri or MLFLOW_TRACKING_URI"
    )


@contextlib.contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turns what a store can raise into the user's error."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # also ParseError, KeyError, … of answers that are not MLflow's
        raise UserError(unreachable(uri, error)) from error


def patiently(call: Callable[[], T], uri: str, patience: Patience) -> T:
    """`call()`, tried again for `patience.answer` seconds while the store is away, with one warning.

    Raises:
        UserError: if it stays away; at once if waiting does not help.
    """
    end, pause = time.monotonic() + patience.answer, patience.retry
    while True:
        with explained(uri):
            try:
                return call()
            except FAILURES as error:
                if _lasts(error, uri) or time.monotonic() + pause > end:
                    raise
                if pause == patience.retry:
                    text = "the tracking store %s does not answer (%s); waiting up to %.0f s"
                    log.warning(text, redacted(uri), reason(error), patience.answer)
        time.sleep(pause)
        pause = min(2 * pause, patience.longest_retry)


def connect(uri: str) -> MlflowClient:
    """A client that leaves waiting to us: MLflow would repeat each request for four minutes, for a database for two.

    It would also repeat those that make a run or a model, which are then there twice if only an answer was lost.
    """
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
            # MLflow decodes the place once, hence `quote`.
            place = f"file://{quote(str(home.absolute() / 'mlartifacts'))}" if is_database(uri) else None
            try:
                return client, str(client.create_experiment(EXPERIMENT, artifact_location=place, tags=KIND))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another host was faster
                    raise
                experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment.lifecycle_stage != "active":
        shown = redacted(uri)
        secret = "" if shown == uri else f" (the password in place of {HIDDEN})"
        raise UserError(
            f"the experiment {EXPERIMENT!r} of {shown} is deleted; bring it back with{secret}: "
            f"MLFLOW_TRACKING_URI={shlex.quote(shown)} mlflow experiments restore -x {experiment.experiment_id}"
        )
    return client, str(experiment.experiment_id)


def save_view(uri: str, home: Path) -> str:
    """Saves the view Measures in MLflow's pages, with columns for measures of the newest jobs; returns its path, to be
    appended to the address of the pages. MLflow has no default columns, and keeps a saved view as an experiment's tag.
    """
    client, experiment = create_store(uri, home)
    measures: list[str] = []
    for steps in (JOB_STEPS, ("evaluate",)):  # a benchmark's measures are in its evaluations alone
        runs = [run for step in steps for run in client.search_runs([experiment], f"tags.`midmask.step` = '{step}'")]
        runs.sort(key=lambda run: run.info.start_time, reverse=True)
        measures = measures or list(dict.fromkeys(key for run in runs for key in run.data.metrics if is_measure(key)))
    widths = {f"metrics.`{key}`": WIDTH for key in measures[:MOST_COLUMNS]}
    columns = [*widths, *(f"tags.`midmask.{name}`" for name in ("recipe", "step", "seed"))]
    state = json.dumps({"selectedColumns": columns, "columnOrder": columns, "columnWidths": widths})
    view = {"name": "Measures", "createdAt": int(time.time() * 1000), "state": state}
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{VIEW}", json.dumps(view))
    return f"/#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"


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
