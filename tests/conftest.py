"""Shared by all tests: one real local Ray of 2 CPUs, in its own short temp folder; an empty MLflow store to copy; which
tests one process runs; no network, no telemetry.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Without a token of its own, a local Ray writes one to ~/.ray, and every later `ray start` of this user demands it.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import pytest

import midmask  # noqa: F401  (sets the quiet switches before any library reads them)

GROUPS = {"ray_local": "ray", "browser": "pages", "worked_store": "pages"}
"""Fixture that is dear -> the group of its tests, which one process runs, so that it is made once."""

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` a file stays in one process, and all files that use a dear fixture in the same one."""
    groups = {}
    for item in items:
        marked = item.get_closest_marker("xdist_group")
        wanted = {GROUPS[name] for name in getattr(item, "fixturenames", ()) if name in GROUPS}
        wanted |= {marked.args[0]} if marked else set()
        if wanted:
            groups[item.path] = min(wanted)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups.get(item.path, str(item.path))), append=False)


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """Puts `__main__` back: Streamlit's AppTest leaves its script there, which every spawned process would run."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with MLflow's tables and nothing else, to be copied: making them takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def worked_store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> tuple[Path, dict[str, str]]:
    """A folder with two tiny recipes and BM25, computed and tracked, and their fingerprints; to be read or copied."""
    from tests.support.dashboards import worked

    home = tmp_path_factory.mktemp("worked")
    shutil.copy(empty_store, home / "mlflow.db")
    return home, worked.everything(f"sqlite:///{home}/mlflow.db", home)


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


@pytest.fixture
def data() -> Path:
    """The folder of real collections beside the checkout; tests that need it are skipped where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no collections at {DATA}")
    return DATA
