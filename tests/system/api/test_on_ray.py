"""The Python API against jobs and against itself on Ray."""

from pathlib import Path

import numpy as np

import midmask
from tests.support.api import toy
from tests.support.jobs.running import run_job


def test_the_jobs_give_the_same_numbers(
    corpus: midmask.Corpus, run: midmask.Run, tmp_path: Path, ray_local: None
) -> None:
    """Trained and evaluated again by the job, on Ray, in a store of its own."""
    settings = [f"--set={path}={value}" for path, value in toy.SETTINGS.items()]
    flags = ("--corpus", run.recipe.corpus.name, "--recipe", "retromae", "--seed", "5", *settings)
    done = run_job("run_recipe", *flags, "--workers", "1", home=tmp_path)
    assert done.code == 0, done.err
    for split in ("dev", "test"):
        own = midmask.evaluate(run, split=split)
        header, row = done.table()["texts"], done.table()[f"retromae, {split}"]
        assert dict(zip(header[1:], row[1:], strict=True)) == {name: f"{own[name]:.4f}" for name in header[1:]}


def test_the_same_object_moves_to_a_cluster(
    corpus: midmask.Corpus, run: midmask.Run, tmp_path: Path, ray_local: None
) -> None:
    """The same losses and the same results of a search."""
    there = midmask.train("retromae", corpus, seed=5, settings=toy.SETTINGS, storage=tmp_path, ray=True)
    for name, losses in run.losses.items():
        np.testing.assert_allclose(there.losses[name], losses, rtol=1e-5)
    found = [[hit.doc_id for hit in one.search("anything")] for one in (run, there)]
    assert found[0] == found[1]
