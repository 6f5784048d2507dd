"""Switches of a job that are variables of the environment, so that worker processes have them too."""

import os

NO_VERIFY = "MIDMASK_NO_VERIFY"
ALLOW_DOWNLOAD = "MIDMASK_ALLOW_DOWNLOAD"

SWITCHES = {"no_verify": NO_VERIFY, "allow_download": ALLOW_DOWNLOAD}
"""Name of the flag -> variable."""

ON = ("1", "true", "yes", "on")


def is_on(variable: str) -> bool:
    """Whether a switch is on. Any value that is not in `ON` leaves it off: both switches give up some safety."""
    return os.environ.get(variable, "").strip().lower() in ON
