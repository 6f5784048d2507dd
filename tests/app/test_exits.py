"""How a command ends: what it says and its exit code: mistakes deep inside Ray, and output that nobody reads."""

import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from midmask.app.exits import mistake_in
from midmask.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "typed",
    [("--help",), ("search", "--help"), ("run", "--help"), ("run", "--dry-run")],
    ids=" ".join,
)
def test_a_reader_that_goes_away_ends_a_command_without_a_word(typed: tuple[str, ...], tmp_path: Path) -> None:
    """As `midmask run --dry-run | head`: the other end of the pipe is closed before anything is written."""
    command = [sys.executable, "-m", "midmask.commands", *typed]
    environment = {"PATH": "/usr/bin:/bin", "MIDMASK_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "platform")}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    assert running.stdout is not None
    running.stdout.close()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 141
    assert "Traceback" not in said and "BrokenPipeError" not in said


def test_a_pipe_of_something_else_that_breaks_is_a_bug() -> None:
    work = "def work():\n    raise BrokenPipeError(32, 'a socket')\n"
    program = f"from midmask.app.exits import run_to_exit\n{work}run_to_exit(work)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "a socket" in ended.stderr


@pytest.mark.usefixtures("ray_local")
def test_a_mistake_in_a_task_is_found_inside_what_ray_raises() -> None:
    @ray.remote
    def fail(error: Exception) -> None:
        raise error

    @ray.remote
    def fail_inside(error: Exception) -> None:
        ray.get(fail.remote(error))

    mistake = UserError("mask_ratio = 1.7:\n  must be below 1")
    for task in (fail, fail_inside):
        with pytest.raises(UserError) as raised:
            ray.get(task.remote(mistake))
        assert mistake_in(raised.value) == "mask_ratio = 1.7: must be below 1"
        for wrapped in (WorkerGroupError("x", {0: KeyError(), 1: raised.value}), ControllerError(raised.value)):
            assert mistake_in(wrapped) == "mask_ratio = 1.7: must be below 1"
    with pytest.raises(KeyError) as bug:
        ray.get(fail.remote(KeyError("a bug")))
    assert mistake_in(bug.value) is None


def test_a_bug_while_a_mistake_is_handled_stays_a_bug() -> None:
    try:
        try:
            raise UserError("tried first")
        except UserError:
            raise KeyError("a bug") from None
    except KeyError as error:
        assert mistake_in(error) is None
