"""What of the machine a process may use: its affinity and its control groups count."""

import os
from pathlib import Path

import pytest

from midmask import processes

CORES = len(os.sched_getaffinity(0))
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, CORES, MEMORY),
        ({"cpu.max": "max 100000"}, CORES, MEMORY),
        ({"cpu.max": "150000 100000"}, 1, MEMORY),
        ({"cpu.max": "50000 100000"}, 1, MEMORY),
        ({"cpu.max": "6400000 100000"}, CORES, MEMORY),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, CORES, MEMORY),
        ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1, MEMORY),
        ({"memory.max": "max"}, CORES, MEMORY),
        ({"memory.max": str(2**30)}, CORES, 2**30),
        ({"memory.max": str(2**62)}, CORES, MEMORY),
    ],
)
def test_control_groups_bound_cores_and_memory(
    files: dict[str, str], cores: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(processes, "CONTROL_GROUPS", tmp_path)
    assert (processes.usable_cores(), processes.usable_memory()) == (cores, memory)
