"""Jobs by themselves: the wrong Python, a whole dry run, mistakes as one line, and credentials that appear nowhere."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.corpora.collections import write_beir
from tests.support.jobs.running import ENVIRONMENT, FLAGS, JOBS, found_below, found_in, outcome, run_job, tracking_uri


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> str:
    write_beir(folder := tmp_path_factory.mktemp("data") / "few")
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
        ["--workers 3", "room for 2"],
    ),
    "a shape without a dry run": ("pretrain", ["--on", "2xT4"], ["--on 2xT4", "add --dry-run"]),
    "a stage without a teacher": ("train_teacher", ["--recipe", "dupmae", "--stage", "0"], ["With one: 2."]),
    "a collection that nothing reads": ("prepare_corpus", ["--pretrain-on", "beir:x"], ["--recipe cotmote"]),
    "an unknown source of queries": ("pretrain", ["--set", "pseudo_queries.source=title"], ["sentences, titles"]),
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


def test_a_middle_training_begins_with_what_it_reads_besides(tmp_path: Path, collection: str) -> None:
    asked = ["--recipe", "cotmote", "--set", "pseudo_queries.source=titles"]
    done = run_job("pretrain", "--dry-run", "--corpus", collection, *asked, home=tmp_path)
    assert done.code == 0, done.err
    listed = done.out.split("steps:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[2] for line in listed] == ["prepare", "tokenise", "pseudo_queries", "pretrain"]
    assert "pseudo_queries.source = titles" in done.out


def test_run_files_may_stand_before_and_after_flags(tmp_path: Path, collection: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"q2 Q0 d1 1 1.0 {name}\n")
    flags = ["--dry-run", "--corpus", collection, "--split", "test"]
    done = run_job("evaluate_run", str(tmp_path / "one"), *flags, str(tmp_path / "two"), home=tmp_path)
    assert done.code == 0 and done.out.count("to do   read_run") == 2, done.err


ENTRY = Path(__file__).resolve().parents[2] / "jobs" / "_entry.py"
BARE = [sys.executable, "-S"]  # a Python without site-packages: neither midmask nor what it needs


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    shutil.copy(ENTRY, tmp_path / "jobs")
    path = tmp_path / "jobs" / "work.py"
    path.write_text('from _entry import run\n\nrun("pretrain")\n')
    return path


def said(*command: str | Path, path: Path | None = None) -> tuple[int, list[str]]:
    environment = {"PATH": "/usr/bin:/bin"} | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.stdout
    return done.returncode, done.stderr.splitlines()


def test_without_midmask_one_line_says_so(job: Path) -> None:
    code, lines = said(*BARE, job)
    assert code == 2 and len(lines) == 1 and sys.executable in lines[0] and "lacks midmask" in lines[0]


def test_old_pythons_can_read_the_entry() -> None:
    """A syntax error would be a traceback where one line is promised."""
    ast.parse(ENTRY.read_text(), feature_version=(3, 6))


PLANTED = [
    tracking_uri(1),
    "s3://AKIAPLANTEDKEY01:plantedSecret/Key+02@bucket/place",
    "s3://bucket/x?secret_access_key=plantedSecret/Key+02&sig=plantedSignature06",
    "account_key=plantedAccount05==",
]

TRACKED = """
import json
from pathlib import Path
from midmask.app.driver import ending
from midmask.app.job import run
from midmask.tracking.lineage import Dataset, TrackedModel
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience

def work(options, flags):
    planted = json.loads(Path(flags.planted).read_text())
    with Tracker(options.tracking_uri, options.home, Patience(flush=0.02)) as tracker:
        for text in planted:
            with tracker.run(f"a {text}", tags={"where": text}, params={"where": text, "all": [text]}) as run:
                run.log_text(text, "notes/a.txt")
                run.describe(text)
                run.log_inputs([Dataset("squad", "d", text, "train")])
                run.log_output_model(TrackedModel("m", "pretrain", text[:3], "encoder", text, {"where": text}), 1)
        print(ending(options, "tracked", [], {}))

run(work, "Tracks.", lambda parser: parser.add_argument("--planted"))
"""


def test_what_is_tracked_names_no_credentials(tmp_path: Path, empty_store: Path) -> None:
    """Every way into the store."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(empty_store, home / "mlflow.db")
    (tmp_path / "track.py").write_text(TRACKED)
    (tmp_path / "planted.json").write_text(json.dumps(PLANTED))
    command = [sys.executable, str(tmp_path / "track.py"), "--planted", str(tmp_path / "planted.json")]
    code, said = outcome(*command, home=home, MLFLOW_TRACKING_URI=f"sqlite:///{home}/mlflow.db")
    assert code == 0 and found_in(said) == [], said.decode()
    assert found_below([home]) == {}


@pytest.mark.parametrize("flag", FLAGS)
def test_credentials_in_a_flag_are_refused_in_one_line(flag: str, tmp_path, monkeypatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    done = run_job("pretrain", flag, FLAGS[flag], home=tmp_path)
    (line,) = (done.out + done.err).splitlines()
    assert done.code == 2 and line.startswith(f"error: {flag} ")
    assert ("MLFLOW_TRACKING_URI" if flag == "--tracking-uri" else "AWS_SECRET_ACCESS_KEY") in line
    assert found_in(line.encode()) == [] and list(tmp_path.iterdir()) == []
