"""The harness itself notices what it looks for; and ten kills of real jobs change nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from midmask.artifact import Place, produce
from tests.chaos.compare import contents, differences, identities, rewritten
from tests.chaos.cycle import draw
from tests.chaos.job import Moment, Timeline
from tests.chaos.scenarios import ROOT, scenarios


def write_artifact(home: Path, *, weights: bytes = b"weights", seconds: float = 1.0, measure: float = 0.5) -> Path:
    """A finished step with one file of data; where the file lies."""

    def make(out: Place) -> dict[str, object]:
        (out / "model" / "model.safetensors").write(weights)
        return {"seconds": seconds, "measures": {"nDCG@10": measure}}

    record = {"step": "finetune", "fingerprint": "f", "inputs": {"start": f"{home}/store/pretrain/p"}}
    artifact = produce(Place(f"{home}/store/finetune/f"), record, make)
    return artifact.place.local() / "model" / "model.safetensors"


def test_only_what_tells_a_time_or_a_place_may_differ(tmp_path: Path) -> None:
    write_artifact(tmp_path / "one")
    expected = contents(tmp_path / "one")
    for name, changes in {"bytes": {"weights": b"Weights"}, "measure": {"measure": 0.5000001}}.items():
        write_artifact(tmp_path / name, **changes)  # type: ignore[arg-type]
        assert len(differences(expected, contents(tmp_path / name))) == 1
    write_artifact(tmp_path / "slow", seconds=2.0)
    assert differences(expected, contents(tmp_path / "slow")) == []
    assert len(differences(expected, {})) == len(expected)


def test_a_finished_file_that_is_written_again_is_noticed(tmp_path: Path) -> None:
    path = write_artifact(tmp_path)
    before = identities(tmp_path)
    assert rewritten(before, identities(tmp_path)) == []
    Place(str(path)).write(path.read_bytes())
    assert len(rewritten(before, identities(tmp_path))) == 1


def test_moments_are_told_by_what_is_finished() -> None:
    timeline = Timeline([10.0, 12.5, 30.0], 40.0)
    assert timeline.moment(4.0) == Moment(0, 4.0)
    assert timeline.moment(12.0) == Moment(1, 2.0)
    assert timeline.moment(39.0) == Moment(3, 9.0)


def test_a_seed_draws_the_same_kills_of_every_kind(tmp_path: Path) -> None:
    sweep, timeline = scenarios(tmp_path)["sweep"], Timeline([60.0, 61.0, 90.0], 100.0)
    kills = draw(sweep, timeline, 16, "7")
    assert kills == draw(sweep, timeline, 16, "7") != draw(sweep, timeline, 16, "8")
    assert sorted(kill.victim for kill in kills) == sorted([*sweep.victims, *sweep.victims])
    assert [kill.at for kill in kills] == sorted(kill.at for kill in kills)
    assert {timeline.moment(kill.at).done for kill in kills} == {0, 1, 2, 3}, "a step of a second is hit too"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_kills_change_nothing_and_leave_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--kills", "10", "--seed", "1", "--out", str(tmp_path / "chaos")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "10 kills in 3 cycles, 0 troubles" in done.stdout
