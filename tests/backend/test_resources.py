"""How a cluster is divided among trainings and their workers, and what workers are given."""

from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.backend.resources import Resources, resources
from midmask.backend.worker_group import absolute, worker_cpus
from midmask.errors import UserError
from tests.support.training.runs import spec_of
from tests.support.training.worker import setup_of

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
    assert (use.side_by_side, use.workers) == found
    assert use.side_by_side * use.workers <= (cluster.get("GPU") or cluster["CPU"])


def test_a_process_has_a_gpu_and_its_share_of_the_cores_or_one_core() -> None:
    assert resources(EIGHT, 20, None) == Resources(cpus=7, gpus=1, side_by_side=8, workers=1)
    assert resources(TWO, 20, None) == Resources(cpus=1, gpus=0, side_by_side=2, workers=1)


@pytest.mark.parametrize(
    ("asked", "per_training", "said"),
    [
        (3, None, "--workers 3: 3 trainings need 3 CPUs together, the cluster has 2. Type --workers 2 or fewer"),
        (None, 3, "--workers-per-training 3: a training needs 3 CPUs, the cluster has 2"),
        (2, 2, "2 trainings of 2 processes need 4 CPUs together"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_sum(asked: int | None, per_training: int | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        resources(TWO, 20, asked, per_training)


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


def test_workers_without_room_are_refused_with_the_sum() -> None:
    with pytest.raises(UserError, match=r"--workers 5: .*2\.5 in all; the cluster has 2\. Use --workers 4 or fewer"):
        worker_cpus(5, [2.0])


def test_a_backbone_in_a_relative_folder_is_found_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers run elsewhere. Sizes and hub ids are no folders, even if a folder has a size's name."""
    monkeypatch.chdir(tmp_path)
    for name in ("model", "tiny"):
        (tmp_path / name).mkdir()
    for name, expected in (("model", str(tmp_path / "model")), ("tiny", "tiny"), ("someone/else", "someone/else")):
        setup = setup_of(spec_of(Place("tokens"), tmp_path, backbone={"name": name}))
        assert absolute(setup).backbone.name == expected
