"""Classifies errors of the tracking store: wait for it, or show one line to the user."""

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import requests
import sqlalchemy.exc
from mlflow.exceptions import MlflowException, RestException
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request

from midmask.errors import UserError
from midmask.redaction import redacted
from midmask.tracking.address import is_database

log = logging.getLogger(__name__)

T = TypeVar("T")

_REFUSALS = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "NOT_FOUND",
    "NOT_IMPLEMENTED",
}
_DENIED = (401, 403)
_CLOSED_FOLDER = (errno.EROFS, errno.EACCES, errno.EPERM)

FAILURES = (MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError)


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


def is_refusal(error: Exception) -> bool:
    """Whether the store has answered and will answer the same again; all else may pass (away, busy, locked, full)."""
    return isinstance(error, MlflowException) and error.error_code in _REFUSALS


def is_denied(error: Exception, uri: str) -> bool:
    """Whether the server, or a proxy before it, has refused this process's credentials (401) or rights (403)."""
    if not isinstance(error, MlflowException) or is_database(uri):
        return False
    if isinstance(error, RestException) and "error_code" not in error.json:  # not MLflow's answer: its status is lost
        return _status(uri) in _DENIED
    return error.get_http_status_code() in _DENIED


def _status(uri: str) -> int:
    """The status of one plain request with MLflow's own credentials, 0 if there is no answer."""
    try:
        creds, path = get_default_host_creds(uri), "/api/2.0/mlflow/experiments/get"
        answer = http_request(creds, path, "GET", max_retries=0, timeout=3, raise_on_status=False)
        return int(answer.status_code)
    except (MlflowException, requests.RequestException):
        return 0


def patiently(call: Callable[[], T], uri: str, patience: Patience) -> T:
    """`call()`, tried again for `patience.answer` seconds while the store is away, with one warning.

    Raises:
        UserError: if it stays away; at once if it refuses, or sends what MLflow's client cannot read, or if a folder
            cannot be written.
    """
    end, pause, warned = time.monotonic() + patience.answer, patience.retry, False
    while True:
        try:
            return call()
        except FAILURES as error:
            if is_refusal(error):
                raise UserError(unusable(uri, error)) from error
            if is_lasting(error, uri) or time.monotonic() + pause > end:
                raise UserError(unreachable(uri, error)) from None
            if not warned:
                log.warning(
                    "the tracking store %s does not answer (%s); waiting up to %.0f s",
                    redacted(uri),
                    reason(error),
                    patience.answer,
                )
                warned = True
        except UserError:
            raise
        except Exception as error:  # protobuf's ParseError, KeyError, TypeError, … of answers that are not MLflow's
            raise UserError(unusable(uri, error)) from error
        time.sleep(pause)
        pause = min(2 * pause, patience.longest_retry)


def is_closed_folder(error: Exception) -> bool:
    """Whether a file of this machine may not be written, which waiting does not change."""
    return isinstance(error, OSError) and error.errno in _CLOSED_FOLDER and bool(error.filename)


def is_lasting(error: Exception, uri: str) -> bool:
    """Whether waiting does not help: refused credentials, or a folder or database that may not be written."""
    return is_denied(error, uri) or is_closed_folder(error) or "readonly database" in str(error)


def reason(error: Exception) -> str:
    """One line without credentials: a refusal's own, else that of the error at the bottom (connection refused)."""
    while not is_refusal(error) and isinstance(below := error.__cause__ or error.__context__, Exception):
        error = below
    return redacted(str(error).partition("\n")[0])[:200]


def unusable(uri: str, error: Exception) -> str:
    """The user's error for a store that answers, but not with what was requested."""
    return (
        f"the tracking store {redacted(uri)} answers with an error ({type(error).__name__}: {reason(error)}); check "
        "that it is the address of an MLflow server, or name another with --tracking-uri or MLFLOW_TRACKING_URI"
    )


def unreachable(uri: str, error: Exception) -> str:
    """One line for a person: which store, why, what to do."""
    shown = redacted(uri)
    if is_closed_folder(error):
        assert isinstance(error, OSError)
        return (
            f"{error.filename} cannot be written ({error.strerror}), which the tracking store {shown} needs; set "
            "MIDMASK_HOME to a folder that can be written, or name another store with --tracking-uri"
        )
    if is_denied(error, uri):
        return (
            f"the tracking store {shown} refuses access: {reason(error)}; check the user and password in "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the token in MLFLOW_TRACKING_TOKEN"
        )
    what = "check that the database can be read and written" if is_database(uri) else "start the server"
    return (
        f"the tracking store {shown} does not answer: {reason(error)}; {what}, "
        "or name another with --tracking-uri or MLFLOW_TRACKING_URI"
    )
