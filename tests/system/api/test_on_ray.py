"""The Python API against jobs and itself on Ray, as docs/python.md and the notebook show it, and into a real server."""

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import midmask
from midmask.api.corpus import text_rows
from midmask.commands.search import upload
from midmask.store.place import Place
from tests.support.api import toy
from tests.support.jobs.running import run_job
from tests.support.postgres import PASSWORD, postgres


@pytest.mark.slow
def test_the_jobs_give_the_same_numbers(corpus: midmask.Corpus, run: midmask.Run, tmp_path, ray_local: None) -> None:
    """Trained and evaluated again by the job, on Ray, in a store of its own."""
    settings = [f"--set={path}={value}" for path, value in toy.SETTINGS.items()]
    flags = ("--corpus", run.recipe.corpus.name, "--recipe", "retromae", "--seed", "5", *settings)
    done = run_job("run_recipe", *flags, "--workers", "1", home=tmp_path)
    assert done.code == 0, done.err
    for split in ("dev", "test"):
        own = midmask.evaluate(run, split=split)
        header, row = done.table()["texts"], done.table()[f"retromae, {split}"]
        assert dict(zip(header[1:], row[1:], strict=True)) == {name: f"{own[name]:.4f}" for name in header[1:]}


def test_the_same_object_moves_to_a_cluster(corpus: midmask.Corpus, run: midmask.Run, tmp_path, ray_local) -> None:
    """The same losses and the same results of a search."""
    there = midmask.train("retromae", corpus, seed=5, settings=toy.SETTINGS, storage=tmp_path, ray=True)
    for name, losses in run.losses.items():
        np.testing.assert_allclose(there.losses[name], losses, rtol=1e-5)
    found = [[hit.doc_id for hit in one.search("anything")] for one in (run, there)]
    assert found[0] == found[1]


DOCS = Path(__file__).resolve().parents[3] / "docs"


def run_in_a_fresh_process(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process without MLflow and Ray's variables, in an empty folder, in which importing Ray fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MIDMASK_", "RAY_"))}
    blocked = "import sys; sys.modules['ray'] = sys.modules['mlflow'] = None\n"
    command = [sys.executable, "-c", blocked + program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def first_block(page: Path) -> str:
    found = re.search(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return found[1]


def test_the_first_block_trains_searches_and_compares(tmp_path: Path) -> None:
    done = run_in_a_fresh_process(first_block(DOCS / "python.md"), tmp_path)
    assert done.returncode == 0, done.stderr
    *hits, model = [line for line in done.stdout.splitlines() if line and line[0] not in "|B"]
    assert len(hits) == 3 and all(re.match(r"-?\d+\.\d\d  \w", hit) for hit in hits)
    assert "| a retromae |" in done.stdout and "| b bm25     |" in done.stdout
    assert (Path(model) / "model.safetensors").is_file() and Path(model).is_relative_to(tmp_path / "midmask-store")


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Its cells one after the other, as a kernel would run them, without what a notebook server needs."""
    cells = json.loads((DOCS / "first_steps.ipynb").read_text("utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = run_in_a_fresh_process(program, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with postgres() as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        yield found


def test_a_run_is_uploaded(run: midmask.Run, address: str) -> None:
    documents = toy.DOCUMENTS
    assert run.upload(address, "tuned", check=30) == midmask.Upload(documents, documents, 30, 30)
    assert run.upload(address, "tuned", check=0, progress=False) == midmask.Upload(documents, 0, 0, 0)


def test_a_model_folder_is_uploaded_from_the_shell(run: midmask.Run, address: str, tmp_path: Path, capsys) -> None:
    import psycopg

    rows = text_rows(toy.texts(), None, None, toy.queries(), range(toy.DOCUMENTS), None)
    rows.write(Place(str(tmp_path / "texts")))
    parser = ArgumentParser()
    upload.add_flags(parser)
    words = [str(run.model), "--corpus", f"beir:{tmp_path / 'texts'}", "--storage", str(tmp_path / "store")]
    words += ["--table", "shell", "--check", "50", "--to"]
    with pytest.raises(midmask.UserError, match="Connection refused"):
        upload.work(parser.parse_args([*words, "postgresql://postgres@127.0.0.1:1/postgres"]))
    assert not (tmp_path / "store").exists(), "vectors were computed before the server was asked"
    flags = parser.parse_args([*words, address])
    upload.work(flags)
    printed = capsys.readouterr()
    assert "shell: 80 passages, 80 of them written by this upload" in printed.out
    assert "equal lists of 10: 50 of 50 queries" in printed.out
    assert PASSWORD not in printed.out + printed.err
    with psycopg.connect(address, autocommit=True) as link:
        link.execute("UPDATE shell SET dense = (SELECT dense FROM shell ORDER BY doc_id LIMIT 1)")
    with pytest.raises(midmask.UserError, match=r"queries find other passages there .*DROP TABLE shell"):
        upload.work(flags)
