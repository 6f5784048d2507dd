"""The command that makes a tracked number again, run as a person pastes it."""

import shlex
import subprocess
import sys
from pathlib import Path

from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, command_again
from midmask.leaderboard.rows import measured
from midmask.tracking.names import RECIPE_FILE
from midmask.tracking.reading import artifact_file, read_runs
from tests.support.dashboards.browser import ROOT


def test_the_command_names_the_same_fingerprint(worked_store: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    home, fingerprints = worked_store
    uri = f"sqlite:///{home}/mlflow.db"
    runs = read_runs(uri)
    (run,) = (one for one in runs if measured(one) and one.tags["midmask.fingerprint"] == fingerprints["retromae"])
    recipe, place = artifact_file(uri, run.run_id, RECIPE_FILE, tmp_path), artifact_place(run, "tiny", "dev")
    assert recipe is not None and place is not None
    arguments = command_again(run, str(recipe), "dev", artifacts_behind(place))
    command = shlex.join([sys.executable, *arguments, "--dry-run", "--tracking-uri", f"sqlite:///{home}/x.db"])
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines() if " evaluate " in line]
    assert ["cached", "evaluate", run.tags["midmask.fingerprint"]] in lines, done.stdout[-3000:]
