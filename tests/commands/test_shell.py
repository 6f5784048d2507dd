"""The console command: what it lists, refuses and completes, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from midmask.commands import JOBS, TOOLS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "ray", "mlflow", "pandas", "pyarrow", "optuna")


def midmask(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "midmask.commands", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_help_lists_every_command() -> None:
    done = midmask("--help")
    assert done.returncode == 0
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ")}
    assert {*JOBS, *TOOLS} <= listed


@pytest.mark.parametrize("name", [*JOBS, *TOOLS])
def test_every_command_has_help_of_its_own(name: str) -> None:
    done = midmask(name, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: midmask {name} ")


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        (["rnu"], "run"),
        (["run", "--recipe", "retromea"], "retromae"),
        (["finetune", "--protocol", "dprr"], "dpr"),
        (["pretrain", "--corpus", "beeir:/data"], "beir"),
        (["evaluate", "--splitt", "test"], "--split"),
        (["run", "--set", "stages.0.train.stepps=3"], "stages.0.train.steps"),
        (["sweep", "--space", "x.yaml", "--set", "objective.encoder_mask_ration=0.3"], "objective.encoder_mask_ratio"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_misspelt_name_is_answered_with_the_nearest_before_anything_heavy_is_imported(
    typed: list[str], nearest: str
) -> None:
    done = midmask(*typed, python=("-X", "importtime"))
    *imports, line = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: ") and f"did you mean {nearest!r}?" in line
    imported = {row.rpartition("|")[2].strip().split(".")[0] for row in imports}
    assert "argparse" in imported and not imported & set(HEAVY)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_takes_the_completion_script(shell: str, tmp_path: Path) -> None:
    done = midmask("--print-completion", shell)
    assert done.returncode == 0 and "workers-per-training" in done.stdout
    script = tmp_path / "completion"
    script.write_text(done.stdout)
    try:
        checked = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"no {shell} here")
    assert checked.returncode == 0, checked.stderr


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


def test_the_doctor_counts_artifacts_and_those_of_an_older_version(tmp_path: Path) -> None:
    for name, number in (("a", 3), ("b", 2), ("c", 3)):
        folder = tmp_path / "store" / "prepare" / name
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(f'{{"identity": {{"format": {number}}}}}')
    done = midmask("doctor", "--storage", str(tmp_path / "store"))
    assert done.returncode == 0
    assert f"{tmp_path}/store: 3 artifacts; 1 of them are of an older version" in done.stdout


@pytest.mark.parametrize(
    "typed",
    [["FOLDER", "WORDS", "--corpus"], ["FOLDER", "--corpus", "WORDS"], ["--corpus", "FOLDER", "WORDS"]],
    ids=" ".join,
)
def test_a_query_may_stand_before_or_after_the_flags(typed: list[str], tmp_path: Path) -> None:
    stands_for = {"FOLDER": ["minilm"], "WORDS": ["two", "words"], "--corpus": ["--corpus", f"beir:{tmp_path}/absent"]}
    done = midmask("search", *(word for part in typed for word in stands_for[part]), "--storage", str(tmp_path))
    assert done.returncode == 2 and f"{tmp_path}/absent" in done.stderr and "unrecognized" not in done.stderr
