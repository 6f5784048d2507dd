"""midmask calibrate: the records of revealed verdicts, in the folder that is named."""

import shutil
from pathlib import Path

import pytest

from midmask.choice.calibration_records import FILE as GAINS
from midmask.choice.calibration_records import load_records
from midmask.choice.levels import FILE as LEVELS
from midmask.commands.shell import run_tool

REVEALED = Path(__file__).resolve().parents[2] / "docs" / "results" / "records" / "choose"


@pytest.fixture
def verdicts(tmp_path):
    """Two folders of revealed verdicts, as `midmask choose --reveal` leaves them."""
    folders = [tmp_path / name for name in ("cranfield", "manual")]
    for folder in folders:
        folder.mkdir()
        shutil.copy(REVEALED / f"{folder.name}.json", folder / "revealed.json")
    return [str(folder) for folder in folders]


def test_records_go_to_the_folder_that_is_named_and_never_into_the_package(verdicts, tmp_path, capsys):
    shipped = [file.read_bytes() for file in (GAINS, LEVELS)]
    out = tmp_path / "made" / "here"
    run_tool("calibrate", [*verdicts, "--out", str(out)])
    assert {record.collection for record in load_records(out / GAINS.name)} == {"cranfield", "manual"}
    assert (out / LEVELS.name).read_text("utf-8").count("\n") == 2
    assert "cranfield" in capsys.readouterr().out
    assert [file.read_bytes() for file in (GAINS, LEVELS)] == shipped
