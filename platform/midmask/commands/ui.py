"""Opens MLflow's own pages over the tracked runs, on loopback."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_tracking_flag
from midmask.app.job import INSIDE, home
from midmask.errors import UserError
from midmask.tracking import resolve_tracking_uri
from midmask.tracking.address import is_database


def add_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument("--port", type=int, default=5000, help="default: 5000")


def work(flags: Namespace) -> None:
    """Replaces this process by MLflow's server.

    Raises:
        UserError: if the store is a server itself.
    """
    uri = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd() / INSIDE))
    if not is_database(uri):
        raise UserError(f"{uri} is a server with pages of its own: open it in a browser")
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri  # not as a flag, which others could read in `ps`
    address = ["--host", "127.0.0.1", "--port", str(flags.port)]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "ui", *address])
