"""Opens MLflow's own pages over the tracked runs, on loopback; with --verdict, the dashboard with its page Search."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NoReturn

from midmask.app.flags import add_tracking_flag
from midmask.app.job import INSIDE, home, project
from midmask.errors import UserError
from midmask.tracking import resolve_tracking_uri
from midmask.tracking.address import is_database

LOOPBACK = "127.0.0.1"
MLFLOW_PORT, DASHBOARD_PORT = 5000, 8501


def add_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument(
        "--verdict", metavar="FOLDER", help="search with the systems of a verdict, and judge what they find"
    )
    parser.add_argument("--port", type=int, help=f"default: {MLFLOW_PORT}, of the dashboard {DASHBOARD_PORT}")


def work(flags: Namespace) -> None:
    """Replaces this process by MLflow's server, or by Streamlit's.

    Raises:
        UserError: if the store is a server itself; with --verdict, if there is no verdict, or no dashboard here.
    """
    uri = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd() / INSIDE))
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
    folder = project(Path.cwd() / INSIDE)
    page = folder / "dashboards" / "leaderboard.py"
    if not page.is_file():
        raise UserError(f"{page} is not there: the dashboard is part of midmask's repository; type this in a checkout")
    port = flags.port or DASHBOARD_PORT
    os.environ["MLFLOW_TRACKING_URI"] = uri  # as above
    os.chdir(folder)  # where Streamlit finds the project's settings
    print(f"http://{LOOPBACK}:{port}/search", flush=True)
    served = ["--server.address", LOOPBACK, "--server.port", str(port)]
    os.execv(
        sys.executable,
        [sys.executable, "-m", "streamlit", "run", str(page), *served, "--", "--verdict", str(verdict)],
    )
