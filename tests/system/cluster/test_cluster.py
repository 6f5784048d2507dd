"""Kills and losses of nodes change nothing; a cluster whose nodes share nothing makes what one machine makes."""

import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.benchmark.tiny import write_collection
from tests.system.cluster.bed import Bed, Cluster, cluster
from tests.system.cluster.compare import artifacts
from tests.system.cluster.cycle import Timeline, draw
from tests.system.cluster.local import Local
from tests.system.cluster.machine import missing
from tests.system.cluster.races import races
from tests.system.cluster.work import ROOT, works

needs_machines = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


def test_a_seed_draws_the_same_blows_of_every_kind_over_all_steps(tmp_path: Path) -> None:
    sweep = Local(works(tmp_path, is_spread=False)["sweep"], "", tmp_path)
    timeline, long = Timeline([60.0, 61.0, 90.0], 100.0), [60.0, 1.0, 29.0, 10.0]
    for site, count in ((sweep, 14), (Bed(None, None, ""), 21)):  # type: ignore[arg-type]
        blows = draw(site, timeline, count, "7")
        assert blows == draw(site, timeline, count, "7") != draw(site, timeline, count, "8")
        times, remainder = divmod(count, len(site.kinds))
        assert remainder == 0 and Counter(blow.kind for blow in blows) == Counter(site.kinds * times)
        assert {blow.done for blow in blows} == {0, 1, 2, 3}, "a step of a second is hit too"
        assert all(0 <= blow.after <= long[blow.done] for blow in blows)
        assert all(one.done <= two.done for one, two in itertools.pairwise(blows))
        assert all((blow.away == site.outage) != (blow.kind in site.nodes) for blow in blows)


def test_racing_processes_make_one_whole_artifact(tmp_path: Path) -> None:
    assert not [line for line, problems in races(tmp_path, 4, seed=5, kinds=("prepare", "tokenise")) if problems]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--blows", "10", "--seed", "1"), id="kills"),
        pytest.param(("--where", "store", "--blows", "28", "--seed", "5"), id="races"),
        pytest.param(("--where", "bed", "--blows", "0", "--only", "pipeline"), id="cluster", marks=needs_machines),
    ],
)
def test_nothing_is_changed_and_nothing_left(flags: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.system.cluster", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert re.search(rf"{flags[flags.index('--blows') + 1]} (blows in .* 0 troubles|\|.* 0 races)", done.stdout)


def wait_for(there: Cluster, words: str) -> None:
    """Until the job's log on the head has these words."""
    until = time.monotonic() + 300
    while there.head.run("sh", "-c", f"grep -q '{words}' /home/node/logs/*.log").returncode != 0:
        assert time.monotonic() < until, f"still not there: {words}"
        time.sleep(0.5)


@needs_machines
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_training_goes_on_without_a_lost_node_and_with_all_when_it_is_back(tmp_path: Path) -> None:
    steps, says = 1500, "the training goes on with {} of 2 workers"
    small = {"tokens.vocabulary_size": 300, "pretrain.steps": steps, "pretrain.batch_size": 8}
    flags = [f"--set={path}={value}" for path, value in {**small, "pretrain.checkpoint_every": 20}.items()]
    # outside of the folders of which each machine has its own
    with tempfile.TemporaryDirectory(dir="/var/tmp") as outside, cluster(tmp_path, ("worker1",)) as there:
        write_collection(Path(outside) / "tiny")
        job = [sys.executable, str(ROOT / "jobs" / "pretrain.py"), "--corpus", there.upload(Path(outside) / "tiny")]
        job += ["--recipe", "mlm", "--workers", "2", "--set=pretrain.log_every=10", *flags]
        running = there.head.start(*job, log=there.logs / "job.log")
        wait_for(there, "step [0-9]* of")
        there.lose("worker1")
        wait_for(there, says.format(1))
        there.add("worker1")
        wait_for(there, says.format(2))
        assert running.wait(1200) == 0
        there.download()
    (folder,) = [folder for _, folder, _ in artifacts(tmp_path / "out") if folder.parent.parent.name == "pretrain"]
    trace = pq.read_table(folder / "trace.parquet")
    assert trace["step"].to_pylist() == list(range(steps)), "every step once"
    assert trace["first_after_start"].to_pylist().count(True) in (2, 3), "two restarts from one checkpoint are one"
    losses = trace["loss"].to_pylist()
    assert sum(losses[-40:]) < sum(losses[:40]), "it has learned"
