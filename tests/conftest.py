"""Shared by all tests: one real local Ray of 2 CPUs, in its own short temp folder; no network, no telemetry."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Without a token of its own, a local Ray writes one to ~/.ray, and every later `ray start` of this user demands it.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import pytest

import midmask  # noqa: F401  (sets the quiet switches before any library reads them)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


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
