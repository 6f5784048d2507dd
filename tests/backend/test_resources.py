"""What of the backend needs no Ray: a cluster's division and addresses."""

import os
import re
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import ray
from ray.util import get_node_ip_address

from midmask.backend.cluster import Resources, alive_nodes, connect, resources
from midmask.backend.worker_group import (
    INTERFACE_VARIABLE,
    absolute,
    choose_interface,
    is_loopback,
    refuse_loopback_nodes,
    worker_cpus,
)
from midmask.errors import UserError
from midmask.store.place import Place
from tests.support.training.runs import setup_of, spec_of

ROOT = Path(__file__).parents[2]
TWO, EIGHT = {"CPU": 2.0}, {"CPU": 64.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("cluster", "trainings", "asked", "per_training", "found"),
    [
        (TWO, 20, None, None, (2, 1)),
        (TWO, 1, None, None, (2, 1)),  # several processes on CPUs are no faster
        (TWO, 20, None, 2, (1, 2)),
        (TWO, 20, 1, None, (1, 1)),
        (EIGHT, 20, None, None, (8, 1)),
        (EIGHT, 3, None, None, (4, 2)),  # two GPUs each, and none waits for a fourth
        (EIGHT, 1, None, None, (1, 8)),
        (EIGHT, 20, 2, None, (2, 4)),
        (EIGHT, 20, None, 4, (2, 4)),
    ],
)
def test_trainings_side_by_side_and_processes_of_each(
    cluster: dict[str, float], trainings: int, asked: int | None, per_training: int | None, found: tuple[int, int]
) -> None:
    use = resources(cluster, trainings, asked, per_training)
    assert (use.side_by_side, use.processes) == found
    assert use.side_by_side * use.processes <= (cluster.get("GPU") or cluster["CPU"])


def test_a_process_has_a_gpu_and_its_share_of_the_cores_or_one_core() -> None:
    assert resources(EIGHT, 20, None) == Resources(cpus=7, gpus=1, side_by_side=8, processes=1)
    assert resources(TWO, 20, None) == Resources(cpus=1, gpus=0, side_by_side=2, processes=1)


def test_what_does_not_fit_is_refused_with_the_sum() -> None:
    with pytest.raises(UserError, match="--workers 3: 3 trainings need 3 CPUs together, the cluster has 2"):
        resources(TWO, 20, 3, None)
    with pytest.raises(UserError, match="--workers-per-training 3: a training needs 3 CPUs, the cluster has 2"):
        resources(TWO, 20, None, 3)
    with pytest.raises(UserError, match="2 trainings of 2 processes need 4 CPUs together"):
        resources(TWO, 20, 2, 2)
    with pytest.raises(UserError, match=r"5 workers, .*2\.5 in all; the cluster has 2"):
        worker_cpus(5, [2.0])


@pytest.mark.parametrize(
    ("workers", "nodes", "cpus"),
    [
        (1, [2.0], 1.0),
        (2, [2.0], 0.75),  # `ray start --head --num-cpus 2`
        (2, [1.0, 1.0], 0.75),
        (3, [2.0, 1.0], 0.75),
        (2, [4.0, 1.0], 1.0),  # both on the larger node: 1.75 each would fit, whole CPUs are given
        (4, [2.0], 0.25),
        (2, [16.0], 7.0),
    ],
)
def test_workers_leave_room_for_reading(workers: int, nodes: list[float], cpus: float) -> None:
    assert worker_cpus(workers, nodes) == cpus
    assert sum(int(node / (cpus + 0.25)) for node in nodes) >= workers


def test_a_backbone_in_a_relative_folder_is_found_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers run elsewhere. Sizes and hub ids are no folders, even if a folder has a size's name."""
    monkeypatch.chdir(tmp_path)
    for name in ("model", "tiny"):
        (tmp_path / name).mkdir()
    for name, expected in (("model", str(tmp_path / "model")), ("tiny", "tiny"), ("someone/else", "someone/else")):
        setup = setup_of(spec_of(Place("tokens"), tmp_path, backbone={"name": name}))
        assert absolute(setup).backbone.name == expected


def nodes(*addresses: str, alive: bool = True) -> list[dict[str, object]]:
    own = {f"n{number}": address for number, address in enumerate(addresses)}
    return [{"NodeManagerHostname": name, "NodeManagerAddress": own[name], "Alive": alive} for name in own]


def test_a_living_node_that_the_others_cannot_reach_is_refused_by_name(monkeypatch):
    with pytest.raises(UserError, match=r"1 of 2 nodes .* n1 as 127\.0\.1\.1.*--node-ip-address"):
        refuse_loopback_nodes(nodes("10.0.0.1", "127.0.1.1"))
    one = nodes("127.0.0.1")
    for reachable in (one, one * 2, nodes("10.0.0.1", "10.0.0.2"), nodes("fd00::2", "fd00::3")):
        refuse_loopback_nodes(reachable)
    living = nodes("10.0.0.1", "10.0.0.2")
    monkeypatch.setattr(ray, "nodes", lambda: [*living, *nodes("127.0.1.1", alive=False)])
    assert alive_nodes() == living


def test_gloo_is_told_the_interface_of_the_nodes_address_unless_the_environment_names_one(monkeypatch):
    monkeypatch.delenv(INTERFACE_VARIABLE, raising=False)
    choose_interface()
    address = get_node_ip_address()
    chosen = os.environ.pop(INTERFACE_VARIABLE, None)
    own = [each.address for each in psutil.net_if_addrs()[chosen]] if chosen else []
    assert chosen is None if is_loopback(address) else address in own
    monkeypatch.setenv(INTERFACE_VARIABLE, "chosen")
    choose_interface()
    assert os.environ[INTERFACE_VARIABLE] == "chosen"


@pytest.mark.parametrize(
    ("cluster", "trainings", "per_training", "executor", "held"),
    [
        (TWO, 20, None, "process", (1, 0)),
        (TWO, 20, 2, "ray train", (0, 0)),
        (EIGHT, 20, None, "ray train", (0, 0)),
        (EIGHT, 2, None, "ray train", (0, 0)),
    ],
)
def test_a_training_is_a_group_of_ray_train_with_a_gpu_or_several_workers(
    cluster: dict[str, float], trainings: int, per_training: int | None, executor: str, held: tuple[float, float]
) -> None:
    use = resources(cluster, trainings, None, per_training)
    assert (use.trains_in, use.held) == (executor, held)
    assert replace(use, alone=True).trains_in == "ray train", "the job's own process trains nothing"


def test_a_ray_that_does_not_start_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray 2.60 says it on a machine with forty processes a core."""

    def time_out(**options: object) -> None:
        raise Exception("The current node timed out during startup. This could happen because some of the raylet …")

    monkeypatch.setattr(ray, "init", time_out)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match="did not start within the 30 seconds") as caught:
        connect()
    assert "\n" not in str(caught.value)


def test_the_private_names_of_ray_that_are_imported_are_listed_in_the_decisions() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    listed = set(re.findall(r"`(\w+)`", decisions.partition("Ray's private names")[2].partition("\n- ")[0]))
    imports = re.compile(r"^from ray\.\S*\b_\S* import (.+)$", re.MULTILINE)
    files = (ROOT / "platform" / "midmask" / "backend").glob("*.py")
    names = {name for path in files for found in imports.findall(path.read_text()) for name in found.split(", ")}
    assert names and names <= listed
