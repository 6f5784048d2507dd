"""What of the machine a process may use: its affinity and its control groups count, for a local Ray too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from midmask import processes
from midmask.processes import usable_cores, usable_memory

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
LOCAL_RAY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import ray
from midmask.backend.connection import connect
connect()
print(ray.cluster_resources()["CPU"])
"""


@pytest.fixture()
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the control groups, which every process is in."""
    monkeypatch.setattr(processes, "CONTROL_GROUPS", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", None), ("150000 100000", 1), ("50000 100000", 1), ("6400000 100000", None)]
)
def test_a_containers_quota_bounds_the_cores(groups: Path, quota: str, cores: int | None) -> None:
    (groups / "cpu.max").write_text(f"{quota}\n")
    assert usable_cores() == (cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("150000", 1), ("6400000", None)])
def test_a_quota_of_the_first_version_bounds_the_cores(groups: Path, quota: str, cores: int | None) -> None:
    (groups / "cpu").mkdir()
    (groups / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores() == (cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("limit", "expected"), [("max", MACHINE), ("1073741824", 2**30), (str(2**62), MACHINE)])
def test_a_containers_limit_bounds_the_memory(groups: Path, limit: str, expected: int) -> None:
    (groups / "memory.max").write_text(f"{limit}\n")
    assert usable_memory() == expected


def test_without_control_groups_all_of_the_machine_counts(groups: Path) -> None:
    assert (usable_cores(), usable_memory()) == (len(os.sched_getaffinity(0)), MACHINE)


@pytest.mark.xdist_group("ray")
def test_a_local_ray_has_the_cores_that_its_process_may_use() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {
        "RAY_ADDRESS": "local"
    }
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_RAY], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == 1
