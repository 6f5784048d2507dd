"""Counts that an earlier process made are taken as they are, and only if nothing has changed that they follow from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from midmask.encoders.backbone import BackboneConfig
from midmask.estimate.remembered import remembered


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path))
    return tmp_path / "counts"


def counter(calls: list[tuple[object, ...]]):
    """A function of its own, as another process would have it."""

    @remembered(float)
    def area(side: int, *, scale: float = 1.0) -> float:
        calls.append((side, scale))
        return side * side * scale

    return area


def test_a_count_is_made_once_for_each_argument(cache: Path) -> None:
    calls: list[tuple[object, ...]] = []
    assert [counter(calls)(3), counter(calls)(3), counter(calls)(4), counter(calls)(3, scale=2.0)] == [9, 9, 16, 18]
    assert calls == [(3, 1.0), (4, 1.0), (3, 2.0)]
    assert len(list(cache.glob("*.json"))) == 3


@pytest.mark.parametrize("content", ["", "{", "null", '{"a": 1}'])
def test_a_spoilt_file_is_counted_anew(cache: Path, content: str) -> None:
    calls: list[tuple[object, ...]] = []
    counter(calls)(3)
    (file,) = cache.glob("*.json")
    file.write_text(content)
    assert counter(calls)(3) == 9.0 and len(calls) == 2
    assert json.loads(file.read_text()) == 9.0


def test_a_model_from_a_folder_is_not_kept(cache: Path) -> None:
    made = []

    @remembered(float)
    def count(encoder: BackboneConfig) -> float:
        made.append(encoder.name)
        return 1.0

    count(BackboneConfig(name="/models/someones"))
    count(BackboneConfig(name="tiny"))
    assert made == ["/models/someones", "tiny"] and len(list(cache.glob("*.json"))) == 1


def test_a_second_dry_run_builds_no_model_and_says_the_same(cache: Path, tmp_path: Path) -> None:
    environment = {"MIDMASK_CACHE": str(tmp_path), "MIDMASK_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    script = (
        "import atexit, sys; from midmask.commands.shell import main; "
        'atexit.register(lambda: print("transformers.models.bert.modeling_bert" in sys.modules)); '
        'sys.argv = ["midmask", "pretrain", "--dry-run"]; main()'
    )
    command = [sys.executable, "-c", script]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    first, second = (run.rpartition("\n")[0].rpartition("\n") for run in runs)
    assert first[0] == second[0] and "FLOP" in first[0]
    assert (first[2], second[2]) == ("True", "False")
