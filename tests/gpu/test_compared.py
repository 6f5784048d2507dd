"""A number that differs on the device fails the program for a GPU; and the page that it writes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from midmask.errors import UserError
from tests.gpu import parity
from tests.gpu.__main__ import main
from tests.gpu.compared import Case, Numbers, Where, compare
from tests.gpu.page import read_sections, write_page
from tests.gpu.parts import head_cases, mask_cases


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_number_that_differs_on_the_device_fails_the_program(
    precision: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same two cases pass as they are, and fail with a gradient that is a quarter too large."""

    def cases(folder: Path) -> Iterator[Case]:
        return head_cases()

    def disturbed(folder: Path) -> Iterator[Case]:
        whole, other = head_cases()
        yield whole

        def compute(where: Where) -> Numbers:
            found = dict(other.compute(where))
            return found | {"gradients": found["gradients"] * (1.25 if where.precision == precision else 1.0)}

        yield replace(other, compute=compute)

    monkeypatch.setattr(parity, "all_cases", cases)
    assert main(["--cpu", "--part", "parity"]) == 0
    monkeypatch.setattr(parity, "all_cases", disturbed)
    assert main(["--cpu", "--part", "parity"]) == 1
    told = capsys.readouterr().out
    assert "All 2 cases pass." in told and "1 of 2 cases fail: head column maximum." in told


def test_a_mask_must_be_the_same_to_the_last_token() -> None:
    case = next(mask_cases())

    def compute(where: Where) -> Numbers:
        drawn = case.compute(where)["drawn"].clone()
        drawn[1, 5] = ~drawn[1, 5]
        return {"drawn": drawn}

    right, wrong = case.compute(case.reference), compute(case.reference)
    both = iter([right, wrong])
    (row,) = compare([replace(case, compute=lambda where: next(both))], torch.device("cpu"))
    assert not row.passed and row.fp32 == pytest.approx(1 / right["drawn"].numel())


def test_what_raises_on_the_device_is_a_row_that_fails() -> None:
    case = next(head_cases())

    def compute(where: Where) -> Numbers:
        if where.precision == "bf16":
            raise RuntimeError("expected all tensors to be on the same device\nand more")
        return case.compute(where)

    (row,) = compare([replace(case, compute=compute)], torch.device("cpu"))
    assert not row.passed and row.cells()[-1] == "**no** RuntimeError: expected all tensors to be on the same device"


def test_a_page_keeps_the_sections_of_other_runs(tmp_path: Path) -> None:
    page = tmp_path / "results" / "gpu.md"
    write_page(page, {"Speed": "slow\n\n| a |"}, ["First", "Speed"])
    write_page(page, {"First": "one"}, ["First", "Speed"])
    assert page.read_text() == "# On a GPU\n\n## First\n\none\n\n## Speed\n\nslow\n\n| a |\n"
    write_page(page, {"Speed": "fast"}, ["First", "Speed"])
    assert read_sections(page.read_text()) == {"First": "one", "Speed": "fast"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_program_says_how_to_try_it() -> None:
    with pytest.raises(UserError, match=r"no GPU is there; python -m tests\.gpu --cpu tries"):
        main(["--part", "parity"])
