"""The command line that all jobs share: what it refuses, where it puts results, whose queries it asks, how it ends."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import midmask
from midmask.app.driver import choose_split, recipe_for
from midmask.app.exits import mistake_in
from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.artifact import Place
from midmask.corpora import CorpusConfig, judged_splits, prepare
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import write_beir


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
        (["pydocs"], ["'pydocs'", "--corpus"]),
        (["--workers", "0"], ["--workers", "'0'", "at least 1"]),
        (["--set", "steps"], ["--set", "'steps'", "PATH=VALUE"]),
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


@settings(max_examples=20)
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


def test_a_reader_that_goes_away_ends_a_command_without_a_word() -> None:
    """As `midmask --help | head`: the other end of the pipe is closed before anything is written."""
    command = [sys.executable, "-m", "midmask.commands", "--help"]
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(midmask.__file__).parents[1])}  # its output is buffered
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own)
    assert running.stdout is not None
    running.stdout.close()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 141 and said == ""


def test_a_pipe_of_something_else_that_breaks_is_a_bug() -> None:
    work = "def work():\n    raise BrokenPipeError(32, 'a socket')\n"
    program = f"from midmask.app.exits import run_to_exit\n{work}run_to_exit(work)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "a socket" in ended.stderr


def test_a_bug_while_a_mistake_is_handled_stays_a_bug() -> None:
    try:
        try:
            raise UserError("tried first")
        except UserError:
            raise KeyError("a bug") from None
    except KeyError as error:
        assert mistake_in(error) is None


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """20 judged queries, all of them in a test split."""
    write_beir(tmp_path / "few")
    header, *_ = (tmp_path / "few/qrels/test.tsv").read_text().splitlines()
    rows = [row for name in ("train", "dev", "test") for row in split_rows(tmp_path / f"few/qrels/{name}.tsv")]
    for name in ("train", "dev"):
        (tmp_path / f"few/qrels/{name}.tsv").unlink()
    (tmp_path / "few/qrels/test.tsv").write_text("\n".join([header, *rows]) + "\n")
    return tmp_path / "few"


def split_rows(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def asked(collection: Path, *flags: str) -> Options:
    return resolve(parse(["--corpus", f"beir:{collection}", *flags], "A job."), collection.parent / "jobs" / "x.py")


def split_of(collection: Path, split: str | None, *flags: str, trains: bool = False) -> tuple[CorpusConfig, str]:
    options = asked(collection, *flags)
    recipe, found = choose_split(recipe_for(options, "none"), split, options, trains=trains)
    return recipe.corpus, found


def test_a_test_split_alone_is_evaluated_on_whole(collection: Path, tmp_path: Path) -> None:
    corpus, split = split_of(collection, None)
    result = prepare(corpus, {}, Place(str(tmp_path / "out")))
    assert split == "test" and result["splits"]["test"]["queries"] == 20
    assert result["splits_made_here"] == [] and result["split_rule"] == "the corpus's own splits"


def test_it_is_divided_where_training_needs_it_or_the_user_says_so(collection: Path, tmp_path: Path) -> None:
    corpus, split = split_of(collection, None, trains=True)
    assert (corpus.splits, split) == ("complete", "dev")
    assert split_of(collection, None, "--set", "corpus.splits=complete")[0].splits == "complete"
    assert prepare(corpus, {}, Place(str(tmp_path / "out")))["splits_made_here"] == ["dev", "test", "train"]


def test_a_split_that_is_not_there_is_refused_before_anything_is_read(collection: Path) -> None:
    with pytest.raises(UserError, match=r"--split dev: beir:.* it has test; --set corpus\.splits=complete draws"):
        split_of(collection, "dev")


@pytest.mark.parametrize(("kind", "splits"), [("msmarco", "official"), ("nq", "complete"), ("beir", "official")])
def test_the_splits_told_from_file_names_are_those_of_the_prepared_collection(
    kind: str, splits: str, tmp_path: Path
) -> None:
    write = {"msmarco": layouts.write_msmarco, "nq": layouts.write_nq, "beir": write_beir}[kind]
    write(tmp_path / "in")
    config = CorpusConfig.model_validate({"name": f"{kind}:{tmp_path}/in", "splits": splits})
    assert set(prepare(config, {}, Place(str(tmp_path / "out")))["splits"]) <= set(judged_splits(config))
