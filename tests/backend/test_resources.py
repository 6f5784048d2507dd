"""How a cluster is divided among trainings."""

import pytest

from midmask.backend.resources import Resources, resources
from midmask.errors import UserError

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
