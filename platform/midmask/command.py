"""The command that started this process, for messages that show how to resume it."""

import json
import os
import shlex
import sys

from midmask.redaction import redacted

RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the drivers that `ray job submit` starts."""


def same_command() -> str:
    """What was typed to start this process; for a submitted job, with `ray job submit`."""
    typed = redacted(shlex.join(sys.orig_argv))
    if RAY_JOB not in os.environ:
        return typed
    uploads = json.loads(os.environ[RAY_JOB]).get("runtime_env", {}).get("working_dir")
    return f"ray job submit {'--working-dir . ' if uploads else ''}-- {typed}"
