"""A training on a cluster that loses a node goes on with fewer workers, and with all when the node is back."""

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.chaos.compare import artifacts
from tests.scale.bed import Cluster, cluster
from tests.scale.machine import missing
from tests.scale.services import BUCKET

STEPS = 1500
SMALL = {"tokens.vocabulary_size": 800, "pretrain.steps": STEPS, "pretrain.batch_size": 8}
CHECKPOINTS = {"pretrain.checkpoint_every": 20, "pretrain.log_every": 10}
SAYS = "the training goes on with {} of 2 workers"


def wait_for(there: Cluster, words: str, within: float) -> None:
    """Until the job's log on the head has these words."""
    until = time.monotonic() + within
    while there.head.run("sh", "-c", f"grep -q '{words}' /home/node/logs/*.log").returncode != 0:
        assert time.monotonic() < until, f"after {within:.0f} s still not there: {words}"
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.skipif(bool(missing()), reason=missing() or "never")
def test_fewer_workers_go_on_without_a_node_and_all_when_it_is_back(tmp_path: Path, data: Path) -> None:
    with cluster(tmp_path, ("worker1",), loopback_names=True) as there:
        corpus = f"beir:{there.upload(data / 'cranfield', 'cranfield')}"
        flags = [f"--set={path}={value}" for path, value in {**SMALL, **CHECKPOINTS}.items()]
        job = there.job("pretrain", "--corpus", corpus, "--recipe", "mlm", "--workers", "2", *flags)
        wait_for(there, "step [0-9]* of", 300)
        there.lose("worker1")
        wait_for(there, SAYS.format(1), 300)
        there.add("worker1")
        wait_for(there, SAYS.format(2), 300)
        assert job.wait(1200) == 0
        there.download(f"s3://{BUCKET}/store", "store")
    (folder,) = [folder for _, folder, _ in artifacts(tmp_path / "out") if folder.parent.parent.name == "pretrain"]
    trace = pq.read_table(folder / "trace.parquet")
    assert trace["step"].to_pylist() == list(range(STEPS)), "every step once"
    assert trace["first_after_start"].to_pylist().count(True) in (2, 3), "two restarts from one checkpoint are one"
    losses = trace["loss"].to_pylist()
    assert sum(losses[-40:]) < sum(losses[:40]), "it has learned"
