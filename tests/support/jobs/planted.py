"""Credentials that are planted where people have them, and a search for them in every byte that is left."""

import base64
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

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
