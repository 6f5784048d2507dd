"""Opens the leaderboard over the tracked runs, on loopback."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_tracking_flag
from midmask.app.job import INSIDE, home, project
from midmask.errors import UserError
from midmask.tracking import resolve_tracking_uri


def add_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument("--port", type=int, default=8501, help="default: 8501")


def work(flags: Namespace) -> None:
    """Replaces this process by Streamlit's server.

    Raises:
        UserError: if the pages are not there: they are part of a checkout, not of the installed package.
    """
    here = Path.cwd() / INSIDE
    page = project(here) / "dashboards" / "leaderboard.py"
    if not page.is_file():
        raise UserError(f"{page} is not there: the pages come with a checkout of midmask; type this inside of it")
    os.environ["MLFLOW_TRACKING_URI"] = resolve_tracking_uri(flags.tracking_uri, home(here))
    address = ["--server.address", "127.0.0.1", "--server.port", str(flags.port)]
    os.execv(sys.executable, [sys.executable, "-m", "streamlit", "run", str(page), *address])
