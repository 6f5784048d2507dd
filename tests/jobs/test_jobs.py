"""Jobs run by themselves: a whole dry run, and one line with exit code 2 for what a user gets wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.running import JOBS, run_job


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "few"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "a passage"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    return f"beir:{folder}"


def test_a_dry_run_prints_configuration_and_steps_and_leaves_nothing(tmp_path: Path, collection: str) -> None:
    done = run_job("pretrain", "--dry-run", "--corpus", collection, home=tmp_path)
    assert done.code == 0, done.err
    assert f"corpus.name = {collection}" in done.out and "to do" in done.out
    assert "in all" in done.out.split("estimate on this machine")[1]
    assert list(tmp_path.iterdir()) == []


MISTAKES = {
    "an unknown field": ("pretrain", ["--set", "pretrain.stepz=1"], ["did you mean 'pretrain.steps'"]),
    "a field of another job": ("sweep_mask_ratio", ["--set", "pretrain.stepz=1"], ["did you mean 'pretrain.steps'"]),
    "a missing folder": ("pretrain", ["--corpus", "beir:/nowhere/at/all"], ["/nowhere/at/all"]),
    "an impossible value": ("pretrain", ["--set", "objective.encoder_mask_ratio=1.7"], ["encoder_mask_ratio", "1.7"]),
    "too many workers": (
        "pretrain",
        ["--dry-run", "--on", "2xT4", "--workers", "3"],
        ["--workers 3", "3 in all", "2xT4 has 2"],
    ),
    "a shape without a dry run": ("pretrain", ["--on", "2xT4"], ["--on 2xT4", "add --dry-run"]),
    "a stage without a teacher": ("train_teacher", ["--recipe", "dupmae", "--stage", "0"], ["With one: 2."]),
    "an unknown source of queries": ("prepare_corpus", ["--pseudo-queries", "title"], ["sentences, titles"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(mistake: str, tmp_path: Path, collection: str) -> None:
    name, arguments, words = MISTAKES[mistake]
    done = run_job(name, *arguments, *([] if "--corpus" in arguments else ["--corpus", collection]), home=tmp_path)
    (line,) = done.err.strip().splitlines()
    assert done.code == 2 and line.startswith("error: ") and all(word in line for word in words), line


def test_a_process_ends_with_the_same_line_and_code(tmp_path: Path, collection: str) -> None:
    """The other tests run jobs in this process; this one as a user does."""
    arguments = ["--corpus", collection, "--set", "pretrain.stepz=1"]
    environment = {"PATH": "/usr/bin:/bin", "MIDMASK_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(JOBS / "pretrain.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run_job("pretrain", *arguments, home=tmp_path).err


def test_a_corpus_is_prepared_with_what_is_asked_for_besides(tmp_path: Path, collection: str) -> None:
    asked = ["--spans", "--pseudo-queries", "titles", "--set", "spans.span_length=32"]
    done = run_job("prepare_corpus", "--dry-run", "--corpus", collection, *asked, home=tmp_path)
    assert done.code == 0, done.err
    listed = done.out.split("steps:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[2] for line in listed] == ["prepare", "tokenise", "spans", "pseudo_queries"]
    assert "pseudo_queries.source = titles" in done.out and "spans.span_length = 32" in done.out


def test_a_folder_with_files_is_not_written_into(tmp_path: Path, collection: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    done = run_job("train_generator", "--corpus", collection, "--out", str(tmp_path / "mine"), home=tmp_path)
    assert done.code == 2 and "there are files in it" in done.err and len(done.err.strip().splitlines()) == 1


def test_run_files_may_stand_before_and_after_flags(tmp_path: Path, collection: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"q Q0 d 1 1.0 {name}\n")
    flags = ["--dry-run", "--corpus", collection, "--split", "test"]
    done = run_job("evaluate_run", str(tmp_path / "one"), *flags, str(tmp_path / "two"), home=tmp_path)
    assert done.code == 0 and done.out.count("to do   read_run") == 2, done.err
