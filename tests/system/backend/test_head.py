"""A real head and real drivers: how jobs reach a cluster, start one, are refused by one, and leave nothing behind."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from midmask.backend.head import head, run_quietly
from midmask.errors import UserError

ENTRY = Path(__file__).resolve().parents[3] / "jobs" / "_entry.py"
RAY = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit"]
JOB = '''#!/usr/bin/env python3
"""Adds two numbers on the cluster."""

import _entry  # noqa: F401
import ray
from midmask.app.job import run
from midmask.backend.connection import connect


@ray.remote
def add(left, right):
    return left + right


def work(options, flags):
    connect()
    print("sum", ray.get(add.remote(2, flags.right)), "store", options.storage)


if __name__ == "__main__":
    run(work, __doc__, lambda parser: parser.add_argument("--right", type=int, default=3, help="what is added"))
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "jobs").mkdir()
    (folder / "pyproject.toml").touch()
    shutil.copy(ENTRY, folder / "jobs")
    (folder / "jobs" / "add.py").write_text(JOB)
    (folder / "jobs" / "add.py").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cluster(project: Path) -> Iterator[dict[str, str]]:
    """A head with token authentication, started in the project's folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.chdir(project):
            environment = stack.enter_context(head(cpus=1))
        yield environment


def outcome(command: list[str], environment: dict[str, str], folder: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_a_job_is_submitted_by_its_path(cluster: dict[str, str], project: Path, tmp_path: Path) -> None:
    """It runs in the folder, and with the Python, that the head was started with, wherever it is submitted from."""
    code, out, err = outcome([*RAY, "--", "jobs/add.py", "--right", "5"], cluster, tmp_path)
    assert code == 0, out + err
    assert f"sum 7 store {project}/store" in out


def test_what_ray_says_of_itself_is_withheld_until_something_fails(
    cluster: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    script = "echo hello; echo '2026-11-25 12:32:21,759\tWARNING cli.py:42 -- careful'; echo oops >&2; exit {}"
    told = []
    for code in (0, 3):
        told.append((run_quietly([*RAY, "--", "sh", "-c", script.format(code)], cluster), capfd.readouterr().out))
    (ended, out), (failed, all_of_it) = told
    lines = [line for line in out.splitlines() if not line.startswith("Running entrypoint for job ")]
    assert ended == 0 and sorted(lines) == sorted(
        ["hello", "2026-11-25 12:32:21,759\tWARNING cli.py:42 -- careful", "oops"]
    )
    assert failed == 1 and all_of_it.index("submitted successfully") > all_of_it.index("Running entrypoint for job ")


def test_a_driver_joins_by_address_and_one_with_a_wrong_token_is_told(cluster: dict[str, str], project: Path) -> None:
    job = [sys.executable, str(project / "jobs" / "add.py")]
    code, out, err = outcome(job, cluster)
    assert code == 0 and "sum 5" in out and "joined the Ray cluster" in err
    code, out, err = outcome(job, cluster | {"RAY_AUTH_TOKEN": "f" * 64})
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "refuses this process's token" in err and "RAY_AUTH_TOKEN" in err


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:1", ["no Ray cluster answers", "127.0.0.1:1", "ray start --head"]),
        ("http://127.0.0.1:8265", ["is a job server", "ray job submit"]),
    ],
)
def test_an_address_without_a_cluster_is_one_line(project: Path, address: str, parts: list[str]) -> None:
    code, _, err = outcome([sys.executable, str(project / "jobs" / "add.py")], os.environ | {"RAY_ADDRESS": address})
    assert code == 2 and len(err.splitlines()) == 1
    assert all(part in err for part in parts)


def test_without_a_cluster_a_local_ray_serves_and_leaves_nothing(project: Path, tmp_path: Path) -> None:
    """In particular no token in the user's home, which would make every later `ray start` demand it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path), "RAY_TMPDIR": str(tmp_path)}  # no cluster is on record there
    code, out, err = outcome([sys.executable, str(project / "jobs" / "add.py")], environment)
    assert code == 0 and "sum 5" in out and "started a local one" in err, err
    assert not (tmp_path / ".ray").exists()


def test_a_head_is_interrupted_with_its_command_and_ends_whole(tmp_path: Path) -> None:
    """Also: it starts beside any other Ray, and its exit code is the command's."""
    code = "import os, time; print(os.environ['RAY_ADDRESS'], flush=True); time.sleep(600)"
    command = [sys.executable, "-m", "midmask.backend.head", "--", sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    host, port = process.stdout.readline().strip().split(":")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) > 3
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    psutil.wait_procs(family)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_a_head_that_cannot_start_says_what_ray_said() -> None:
    with pytest.raises(UserError, match=r"the local Ray ended at once: .*nonnegative.*CPU"), head(cpus=-1):
        pass
