"""The pages over tracked runs and verdicts, in Streamlit, one module each: `show(…)` draws it.

They only read; Search alone writes, into a verdict's folder.
"""

import sys
from pathlib import Path


def serving_command(port: int, *flags: str) -> list[str]:
    """The command that serves the pages on loopback, with the settings that lie beside them.

    Args:
        flags: the dashboard's own.
    """
    page = Path(__file__).with_name("dashboard.py")
    address = ["--server.address", "127.0.0.1", "--server.port", str(port)]
    return [sys.executable, "-m", "streamlit", "run", str(page), *address, "--", *flags]
