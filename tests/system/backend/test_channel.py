"""Reports reach the driver once and in order, whoever dies in between; none of them can end the work."""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from midmask.backend.channel import Channel
from tests.support.cluster.processes import ray_processes
from tests.support.waiting import wait_until

ROWS = 400


@pytest.fixture
def posts(ray_local: None) -> Iterator[None]:
    yield
    psutil.wait_procs(post_processes())  # the actor of a closed channel ends


def post_processes() -> list[psutil.Process]:
    """The processes that hold rows, of this test's own Ray."""
    return list(ray_processes("ray::Post"))


@ray.remote(num_cpus=0)
def push_all(channel: Channel, source: str, deaths: str) -> int:
    """Pushes row after row; each quarter but the last waits at its end for a file of this folder, one a death."""
    for n in range(ROWS):
        channel.push(source, [{"n": n}])
        if (n + 1) % (ROWS // 4) == 0 and n + 1 < ROWS:
            wait_until((Path(deaths) / str((n + 1) // (ROWS // 4))).exists)
    return ROWS


def test_every_row_is_delivered_in_order(posts: None) -> None:
    seen: list[tuple[str, int]] = []
    with Channel.open() as channel:
        with channel.forwarding(lambda source, row: seen.append((source, row["n"])), every_s=0.01):
            for n in range(20):
                channel.push("a", [{"n": 2 * n}, {"n": 2 * n + 1}])
        assert seen == [("a", n) for n in range(40)]
        assert channel.drain() == []


def test_the_death_of_the_actor_loses_nothing_and_ends_nothing(posts: None, tmp_path: Path) -> None:
    """Killed with -9 again and again while two workers push, and with rows in it that nobody has fetched."""
    seen: list[tuple[str, int]] = []
    with Channel.open() as channel:
        channel.push("driver", [{"n": n} for n in range(50)])
        workers = [push_all.remote(channel, name, str(tmp_path)) for name in "ab"]
        for death in ("1", "2", "3"):
            wait_until(post_processes)
            doomed = post_processes()
            for process in doomed:
                process.send_signal(signal.SIGKILL)
            psutil.wait_procs(doomed)
            (tmp_path / death).touch()
        with channel.forwarding(lambda source, row: seen.append((source, row["n"])), every_s=0.01):
            assert ray.get(workers, timeout=240) == [ROWS, ROWS]
    for source, count in (("driver", 50), ("a", ROWS), ("b", ROWS)):
        assert [n for one, n in seen if one == source] == list(range(count))


def test_a_push_to_a_closed_channel_is_one_warning_and_no_error(posts: None, caplog: pytest.LogCaptureFixture) -> None:
    with Channel.open() as channel:
        pass
    for n in range(3):
        channel.push("a", [{"n": n}])
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "the work goes on" in warning


def test_a_row_that_the_driver_cannot_take_is_left_out_alone(posts: None, caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def take(source: str, row: dict[str, int]) -> None:
        seen.append(1 / row["n"])

    with Channel.open() as channel, channel.forwarding(take, every_s=0.01):
        channel.push("a", [{"n": 1}, {"n": 0}, {"n": 2}])
    assert seen == [1, 0.5]
    assert "a report of a is left out" in caplog.text
