"""The command line that all jobs share: what it refuses, where it puts results, what it makes of errors."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.errors import UserError


def words(message: str) -> str:
    """A one-line message, as it is promised."""
    assert "\n" not in message
    return message


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, and a working directory that is not in it."""
    for variable in ("MIDMASK_HOME", "MIDMASK_STORAGE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "project" / "jobs").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project"


def options(project: Path, *arguments: str):  # type: ignore[no-untyped-def]
    return resolve(parse(arguments, "A job."), project / "jobs" / "pretrain.py")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--corpsu", "pydocs"], ["'--corpsu'", "did you mean '--corpus'", "--dry-run"]),
        (["--sed=3"], ["'--sed'", "did you mean '--se"]),
        (["pydocs"], ["'pydocs'", "--corpus"]),
        (["--workers", "0"], ["--workers", "'0'", "at least 1"]),
        (["--workers", "two"], ["--workers", "'two'", "at least 1"]),
        (["--seed", "-1"], ["--seed"]),
        (["--set", "steps"], ["--set", "'steps'", "PATH=VALUE"]),
        (["--set", "=3"], ["--set", "'=3'", "PATH=VALUE"]),
        (["--how", "gird"], ["--how", "'gird'", "grid", "tpe"]),
        (["--storage"], ["--storage", "expected one argument"]),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it_and_the_choices(arguments: list[str], parts: list[str]) -> None:
    def own(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--how", choices=["grid", "tpe"], help="a flag of the job's own")

    with pytest.raises(UserError) as error:
        parse(arguments, "A job.", own)
    for part in parts:
        assert part in words(str(error.value))


@given(st.dictionaries(st.from_regex(r"[a-z]+(\.[a-z0-9]+)*", fullmatch=True), st.text(), max_size=4))
def test_changes_keep_their_text(changes: dict[str, str]) -> None:
    """Only the first `=` divides: a value may hold more of them."""
    arguments = [f"--set={path}={value}" for path, value in changes.items()]
    assert dict(parse(arguments, "A job.").changes) == changes


def test_relative_stores_belong_to_the_project_not_to_the_working_directory(project: Path) -> None:
    plain = options(project)
    assert plain.storage == str(project / "store")
    assert plain.tracking_uri == f"sqlite:///{project}/mlflow.db"
    assert (plain.job, plain.corpus, plain.home) == ("pretrain", "pydocs", project)
    named = options(project, "--storage", "runs", "--tracking-uri", "sqlite:///runs.db")
    assert (named.storage, named.tracking_uri) == (str(project / "runs"), f"sqlite:///{project}/runs.db")


def test_the_variables_stand_in_for_the_flags(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIDMASK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MIDMASK_STORAGE", "kept")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    by_variable = options(project)
    assert (by_variable.storage, by_variable.tracking_uri) == (str(tmp_path / "home" / "kept"), "http://tracking:5000")
    by_flag = options(project, "--storage", "s3://bucket/x", "--tracking-uri", "sqlite:////abs/t.db")
    assert (by_flag.storage, by_flag.tracking_uri) == ("s3://bucket/x", "sqlite:////abs/t.db")


def test_a_corpus_in_a_relative_folder_is_made_absolute_by_the_driver(project: Path, tmp_path: Path) -> None:
    (project / "data").mkdir()
    (tmp_path / "elsewhere" / "near").mkdir()
    assert options(project, "--corpus", "beir:near").corpus == f"beir:{tmp_path}/elsewhere/near"
    assert options(project, "--corpus", "trec:data").corpus == f"trec:{project}/data"
    assert options(project, "--corpus", "hf:data").corpus == f"hf:{project}/data"
    for name in ("pydocs", "ir_datasets:cranfield", "beir:s3://bucket/squad", "beir:/abs/squad"):
        assert options(project, "--corpus", name).corpus == name


@pytest.fixture
def uploaded(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as Ray unpacks it for `ray job submit --working-dir .`."""
    folder = project.parent / "session_1" / "runtime_resources" / "working_dir_files" / "_ray_pkg_0"
    folder.parent.mkdir(parents=True)
    project.rename(folder)
    monkeypatch.chdir(folder)
    return folder


def test_results_never_go_into_an_uploaded_folder(uploaded: Path) -> None:
    for arguments in ([], ["--storage", "runs"], ["--storage", f"file://{uploaded}/x"]):
        with pytest.raises(UserError) as error:
            options(uploaded, *arguments)
        assert "--storage" in words(str(error.value)) and "--tracking-uri" in str(error.value)


def test_in_an_uploaded_folder_stores_that_stay_are_accepted(
    uploaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(uploaded, "--storage", str(tmp_path / "s"), "--tracking-uri", f"sqlite:///{tmp_path}/t.db")
    assert chosen.storage == str(tmp_path / "s")
    monkeypatch.setenv("MIDMASK_HOME", str(tmp_path))
    assert options(uploaded).storage == str(tmp_path / "store")
