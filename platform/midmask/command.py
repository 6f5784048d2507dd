"""The command that started this process, for messages that show how to resume it."""

import json
import os
import shlex
import sys

from midmask.redaction import redacted

RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the drivers that `ray job submit` starts."""

HEAD = "MIDMASK_HEAD_COMMAND"
"""Set by `python -m midmask.backend.head`: what to type before a command that needs its cluster, which ends with it."""


def same_command() -> str:
    """What was typed to start this process; for a submitted job, with `ray job submit`."""
    typed = redacted(shlex.join(sys.orig_argv))
    if RAY_JOB not in os.environ:
        return typed
    uploads = json.loads(os.environ[RAY_JOB]).get("runtime_env", {}).get("working_dir")
    head = f"{os.environ[HEAD]} " if HEAD in os.environ else ""
    return f"{head}ray job submit {'--working-dir . ' if uploads else ''}-- {typed}"
