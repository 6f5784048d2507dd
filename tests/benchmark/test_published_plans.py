"""Each preset at published scale is planned on both machines of the papers: a bill, not a refusal."""

import re
from pathlib import Path

import pytest
from transformers import AutoConfig

from midmask.benchmark.presets import PRESETS
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.running import Done, run_job

pytestmark = pytest.mark.slow

MACHINES = ("8xH100", "1xH100")


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was counted for one preset serves the next."""
    return tmp_path_factory.mktemp("counts")


@pytest.fixture
def home(tmp_path: Path, counts: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With BERT-base's config in place of its weights, which no dry run reads."""
    AutoConfig.for_model("bert").save_pretrained(tmp_path / "bert-base-uncased")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIDMASK_CACHE", str(counts))
    return tmp_path


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_at_published_scale_ends_with_a_bill(preset: str, home: Path) -> None:
    corpus, other = write_collection(home / "corpus"), write_collection(home / "other")
    plans = {machine: planned(preset, machine, home, corpus, other) for machine in MACHINES}
    for machine, told in plans.items():
        assert told.code == 0, told.err[-2000:]
        assert f"estimate on {machine}:" in told.out and "memory of a device in" in told.out
    assert hours(plans["8xH100"]) < hours(plans["1xH100"])


def planned(preset: str, machine: str, home: Path, corpus: str, other: str) -> Done:
    flags = ["--preset", preset, "--scale", "published", "--corpus", corpus, "--pretrain-on", other]
    return run_job("benchmark_middle_training", *flags, "--dry-run", "--on", machine, home=home)


def hours(told: Done) -> float:
    (line,) = re.findall(r"^  in all .*$", told.out, flags=re.MULTILINE)
    return float(line.split()[-1].replace(",", ""))
