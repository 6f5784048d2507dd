"""Switches of a job that are variables of the environment."""

import os

NO_VERIFY = "MIDMASK_NO_VERIFY"
ALLOW_DOWNLOAD = "MIDMASK_ALLOW_DOWNLOAD"

VERBOSE = "MIDMASK_VERBOSE"

TRUST = {"no_verify": NO_VERIFY, "allow_download": ALLOW_DOWNLOAD}
"""Name of the flag -> variable, of switches that worker processes have too. Both give up some safety."""

SWITCHES = {**TRUST, "verbose": VERBOSE}
"""Name of the flag -> variable."""

ON = ("1", "true", "yes", "on")


def is_on(variable: str) -> bool:
    """Whether a switch is on. Any value that is not in `ON` leaves it off."""
    return os.environ.get(variable, "").strip().lower() in ON
