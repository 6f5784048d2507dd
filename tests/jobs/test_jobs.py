"""Every job by itself: --help, --dry-run, and one line with exit code 2 for what a user gets wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.running import JOBS, Done, run_job
from tests.support.tracked import is_foreign

ALL = sorted(path.stem for path in JOBS.glob("[a-z]*.py") if not is_foreign(path))
RUN = JOBS.parent / "tests" / "support" / "jobs" / "run.trec"
SPACE = ["--space", str(JOBS.parent / "search_spaces" / "mask_ratio.yaml")]


def job(name: str, *arguments: str, home: Path) -> Done:
    own = {"sweep": SPACE, "evaluate_run": [str(RUN)]}
    return run_job(name, *own.get(name, []), *arguments, home=home)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "few"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "a passage"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    return f"beir:{folder}"


def test_the_jobs_of_the_contract_are_there() -> None:
    wanted = {"prepare_corpus", "pretrain", "finetune", "mine_negatives", "evaluate_retriever", "run_recipe", "sweep"}
    assert wanted | {"sweep_mask_ratio", "evaluate_run"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_a_dry_run_prints_configuration_and_steps_and_leaves_nothing(
    name: str, tmp_path: Path, collection: str
) -> None:
    done = job(name, "--dry-run", "--corpus", collection, home=tmp_path)
    assert done.code == 0, done.err
    assert f"corpus.name = {collection}" in done.out
    assert "to do" in done.out
    assert "estimate on this machine" in done.out and "in all" in done.out.split("estimate on")[1]
    assert list(tmp_path.iterdir()) == []


IMPOSSIBLE = {
    "an unknown device": (["--dry-run", "--on", "8xH10"], ["'H10'", "did you mean 'H100'"]),
    "too many workers": (["--dry-run", "--on", "2xT4", "--workers", "3"], ["--workers 3", "3 in all", "2xT4 has 2"]),
    "a shape without a dry run": (["--on", "2xT4"], ["--on 2xT4", "add --dry-run"]),
}


@pytest.mark.parametrize("mistake", IMPOSSIBLE)
def test_what_could_never_run_on_a_cluster_is_refused(mistake: str, tmp_path: Path, collection: str) -> None:
    arguments, words = IMPOSSIBLE[mistake]
    done = job("pretrain", "--corpus", collection, *arguments, home=tmp_path)
    assert done.code == 2
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("error: ") and all(word in last for word in words)


WRONG = {
    "a mistyped field": (["--set", "pretrain.learning_rat=1"], ["pretrain.learning_rat", "did you mean"]),
    "a missing folder": (["--corpus", "beir:/nowhere/at/all"], ["/nowhere/at/all"]),
    "an impossible value": (["--set", "objective.encoder_mask_ratio=1.7"], ["encoder_mask_ratio", "1.7"]),
    "an unknown recipe": (["--recipe", "retromea"], ["'retromea'", "did you mean 'retromae'"]),
    "a mistyped flag": (["--corpsu", "pydocs"], ["--corpsu", "--corpus"]),
}


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.parametrize("name", ["pretrain", "sweep_mask_ratio"])
def test_a_mistake_is_one_line_and_exit_code_2(name: str, mistake: str, tmp_path: Path, collection: str) -> None:
    arguments, words = WRONG[mistake]
    corpus = [] if "--corpus" in arguments else ["--corpus", collection]
    done = job(name, *corpus, *arguments, home=tmp_path)
    lines = done.err.strip().splitlines()
    assert done.code == 2, done.err
    assert len(lines) == 1 and lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


def test_a_process_ends_with_the_same_line_and_code(tmp_path: Path, collection: str) -> None:
    """The other tests run jobs in this process; this one as a user does."""
    arguments = ["--corpus", collection, "--set", "pretrain.stepz=1"]
    command = [sys.executable, str(JOBS / "pretrain.py"), *arguments]
    environment = {
        "PATH": "/usr/bin:/bin",
        "MIDMASK_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == job("pretrain", *arguments, home=tmp_path).err and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("pretrain", "sweep_mask_ratio")])
def test_every_other_job_names_a_mistyped_field(name: str, tmp_path: Path, collection: str) -> None:
    done = job(name, "--corpus", collection, "--set", "pretrain.stepz=1", home=tmp_path)
    assert done.code == 2, done.err
    assert "did you mean 'pretrain.steps'" in done.err and len(done.err.strip().splitlines()) == 1


def test_a_corpus_is_prepared_with_what_is_asked_for_besides(tmp_path: Path, collection: str) -> None:
    asked = ["--spans", "--pseudo-queries", "titles", "--set", "spans.span_length=32"]
    done = job("prepare_corpus", "--dry-run", "--corpus", collection, *asked, home=tmp_path)
    assert done.code == 0, done.err
    assert steps_in(done.out) == ["prepare", "tokenise", "spans", "pseudo_queries"]
    assert "pseudo_queries.source = titles" in done.out and "spans.span_length = 32" in done.out
    alone = job("prepare_corpus", "--dry-run", "--corpus", collection, home=tmp_path)
    assert steps_in(alone.out) == ["prepare"]


@pytest.mark.xdist_group("ray")
def test_what_another_collection_is_read_for_is_made_of_it(ray_local: None, tmp_path: Path, collection: str) -> None:
    other = write_collection(tmp_path / "other")
    asked = ["prepare_corpus", "--corpus", collection, "--pretrain-on", other, "--pseudo-queries", "titles"]
    refused = job(*asked, home=tmp_path)
    assert refused.code == 2 and "--recipe cotmote" in refused.err and "Traceback" not in refused.err
    done = job(*asked, "--recipe", "cotmote", home=tmp_path)
    assert done.code == 0, done.err
    (record,) = (tmp_path / "store" / "pseudo_queries").glob("*/record.json")
    source = Path(json.loads(record.read_text())["inputs"]["corpus"]) / "record.json"
    assert json.loads(source.read_text())["config"]["name"] == other
    assert "pseudo_queries:" in done.out, "examples are shown"


def steps_in(dry_run: str) -> list[str]:
    """The steps that a dry run lists, before its estimate."""
    return [line.split()[2] for line in dry_run.split("steps:\n")[1].split("\n\n")[0].splitlines()]


def test_a_mistyped_source_of_queries_names_the_choices(tmp_path: Path, collection: str) -> None:
    done = job("prepare_corpus", "--corpus", collection, "--pseudo-queries", "title", home=tmp_path)
    assert done.code == 2
    assert (
        len(done.err.strip().splitlines()) == 1 and "choose sentences, titles, neighbours, train, file:PATH" in done.err
    )


def test_a_stage_without_a_teacher_is_named(tmp_path: Path, collection: str) -> None:
    for recipe, arguments, known in (("dupmae", ["--stage", "0"], "With one: 2."), ("retromae", [], "With one: none")):
        done = job("train_teacher", "--corpus", collection, "--recipe", recipe, *arguments, home=tmp_path)
        assert done.code == 2 and known in done.err and "Traceback" not in done.err, done.err
