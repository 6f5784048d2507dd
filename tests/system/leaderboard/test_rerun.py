"""The command that makes a tracked number again, run as a person pastes it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from midmask.leaderboard.rows import measured
from midmask.tracking.reading import read_runs
from tests.support.dashboards.browser import ROOT


def test_the_command_names_the_same_fingerprint(worked_store: tuple[Path, dict[str, str]]) -> None:
    home, fingerprints = worked_store
    tracked = read_runs(f"sqlite:///{home}/mlflow.db")
    (run,) = (one for one in tracked if measured(one) and one.tags["midmask.fingerprint"] == fingerprints["retromae"])
    wanted = {"tags": run.tags, "params": run.params, "split": "dev"}
    asked = [sys.executable, "-m", "midmask.app.rerun"]
    found = json.loads(
        subprocess.run(asked, input=json.dumps(wanted), capture_output=True, check=True, text=True).stdout
    )
    assert not found["differs"] and not found["newer"]
    assert len(found["arguments"]) < 40, "only what differs from the recipe is set"
    command = shlex.join([sys.executable, *found["arguments"], "--dry-run", "--tracking-uri", f"sqlite:///{home}/x.db"])
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines() if " evaluate " in line]
    assert ["cached", "evaluate", run.tags["midmask.fingerprint"]] in lines, done.stdout[-3000:]
