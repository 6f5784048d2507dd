"""The console command: what it lists, refuses and completes, and what its small tools do."""

import subprocess
import sys
from pathlib import Path

import pytest

from midmask.commands import JOBS, TOOLS, shell

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "transformers", "ray", "mlflow", "pandas", "pyarrow", "scipy", "numpy", "optuna", "ir_measures"}


@pytest.fixture
def midmask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What a command line, run in this process, ends with and prints: (code, output, errors)."""

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["midmask", *arguments])
        with pytest.raises(SystemExit) as ended:
            shell.main()
        return (ended.value.code or 0, *capsys.readouterr())

    return run


def test_help_lists_every_command_and_each_has_its_own(midmask) -> None:
    code, out, _ = midmask("--help")
    assert code == 0 and {*JOBS, *TOOLS} <= {line.split()[0] for line in out.splitlines() if line.startswith("    ")}
    for name in (*JOBS, *TOOLS):
        code, out, _ = midmask(name, "--help")
        assert code == 0 and out.startswith(f"usage: midmask {name} ")


NEAREST = {
    "rnu": "run",
    "finetune --protocol dprr": "dpr",
    "sweep --space x.yaml --set objective.encoder_mask_ration=0.3": "objective.encoder_mask_ratio",
    "compare --help": "",
}


@pytest.mark.parametrize(("typed", "nearest"), NEAREST.items(), ids=NEAREST)
def test_help_and_the_nearest_name_come_before_anything_heavy_is_imported(typed: str, nearest: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "midmask.commands", *typed.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if nearest:
        line = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and line.startswith("error: ") and f"did you mean {nearest!r}?" in line
    imported = {row.rpartition("|")[2].strip().split(".")[0] for row in done.stderr.splitlines()}
    assert "argparse" in imported and not imported & HEAVY


def test_the_shell_takes_the_completion_script(midmask, tmp_path: Path) -> None:
    code, out, _ = midmask("--print-completion", "bash")
    assert code == 0 and "workers-per-training" in out
    (script := tmp_path / "completion").write_text(out)
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_doctor_counts_artifacts(midmask, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "unfinished.attempts"):
        folder = tmp_path / "store" / "prepare" / name
        folder.mkdir(parents=True)
        (folder / ("part" if "attempts" in name else "record.json")).write_text("{}")
    code, out, _ = midmask("doctor", "--storage", str(tmp_path / "store"))
    assert code == 0 and f"{tmp_path}/store: 3 artifacts\n" in out


def test_a_query_may_stand_before_or_after_the_flags(midmask, tmp_path: Path) -> None:
    corpus, words = ["--corpus", f"beir:{tmp_path}/absent"], ["two", "words"]
    for typed in (["minilm", *words, *corpus], ["minilm", *corpus, *words], [*corpus, "minilm", *words]):
        code, _, err = midmask("search", *typed, "--storage", str(tmp_path))
        assert code == 2 and f"{tmp_path}/absent" in err and "unrecognized" not in err
