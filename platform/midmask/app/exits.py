"""How a command ends: its exit code, and one line for what its user can mend.

Exit codes: 0 the work was done, 2 a user's mistake (one line, no traceback), 130 interrupted, 141 the reader of its
output has gone (as `midmask run --dry-run | head`), 1 anything else, with its traceback.
"""

import os
import select
import sys
from collections.abc import Callable
from typing import NoReturn

from midmask.command import same_command
from midmask.errors import UserError
from midmask.redaction import redacted


def run_to_exit(work: Callable[[], None]) -> NoReturn:
    """Calls `work` and ends the process with one of the exit codes."""
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on where this one stopped: {same_command()}", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and not output_is_read():
            discard_output()
            sys.exit(141)
        mistake = mistake_in(error)
        if mistake is None:
            raise
        print(f"error: {redacted(mistake)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def interrupt(number: int, frame: object) -> NoReturn:
    """A signal handler that ends the process as Ctrl-C does."""
    raise KeyboardInterrupt


def output_is_read() -> bool:
    """Whether there is still a reader at the other end of standard output."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def discard_output() -> None:
    """Leads standard output to nowhere, so that the interpreter's last flush does not fail a second time."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def mistake_in(error: BaseException) -> str | None:
    """The user's mistake behind an error, as one line; None if there is none, so that the error is a bug.

    Ray wraps what is raised in a task (`RayTaskError.cause`), in a training worker (`worker_failures`) and in the
    training controller (`controller_failure`); the wrapper's own text is a traceback.
    """
    inside = [getattr(error, "cause", None), getattr(error, "controller_failure", None), error.__cause__]
    inside += list(getattr(error, "worker_failures", {}).values())
    for cause in inside:
        if isinstance(cause, BaseException) and cause is not error and (mistake := mistake_in(cause)):
            return mistake
    if isinstance(error, UserError):
        return " ".join(str(error).split())
    return None
