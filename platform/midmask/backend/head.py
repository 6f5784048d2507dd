"""A Ray cluster for the length of one command: `python -m midmask.backend.head [--quiet] -- COMMAND ARGS…`.

It has its own ports, its own short temporary folder and its own token, so it runs beside any other Ray on the machine,
and is ended by process id: `ray stop` would end the others too. The command finds it through RAY_API_SERVER_ADDRESS
(for `ray job submit`) and RAY_ADDRESS (for a driver). The exit code is the command's.

--quiet leaves out what `ray job submit` prints about itself (addresses, next steps, that it tails the log), 16 lines
for which Ray has no switch; if the command fails, they follow at the end. All else that the command prints is passed
on.

Ctrl-C reaches the command by itself; SIGTERM is passed on to it. The head ends after it in both cases, and also when
this process is killed.
"""

import contextlib
import ctypes
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from midmask.backend.scratch import RAY, scratch
from midmask.core.process import HEAD
from midmask.errors import UserError

STARTS_WITHIN_S = 120.0
ENDS_WITHIN_S = 20.0
COMMAND_ENDS_WITHIN_S = 90.0
COPIED_WITHIN_S = 5.0
ABOUT_ITSELF = re.compile(rb"\d{4}-\d\d-\d\d [\d:,]+\t(INFO|SUCC) (cli|job_manager)\.py:\d+ -- ")
"""Lines of `ray job submit` and of its client and server, below a warning."""
PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def main(arguments: list[str]) -> int:
    quiet = arguments[:1] == ["--quiet"]
    command = arguments[1:] if quiet else arguments
    if command[:1] != ["--"] or len(command) < 2:
        print("error: no command. Type `python -m midmask.backend.head -- COMMAND ARGS…`.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminate)
    os.environ[HEAD] = shlex.join([sys.executable, "-m", "midmask.backend.head", "--"])
    try:
        with head() as environment:
            return run_quietly(command[1:], environment) if quiet else _run(command[1:], environment)
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which unlike Ctrl-C has not reached the command."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated


def run_quietly(command: list[str], environment: dict[str, str]) -> int:
    """Runs a command; returns its exit code. Its output is passed on; Ray's messages only if it fails."""
    read, write = os.pipe()
    withheld: list[bytes] = []
    copying = threading.Thread(target=_copy_lines, args=(read, withheld), daemon=True)
    copying.start()
    try:
        code = _run(command, environment, write)
    finally:
        os.close(write)
        copying.join(COPIED_WITHIN_S)
    if code:
        sys.stdout.buffer.writelines(withheld)
        sys.stdout.flush()
    return code


def _copy_lines(source: int, withheld: list[bytes]) -> None:
    with open(source, "rb") as lines:
        for line in lines:
            if ABOUT_ITSELF.match(line):
                withheld.append(line)
            else:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()


def _run(command: list[str], environment: dict[str, str], output: int | None = None) -> int:
    """Runs a command; returns its exit code. An interrupted one has time to end its tracked runs; then it is killed.

    Args:
        output: file descriptor of its standard output; none: that of this process.
    """
    process = subprocess.Popen(command, env=environment, stdout=output)
    try:
        return process.wait()
    except KeyboardInterrupt as interrupted:
        if isinstance(interrupted, Terminated):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):  # a second interrupt does not wait
            process.wait(COMMAND_ENDS_WITHIN_S)
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def head(cpus: int | None = None) -> Iterator[dict[str, str]]:
    """A running head whose job server answers; yields the environment for commands that should find it.

    Args:
        cpus: number of CPUs it may use; all of the machine's by default.

    Raises:
        UserError: if Ray does not come up, with the end of what it said.
    """
    with scratch() as folder:
        yield from _run_head(folder, cpus)


def _run_head(folder: Path, cpus: int | None) -> Iterator[dict[str, str]]:
    gcs, dashboard, agent, client = _free_ports(4)
    environment = _environment(gcs, dashboard)
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *(f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
        *(f"--ray-client-server-port={client}", "--min-worker-port=0", "--max-worker-port=0"),
        *("--dashboard-host=127.0.0.1", f"--temp-dir={folder / RAY}"),
        *([f"--num-cpus={cpus}"] if cpus else []),
    ]
    said = folder / "head.log"
    with open(said, "wb") as log:
        process = subprocess.Popen(
            command,
            env={key: value for key, value in environment.items() if key != "RAY_ADDRESS"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt from the keyboard reaches the command only; the head outlives it
            preexec_fn=_end_with_parent,
        )
    try:
        _wait_for_job_server(process, said, environment, agent)
        yield environment
    finally:
        _stop(process)


def _end_with_parent() -> None:
    """Asks Linux to send SIGTERM to this process when its parent dies; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _environment(gcs: int, dashboard: int) -> dict[str, str]:
    """This process's environment, this Python first on the PATH, the cluster's addresses, and a token of its own.

    RAY_AUTH_MODE=disabled, set by the user, is respected.
    """
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    environment["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{dashboard}"
    environment["RAY_ADDRESS"] = f"127.0.0.1:{gcs}"
    if environment.setdefault("RAY_AUTH_MODE", "token") == "token":
        environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    return environment


def _wait_for_job_server(process: subprocess.Popen[bytes], said: Path, environment: dict[str, str], agent: int) -> None:
    """Waits until the agent that runs jobs and the job server answer; before, Ray says 'No available agent'."""
    urls = [
        f"http://127.0.0.1:{agent}/api/local_raylet_healthz",
        f"{environment['RAY_API_SERVER_ADDRESS']}/api/version",
    ]
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not all(_answers(url, environment.get("RAY_AUTH_TOKEN")) for url in urls):
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            why = "ended at once" if ended else f"did not answer within {STARTS_WITHIN_S:g} s"
            last = said.read_text(errors="replace").strip().splitlines()[-1:]
            raise UserError(f"the local Ray {why}: {' '.join(last) or 'it printed nothing'}")
        time.sleep(0.25)


def _answers(url: str, token: str | None) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is never behind a proxy
    try:
        with opener.open(request, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the head to end, which ends all it started; what does not is killed with its process group."""
    process.terminate()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
