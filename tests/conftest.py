"""Shared by all tests: the environment they run in, the tier that each belongs to, which of them one process runs, and
what is made once: a real local Ray of 2 CPUs in its own short temp folder, and stores of MLflow.
"""

# ruff: noqa: E402  (libraries are imported once the environment is set)
import fcntl
import functools
import ipaddress
import json
import os
import secrets
import shutil
import socket
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CLEARED = (
    *("AWS_", "GOTO_", "HF_", "HUGGING", "KMP_", "MIDMASK_", "MKL_", "MLFLOW_", "OMP_", "OPENAI_", "OPTUNA_"),
    *("RAY_", "STREAMLIT_", "TRANSFORMERS_", "TUNE_", "IR_DATASETS_"),
)
"""How the names of variables begin that would let the user's settings or credentials decide what a test does."""

PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""One thread for each process of tests and for each that it starts: models are so small that more threads only wait for
each other. Read when torch, numpy or faiss is loaded, so set before."""

for _name in [name for name in os.environ if name.startswith(CLEARED) or name.lower() in PROXIES]:
    del os.environ[_name]
os.environ.update(dict.fromkeys(THREADS, "1"))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"  # else S3 without credentials asks a server of Amazon's machines
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
os.environ["RAY_worker_niceness"] = "0"  # Ray's 15 would starve workers on a busy machine
# Without a token of its own, a local Ray writes one to ~/.ray, and every later `ray start` of this user demands it.
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

import psutil
import pytest
from hypothesis import HealthCheck, settings

import midmask  # noqa: F401  (sets the quiet switches before any library reads them)

# The same cases on every machine and in every run, however long one takes.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

TESTS = Path(__file__).resolve().parent

GROUPS = {"ray_local": "ray", "browser": "pages"}
"""Fixture that is dear -> the group of its tests, which one process runs, so that it is made once. Its tests are of the
second tier."""

SYSTEM, SMOKE, GPU = "system", "smoke", "gpu"
"""Folders of tests/ that decide a test's tier: all of the second; of the first, though they start a Ray; on a GPU."""

ADDRESSES = {one.address.partition("%")[0] for own in psutil.net_if_addrs().values() for one in own}
"""This machine's own addresses. Ray's processes reach each other by one that is not the loopback's."""


class OtherHostError(RuntimeError):
    """A test asks for another host. Not an OSError, which code that tries again would take for a failed connection."""


def refuse_other_hosts(address: Any) -> None:
    """Raises OtherHostError unless an address of a socket, or the name of a host, is this machine's."""
    host = address[0] if isinstance(address, tuple) else address
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "", "localhost", socket.gethostname()) or host in ADDRESSES:
        return
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
        is_here = ip.is_loopback or ip.is_unspecified
    except ValueError:
        is_here = False
    if not is_here:
        raise OtherHostError(f"a test asks for {host}: tests reach this machine alone (tests/conftest.py)")


def guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
    """`connect` or `connect_ex` of a socket that refuses other hosts."""

    @functools.wraps(connect)
    def checked(own: socket.socket, address: Any) -> Any:
        if own.family != socket.AF_UNIX:
            refuse_other_hosts(address)
        return connect(own, address)

    return checked


@pytest.fixture(autouse=True, scope="session")
def this_machine_alone() -> Iterator[None]:
    """Refuses connections of this process to other hosts, and to look their names up. Processes that tests start, and
    libraries that open sockets outside of Python (gRPC, Arrow), are not held back.
    """
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **named: Any) -> Any:
        refuse_other_hosts(host)
        return look_up(host, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield


def pytest_configure(config: pytest.Config) -> None:
    """The numbers that tests hold are a CPU's: a GPU is hidden from all but `pytest -m gpu`. Groups of tests are run in
    the order that `pytest_collection_modifyitems` gives them, not in that of pytest-xdist.
    """
    config.option.loadscopereorder = False
    if config.option.markexpr != GPU:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test with its tier, and with the group that `--dist loadgroup` leaves in one process: that of a dear
    fixture, else that of its file. The groups of dear fixtures come first, then large ones, so that all processes end
    at about the same time.
    """
    group_of: dict[pytest.Item, str] = {}
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        dear = sorted({GROUPS[name] for name in getattr(item, "fixturenames", ()) if name in GROUPS})
        if folder == GPU:
            item.add_marker(GPU)
        elif folder == SYSTEM or (dear and folder != SMOKE):
            item.add_marker(SYSTEM)
        group_of[item] = dear[0] if dear else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group_of[item]), append=False)
    if not config.pluginmanager.hasplugin("randomly"):
        sizes = Counter(group_of.values())
        items.sort(key=lambda item: (group_of[item] not in GROUPS.values(), -sizes[group_of[item]]))


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """Puts back what a test changes in its process: torch's number of threads, the folder, the store that MLflow's
    `set_tracking_uri` names to every process that is started later, and `__main__`, where Streamlit's AppTest leaves
    its script, which every spawned process would run.
    """
    main, folder, store = sys.modules["__main__"], Path.cwd(), os.environ.get("MLFLOW_TRACKING_URI")
    yield
    sys.modules["__main__"] = main
    os.chdir(folder)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    if store is not None:
        os.environ["MLFLOW_TRACKING_URI"] = store
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


class MadeOnce:
    """`made_once(name, make)`: the folder of this name, common to all processes of a run of pytest, which the first to
    ask for it lets `make` fill while the others wait. Where that fails, the next to ask begins anew."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        base = factory.getbasetemp()
        self.root = base.parent if base.name.startswith("popen-") else base  # pytest-xdist gives each process one below

    def __call__(self, name: str, make: Callable[[Path], None]) -> Path:
        folder, finished = self.root / "once" / name, self.root / "once" / f"{name}.finished"
        folder.parent.mkdir(exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                finished.touch()
        return folder


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Folders that the first process of tests to need them makes, for all processes; to be read or copied."""
    return MadeOnce(tmp_path_factory)


@pytest.fixture(scope="session")
def empty_store(made_once: MadeOnce) -> Path:
    """A SQLite file with MLflow's tables and nothing else, to be copied: making them takes seconds."""
    from mlflow import MlflowClient

    def make(folder: Path) -> None:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()

    return made_once("empty", make) / "mlflow.db"


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    """A fresh SQLite store for each test."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture(scope="session")
def worked_store(made_once: MadeOnce, empty_store: Path) -> tuple[Path, dict[str, str]]:
    """A folder with two tiny recipes and BM25, computed and tracked, and their fingerprints; to be read or copied."""
    from tests.support.dashboards import worked

    def make(folder: Path) -> None:
        shutil.copy(empty_store, folder / "mlflow.db")
        fingerprints = worked.everything(f"sqlite:///{folder}/mlflow.db", folder)
        (folder / "fingerprints.json").write_text(json.dumps(fingerprints))

    home = made_once("worked", make)
    return home, json.loads((home / "fingerprints.json").read_text())


@pytest.fixture(scope="session")
def ray_local() -> Iterator[None]:
    """A Ray of 2 CPUs in this process, ended by this fixture; never `ray stop`, which would end other people's."""
    import ray

    folder = tempfile.mkdtemp(prefix="mm", dir="/tmp")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=256 * 2**20,
        _temp_dir=folder,
        log_to_driver=False,
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cranfield(made_once: MadeOnce) -> Path:
    """The Cranfield collection, a folder in BEIR's layout (tests/data/README.md); to be read."""

    def make(folder: Path) -> None:
        with tarfile.open(TESTS / "data" / "cranfield.tar.xz") as archive:
            archive.extractall(folder, filter="data")

    return made_once("cranfield", make)
