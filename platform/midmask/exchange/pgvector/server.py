"""A connection to a PostgreSQL server, by its own client library psycopg, and the server's errors as one line each."""

import contextlib
from collections.abc import Iterator
from typing import Any

from midmask.errors import UserError, how_to_install, quoted
from midmask.redaction import has_credentials, redacted

SCHEMES = ("postgresql://", "postgres://")

TIMEOUT = 10
"""Seconds after which an address counts as one that does not answer."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """An open connection, which commits each statement, to a database with the extension pgvector; closed at the end.
    Errors of the server are the user's in here: no answer, no right, no space, a text that its encoding lacks.

    Args:
        address: `postgresql://USER@HOST:PORT/DATABASE`, without a password: libpq reads PGPASSWORD or ~/.pgpass.

    Raises:
        UserError: for an address of another form, one with a password, a missing package, and errors of the server.
    """
    _check_address(address)
    psycopg = _library()
    options = {"connect_timeout": TIMEOUT, "client_encoding": "UTF8", "application_name": "midmask"}
    try:
        link = psycopg.connect(address, autocommit=True, cursor_factory=psycopg.ClientCursor, **options)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise UserError(
            f"--to {address}: cannot connect: {_first_line(error)}. Try the same address with psql, to check host, "
            "port, user and database; a password is read from PGPASSWORD or ~/.pgpass."
        ) from None
    with contextlib.closing(link), _refusing(psycopg, address):
        _have_pgvector(psycopg, link, address)
        yield link


def check_server(address: str) -> None:
    """Connects and does nothing else, so that vectors are not computed for a server that does not answer.

    Raises:
        UserError: as `connected`.
    """
    with connected(address):
        pass


def _check_address(address: str) -> None:
    if not address.startswith(SCHEMES):
        shown = quoted(redacted(address))
        raise UserError(
            f"--to {shown}: type an address that begins with postgresql://, such as postgresql://HOST:5432/DATABASE, "
            "with the user's name and @ before the host"
        )
    if has_credentials(address):
        raise UserError(
            f"--to {redacted(address)}: the address contains a password, which lists of processes show; leave it out "
            "and set PGPASSWORD, or write it to ~/.pgpass"
        )


def _library() -> Any:
    try:
        import psycopg
    except ImportError:
        raise UserError(
            "uploading to PostgreSQL needs the package psycopg, which is not installed; type: "
            f"{how_to_install('pgvector')}"
        ) from None
    return psycopg


@contextlib.contextmanager
def _refusing(psycopg: Any, address: str) -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, psycopg.DataError, psycopg.errors.InsufficientPrivilege) as error:
        raise UserError(
            f"--to {address}: the server refused or went away: {_first_line(error)}. The passages that were written "
            "are kept: mend that, and run the same again."
        ) from None


def _have_pgvector(psycopg: Any, link: Any, address: str) -> None:
    """Creates the extension where the database lacks it."""
    missing = (psycopg.errors.InsufficientPrivilege, psycopg.NotSupportedError, psycopg.errors.UndefinedFile)
    try:
        link.execute("CREATE EXTENSION IF NOT EXISTS vector")
        is_recent = link.execute("SELECT to_regtype('sparsevec') IS NOT NULL").fetchone()[0]
    except missing as error:
        raise UserError(
            f"--to {address}: the database lacks the extension pgvector: {_first_line(error)}. Install pgvector 0.7 or "
            "later on the server, then, as its owner, type in psql: CREATE EXTENSION vector"
        ) from None
    if not is_recent:
        raise UserError(
            f"--to {address}: the database's pgvector has no type sparsevec; install pgvector 0.7 or later, then type "
            "in psql: ALTER EXTENSION vector UPDATE"
        )


def _first_line(error: BaseException) -> str:
    return redacted(next(iter(str(error).strip().splitlines()), type(error).__name__)).rstrip(".")
