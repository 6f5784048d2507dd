"""Trainings, losses, encoding and search on a device that refuses what a GPU refuses: `tests.support.gpu.pretend`."""

import pytest

from tests.support.gpu.bare import run, run_text


def test_trainings_run_on_a_device_that_refuses_tensors_of_the_host() -> None:
    """With health, probe, guard, gradient cache and checkpoints; what is refused is tried by the last test."""
    outcome = run("tests.gpu.pretended", "training")
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    assert "All 4 cases pass." in outcome.stdout


@pytest.mark.slow
def test_everything_runs_on_a_device_that_refuses_tensors_of_the_host() -> None:
    outcome = run("tests.gpu.pretended")
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]


FAULTS = {
    "device_N + torch.arange(3)": "aten::add: expected all tensors to be on the same device",
    "torch.where(torch.ones(3) > 0, device_N, 0)": "aten::where: expected all tensors to be on the same device",
    "device_N.numpy()": "numpy",
}
"""What a GPU refuses -> what the error says."""

TRIED = """
import torch
from tests.support.gpu.pretend import pretended
with pretended() as device:
    device_N = torch.arange(3, device=device)
    assert device_N.is_cuda and (device_N + 1).sum().item() == 6 and (device_N.cpu().numpy() == range(3)).all()
    for expression in {expressions!r}:
        try:
            print(eval(expression))
        except (RuntimeError, TypeError) as error:
            print("refused:", str(error).splitlines()[0])
"""


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    outcome = run_text(TRIED.format(expressions=[*FAULTS]))
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    for line, told in zip(outcome.stdout.splitlines(), FAULTS.values(), strict=True):
        assert line.startswith("refused: ") and told in line
