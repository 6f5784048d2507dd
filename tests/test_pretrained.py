"""Models by name: a package's weights, folders, the hub's cache; nothing is fetched unless it is asked for."""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from midmask.errors import UserError
from midmask.pretrained import PRETRAINED, found_folder, model_folder

COMMIT = "a" * 40
SHOWS = "from midmask.pretrained import model_folder; print(model_folder({name!r}))"
NO_NETWORK = "import os, socket; socket.socket.connect = lambda *address: os._exit(9)\n"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, since packages, the cache's place and the endpoint are looked up once a process."""
    platform = str(Path(__file__).resolve().parents[1] / "platform")
    search = {"PYTHONPATH": ":".join(filter(None, (environment.pop("PYTHONPATH", ""), platform)))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": environment.pop("HOME", "/nonexistent"), **search, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def package_of(name: str) -> Path:
    found = importlib.util.find_spec(PRETRAINED[name].package)
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def test_a_packaged_name_is_the_published_file() -> None:
    weights = model_folder("minilm") / "model.safetensors"
    digest = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == digest
    assert weights.is_relative_to(package_of("minilm"))


def test_a_package_is_not_imported() -> None:
    package = PRETRAINED["minilm"].package
    done = run(SHOWS.format(name="minilm") + f"; import sys; assert {package!r} not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    package = PRETRAINED["minilm"]
    copy = tmp_path / package.package
    shutil.copytree(package_of("minilm"), copy)
    weights = copy / package.folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    done = run(SHOWS.format(name="minilm"), PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert f"{weights} is not the published file" in done.stderr and "--force-reinstall" in done.stderr


def test_a_missing_package_names_the_extra() -> None:
    without = f"import sys; sys.modules[{PRETRAINED['minilm'].package!r}] = None\n"
    done = run(without + SHOWS.format(name="minilm"))
    assert "is not installed. Type pip install 'midmask[pretrained]'" in done.stderr


def test_a_folder_is_itself_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert model_folder(str(tmp_path)) == tmp_path
    assert found_folder(str(tmp_path / "none")) is None
    with pytest.raises(UserError, match=r"^tokens\.tokenizer = '.*none': no such folder$"):
        model_folder(str(tmp_path / "none"), field="tokens.tokenizer")


def write_cache(home: Path, name: str, files: dict[str, bytes]) -> Path:
    """A model as the hub's own library keeps it below HF_HOME."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    for file, data in files.items():
        (snapshot / file).write_bytes(data)
    return snapshot


def test_a_hub_model_is_taken_from_the_cache_without_the_network(tmp_path: Path) -> None:
    snapshot = write_cache(tmp_path, "owner/model", {"config.json": b"{}"})
    done = run(NO_NETWORK + SHOWS.format(name="owner/model"), HF_HOME=str(tmp_path))
    assert done.stdout.strip() == str(snapshot), done.stderr


def test_a_hub_model_that_the_cache_lacks_is_not_fetched(tmp_path: Path) -> None:
    done = run(NO_NETWORK + SHOWS.format(name="owner/model"), HF_HOME=str(tmp_path))
    assert "unknown backbone.name 'owner/model'" in done.stderr and "--allow-download" in done.stderr
    assert "minilm" in done.stderr  # a choice that needs no network


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of one model asks for."""

    def __init__(self, files: dict[str, bytes], *arguments: object) -> None:
        self.files = files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, *, body: bool) -> None:
        if self.path.startswith("/api/models/owner/model"):
            listed = [
                {"type": "file", "path": name, "size": len(data), "oid": COMMIT} for name, data in self.files.items()
            ]
            model = {"id": "owner/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in self.files]}
            data = json.dumps(listed if "/tree/" in self.path else model).encode()
        elif (name := self.path.rpartition("/")[2]) in self.files:
            data = self.files[name]
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is printed."""


@contextmanager
def hub(files: dict[str, bytes]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, files))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("weights", "kept"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
    ],
)
def test_a_download_that_is_allowed_fetches_the_model(tmp_path: Path, weights: list[str], kept: list[str]) -> None:
    files = {"config.json": b"{}", "vocab.txt": b"[PAD]", "modeling.py": b"raise", **{name: b"0" for name in weights}}
    with hub(files) as address:
        asked = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": address, "MIDMASK_ALLOW_DOWNLOAD": "1"}
        done = run(SHOWS.format(name="owner/model"), **asked)
    assert done.returncode == 0, done.stderr
    found = {path.name for path in Path(done.stdout.strip()).iterdir()}
    assert found == {"config.json", "vocab.txt", *kept}


def test_a_hub_that_would_answer_is_not_asked_unless_allowed(tmp_path: Path) -> None:
    with hub({"config.json": b"{}", "model.safetensors": b"0"}) as address:
        asked = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": address, "MIDMASK_ALLOW_DOWNLOAD": "0", "HF_HUB_OFFLINE": "0"}
        done = run(SHOWS.format(name="owner/model"), **asked)
    assert done.returncode and "unknown backbone.name 'owner/model'" in done.stderr
    assert not list(tmp_path.rglob("config.json"))


def test_a_download_that_fails_says_why(tmp_path: Path) -> None:
    with hub({}) as address:
        asked = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": address, "MIDMASK_ALLOW_DOWNLOAD": "1"}
        done = run(SHOWS.format(name="owner/other"), **asked)
    assert "backbone.name = 'owner/other': cannot be downloaded" in done.stderr
