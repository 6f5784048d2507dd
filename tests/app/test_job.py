"""How jobs begin, end and are made again: flags, stores, queries that are asked, and what ends their output."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import midmask
from midmask.app.driver import choose_split, recipe_for
from midmask.app.flags import parse
from midmask.app.job import mistake_in, resolve
from midmask.core.config import override
from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.corpora.reader import judged_splits
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.recipes.build import at_scale
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.place import Place
from tests.support.corpora import layouts
from tests.support.corpora.collections import write_beir


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
    assert options(project, "--corpus", "msmarco:data").corpus == f"msmarco:{project}/data"
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


def test_results_never_go_into_an_uploaded_folder(uploaded: Path, tmp_path: Path, monkeypatch) -> None:
    for arguments in ([], ["--storage", "runs"], ["--storage", f"file://{uploaded}/x"]):
        with pytest.raises(UserError, match=r"--storage .*--tracking-uri|--tracking-uri .*--storage"):
            options(uploaded, *arguments)
    chosen = options(uploaded, "--storage", str(tmp_path / "s"), "--tracking-uri", f"sqlite:///{tmp_path}/t.db")
    assert chosen.storage == str(tmp_path / "s")
    monkeypatch.setenv("MIDMASK_HOME", str(tmp_path))
    assert options(uploaded).storage == str(tmp_path / "store")


def test_a_reader_that_goes_away_ends_a_command_without_a_word() -> None:
    """As `midmask --help | head`: the other end of the pipe is closed before anything is written."""
    command = [sys.executable, "-m", "midmask.commands", "--help"]
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(midmask.__file__).parents[1])}  # its output is buffered
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own)
    running.stdout.close()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 141 and said == ""


def test_a_pipe_of_something_else_that_breaks_is_a_bug() -> None:
    work = "def work():\n    raise BrokenPipeError(32, 'a socket')\n"
    program = f"from midmask.app.job import run_to_exit\n{work}run_to_exit(work)"
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


def test_a_test_split_alone_is_whole_where_nothing_is_trained_unless_the_user_says_so(tmp_path: Path) -> None:
    """14 queries, judged in a test split alone."""
    write_beir(tmp_path / "few", queries=42)
    for name in ("train", "dev"):
        (tmp_path / f"few/qrels/{name}.tsv").unlink()

    def chosen(split: str | None, *flags: str, trains: bool = False) -> tuple[CorpusConfig, str]:
        asked = resolve(parse(["--corpus", f"beir:{tmp_path}/few", *flags], "A job."), tmp_path / "jobs" / "x.py")
        recipe, found = choose_split(recipe_for(asked, "none"), split, asked, trains=trains)
        return recipe.corpus, found

    corpus, split = chosen(None)
    result = prepare(corpus, {}, Place(str(tmp_path / "whole")))
    assert split == "test" and result["splits"]["test"]["queries"] == 14 and result["splits_made_here"] == []
    corpus, split = chosen(None, trains=True)
    assert (corpus.splits, split) == ("complete", "dev")
    assert prepare(corpus, {}, Place(str(tmp_path / "out")))["splits_made_here"] == ["dev", "test", "train"]
    assert chosen(None, "--set", "corpus.splits=complete")[0].splits == "complete"
    with pytest.raises(UserError, match=r"--split dev: beir:.* it has test; --set corpus\.splits=complete draws"):
        chosen("dev")


@pytest.mark.parametrize(("kind", "splits"), [("msmarco", "official"), ("nq", "complete"), ("beir", "official")])
def test_splits_told_from_file_names_are_those_of_the_prepared_collection(kind: str, splits: str, tmp_path) -> None:
    write = {"msmarco": layouts.write_msmarco, "nq": layouts.write_nq, "beir": write_beir}[kind]
    write(tmp_path / "in")
    config = CorpusConfig.model_validate({"name": f"{kind}:{tmp_path}/in", "splits": splits})
    assert set(prepare(config, {}, Place(str(tmp_path / "out")))["splits"]) <= set(judged_splits(config))


CHANGED: dict[str, object] = {
    "corpus.name": "texts:/data/my corpus; it's big", "objective.encoder_mask_ratio": 0.15, "pretrain.seed": 11,
    "evaluation.measures": ["nDCG@10", "R@100"], "stages.0.train.learning_rate": 3e-5,
}  # fmt: skip
AT_HAND: dict[str, object] = {"backbone.name": "base", "tokens.tokenizer": None}
OTHER_LOSS: dict[str, object] = {
    "stages.0.loss": {"name": "distillation", "teacher_temperature": 2.0}, "stages.0.per_query": 3,
    "stages.0.teacher": {"folder": "/models/teacher"}, "stages.0.negatives": ["bm25"],
}  # fmt: skip
CASES = {
    "as it stands": RECIPES["retromae"](),
    "changed": override(RECIPES["retromae"](), CHANGED),
    "no objective": RECIPES["none"](),
    "protocol": PROTOCOLS["lexmae"]().on(RECIPES["mlm"](), "demo"),
    "published sizes": override(at_scale(RECIPES["cotmae"](), "cotmae", "published"), AT_HAND),
    "a word that reads as a value": override(RECIPES["mlm"](), {"backbone.experts": "none", "tokens.tokenizer": None}),
    "collections of its own": override(RECIPES["dupmae"](), {"pretrain_on": ["texts:/a b", "texts:/c"]}),
    "another loss": override(RECIPES["mlm"](), OTHER_LOSS),
}


@pytest.mark.parametrize("recipe", CASES.values(), ids=CASES)
def test_a_saved_recipe_makes_the_same_recipe(recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(recipe.model_dump_json(indent=1))
    options = resolve(parse(["--recipe", str(file)], None), tmp_path / "jobs" / "pretrain.py")
    assert recipe_for(options, default="retromae") == recipe
    longer = resolve(parse(["--recipe", str(file), "--set", "pretrain.steps=77"], None), tmp_path / "pretrain.py")
    if recipe.objective is not None:
        assert recipe_for(longer, default="retromae") == override(recipe, {"pretrain.steps": 77})


FILES = {
    "nothing": (None, "No such file.*the recipe.json of a run, or the name of a recipe"),
    "no JSON": ("{", "it holds no recipe"),
    "another file": ('{"corpus": "pydocs"}', "it holds no recipe"),
    "of another version": ('{"corpus": {"name": "pydocs"}, "gone": 1}', "recipe.json: name: a value is required"),
}


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES)
def test_a_file_without_a_recipe_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=message):
        recipe_for(resolve(parse(["--recipe", str(file)], None), tmp_path / "pretrain.py"), default="retromae")
