"""The console command and a job, each as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_a_dry_run_is_that_of_the_job_and_imports_neither_ray_nor_mlflow(tmp_path: Path) -> None:
    environment = {**os.environ, "MIDMASK_HOME": str(tmp_path)}
    flags = ["--dry-run", "--set", "pretrain.steps=3"]
    commands = [["-X", "importtime", "-m", "midmask.commands", "pretrain"], ["-X", "importtime", "jobs/pretrain.py"]]
    quiet = {"env": environment, "cwd": ROOT, "capture_output": True, "text": True, "check": True}
    done = [subprocess.run([sys.executable, *one, *flags], **quiet) for one in commands]
    assert done[0].stdout == done[1].stdout and "pretrain.steps = 3" in done[0].stdout
    for one in done:
        imported = {row.rpartition("|")[2].strip().split(".")[0] for row in one.stderr.splitlines()}
        assert "torch" in imported and not imported & {"ray", "mlflow", "pandas"}
