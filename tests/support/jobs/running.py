"""Jobs run in this process, with the command line, the environment and the exit code of a process of their own; and
credentials that are planted where people have them, with a search for them in every byte that is left.
"""

import base64
import io
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

JOBS = Path(__file__).resolve().parents[3] / "jobs"
INTERRUPTED = 130
"""Exit code of a job that was interrupted."""
STORES = ("MIDMASK_STORAGE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")


@dataclass(frozen=True)
class Done:
    """How a job ended, and what it printed."""

    code: int
    out: str
    err: str

    def table(self, number: int = 0) -> dict[str, list[str]]:
        """The rows of the printed table with this number, by their first cell."""
        blocks = [block for block in self.out.split("\n\n") if "\n| " in f"\n{block}" or "\n|-" in block]
        lines = [line for line in blocks[number].splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return {row[0]: row[1:] for row in (cells[0], *cells[2:])}


def run_job(name: str, *arguments: str, home: Path) -> Done:
    """Runs a job with its stores in `home`. What it raises, and does not report as a mistake, is raised here too.

    A job joins the Ray that this process is connected to, if it is. An interrupt, which the job reports as its own end,
    ends the tests; so does SIGTERM once the job has ended, which takes it for an interrupt.
    """
    path = str(JOBS / f"{name}.py")
    out, err = io.StringIO(), io.StringIO()
    terminated = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for variable in STORES:
            patch.delenv(variable, raising=False)
        patch.setenv("MIDMASK_HOME", str(home))
        patch.setattr(sys, "argv", [path, *arguments])
        patch.syspath_prepend(str(JOBS))
        try:
            with pytest.raises(SystemExit) as ended:
                runpy.run_path(path, run_name="__main__")
        finally:
            signal.signal(signal.SIGTERM, terminated)
    if ended.value.code == INTERRUPTED:
        raise KeyboardInterrupt
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


USER = "plantedUser"
PASSWORD = "plantedPass/w0rd+1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDKEY01",
    "AWS_SECRET_ACCESS_KEY": "plantedSecret/Key+02",
    "AWS_SESSION_TOKEN": "plantedSession03==",
    "HF_TOKEN": "hf_plantedToken04",
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=plantedAccount05==",
}
FLAGS = {
    "--storage": "s3://AKIAPLANTEDKEY01:plantedSecret/Key+02@bucket/place",
    "--corpus": "beir:https://host/data?X-Amz-Credential=AKIAPLANTEDKEY01&X-Amz-Signature=plantedSignature06",
    "--pretrain-on": "texts:https://host/data?sv=1&sig=plantedSignature06",
    "--tracking-uri": "http://plantedUser:plantedPass%2Fw0rd%2B1@127.0.0.1:1",
    "--set": "corpus.name=beir:gs://bucket/data?token=plantedToken07",
}
VALUES = (
    *(PASSWORD, "AKIAPLANTEDKEY01", "plantedSecret/Key+02", "plantedSession03==", "hf_plantedToken04"),
    *("plantedAccount05==", "plantedSignature06", "plantedToken07"),
)


def tracking_uri(port: int, user: str = USER, password: str = PASSWORD) -> str:
    return f"http://{user}:{quote(password, safe='')}@127.0.0.1:{port}"


def forms(value: str) -> set[bytes]:
    """A value as it is, as it stands in a URI, in JSON, and in the header of a request."""
    header = base64.b64encode(f"{USER}:{value}".encode()).decode()
    return {form.encode() for form in (value, quote(value, safe=""), json.dumps(value)[1:-1], header)}


def found_in(data: bytes) -> list[str]:
    return [value for value in VALUES if any(form in data for form in forms(value))]


def found_below(folders: Iterable[Path]) -> dict[str, list[str]]:
    """File -> the planted values in it, for every regular file; sockets and pipes hold nothing."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files, "a search that looks at nothing finds nothing"
    return {str(path): found for path in files if (found := found_in(path.read_bytes() + str(path).encode()))}


def outcome(*command: str, home: Path, **environment: str) -> tuple[int, bytes]:
    """Exit code of a process that has the planted environment, and all that it prints."""
    own = {**os.environ, **ENVIRONMENT, "MIDMASK_HOME": str(home), **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, env=own, cwd=home, **pipes, check=False, timeout=120)
    return done.returncode, done.stdout
