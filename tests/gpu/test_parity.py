"""Every computation on a GPU against the same on a CPU: `pytest -m gpu`."""

import pytest
import torch

from tests.gpu.cases import Case, all_cases


@pytest.mark.parametrize("case", [*all_cases()], ids=lambda case: case.name)
def test_a_gpu_computes_what_a_cpu_computes(case: Case) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU is there")
    wrong = {name: found for name, found in case.differences(torch.device("cuda")).items() if not found[0] <= found[1]}
    assert not wrong, "precision -> the largest relative difference, and what is allowed"
