"""Two nodes with separate temporary folders, everything by URI: nothing may lie on the driver's disk alone."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place
from midmask.experiment.steps import LOCAL
from tests.support.benchmark.tiny import write_collection
from tests.support.cluster.two_nodes import results, two_stages

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folders() -> Iterator[list[str]]:
    """Short names: sockets lie below them."""
    made = [tempfile.mkdtemp(prefix="mm", dir="/tmp") for _ in range(2)]
    yield made
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_pipeline_on_two_nodes_equals_one_process(tmp_path: Path, folders: list[str]) -> None:
    corpus = f"beir:{Path(write_collection(tmp_path / 'tiny').removeprefix('beir:')).as_uri()}"
    command = [sys.executable, "-m", "tests.support.cluster.two_nodes", corpus, (tmp_path / "there").as_uri(), *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=550)
    assert done.returncode == 0, done.stderr[-3000:]
    there = json.loads(done.stdout.splitlines()[-1])
    assert there["nodes"] == 2
    here = results(LOCAL, two_stages(corpus), Place(str(tmp_path / "here")))
    for role in ("corpus", "tokens"):
        own = Path(here[role]["place"])
        for path in sorted(own.rglob("*.parquet")):
            other = Place(there["results"][role]["place"]) / str(path.relative_to(own))
            assert other.read() == path.read_bytes(), path
    for role in ("pretrain", "first", "second"):
        assert there["results"][role]["loss"] == pytest.approx(here[role]["loss"], abs=1e-3)
        assert there["results"][role]["workers"] == 2
    assert there["results"]["mined"]["queries"] == here["mined"]["queries"]
    mined = pq.read_table(Place(there["results"]["mined"]["place"]).local() / "negatives.parquet")
    assert len(mined) == there["results"]["mined"]["negatives"] > 0
