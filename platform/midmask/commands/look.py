"""Commands that open pages over the tracked runs, on loopback: `leaderboard` and `ui`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NoReturn

from midmask.app.flags import add_tracking_flag
from midmask.app.job import home
from midmask.commands import program
from midmask.errors import UserError
from midmask.pages import serving_command
from midmask.tracking.names import is_database, resolve_tracking_uri


def _leaderboard_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument("--port", type=int, default=8501, help="default: 8501")


@program(_leaderboard_flags)
def leaderboard(flags: Namespace) -> None:
    """Opens the leaderboard over the tracked runs, on loopback."""
    os.environ["MLFLOW_TRACKING_URI"] = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd()))
    os.execv(sys.executable, serving_command(flags.port))


LOOPBACK = "127.0.0.1"
MLFLOW_PORT, DASHBOARD_PORT = 5000, 8501


def _ui_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument(
        "--verdict", metavar="FOLDER", help="search with the systems of a verdict, and judge what they find"
    )
    parser.add_argument("--port", type=int, help=f"default: {MLFLOW_PORT}, of the dashboard {DASHBOARD_PORT}")


@program(_ui_flags)
def ui(flags: Namespace) -> None:
    """Opens MLflow's own pages over the tracked runs, on loopback; with --verdict, the dashboard with its page
    Search.
    """
    uri = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd()))
    if flags.verdict is not None:
        _open_dashboard(flags, uri)
    if not is_database(uri):
        raise UserError(f"{uri} is a server with pages of its own: open it in a browser")
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri  # not as a flag, which others could read in `ps`
    address = ["--host", LOOPBACK, "--port", str(flags.port or MLFLOW_PORT)]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "ui", *address])


def _open_dashboard(flags: Namespace, uri: str) -> NoReturn:
    verdict = Path(flags.verdict).expanduser().absolute()
    if not (verdict / "verdict.json").is_file():
        raise UserError(f"--verdict {verdict}: there is no verdict.json; name the folder that `midmask choose` wrote")
    port = flags.port or DASHBOARD_PORT
    os.environ["MLFLOW_TRACKING_URI"] = uri  # as above
    print(f"http://{LOOPBACK}:{port}/search", flush=True)
    os.execv(sys.executable, serving_command(port, "--verdict", str(verdict)))
