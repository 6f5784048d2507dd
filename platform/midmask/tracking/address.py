"""Where tracked runs go, as a URI. Imports no MLflow, so that a dry run does not wait for it."""

import os
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from midmask.errors import UserError
from midmask.redaction import redacted

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
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
        raise UserError(
            f"tracking URI {shown!r} is a folder, a kind of store that MLflow no longer supports. {_ADVICE}"
        )
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


def scheme_of(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower()


def is_database(uri: str) -> bool:
    return scheme_of(uri) in DATABASES


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store, None for any other."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


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
