"""`midmask doctor` on machines without a common disk: nothing to mend where all is well, else what cannot be used."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale.bed import Cluster, cluster
from tests.scale.machine import missing

ROOT = Path(__file__).resolve().parents[2]


def ask(there: Cluster) -> "subprocess.CompletedProcess[str]":
    path = f"PYTHONPATH={ROOT / 'platform'}"
    return there.head.run("env", path, sys.executable, "-m", "midmask.commands", "doctor", timeout=300)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(missing()), reason=missing() or "never")
def test_every_node_is_asked_and_a_server_that_none_reaches_is_named(tmp_path: Path) -> None:
    """Nodes' own names resolve to loopback addresses, which does not matter."""
    with cluster(tmp_path, loopback_names=True) as there:
        well = ask(there)
        assert well.returncode == 0, well.stdout + well.stderr
        assert well.stdout.count("0 GPUs: fine") == 3
        there.tell("kill tracking")
        wrong = ask(there)
    assert wrong.returncode == 2, wrong.stdout + wrong.stderr
    assert wrong.stdout.count("cannot use the tracking server") == 3
    assert "4 problems found" in wrong.stderr
