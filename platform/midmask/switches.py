"""Switches of a job that are variables of the environment, so that worker processes have them too."""

NO_VERIFY = "MIDMASK_NO_VERIFY"
ALLOW_DOWNLOAD = "MIDMASK_ALLOW_DOWNLOAD"

SWITCHES = {"no_verify": NO_VERIFY, "allow_download": ALLOW_DOWNLOAD}
"""Name of the flag -> variable; any value but the empty one switches it on."""
