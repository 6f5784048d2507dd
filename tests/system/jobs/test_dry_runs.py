"""Dry runs of jobs with many trials or cells: what they print, that they leave nothing, and that they plan once."""

from pathlib import Path

import pytest
import yaml

from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.running import run_job
from tests.support.opens import opens

FILES = {"corpus.jsonl", "queries.jsonl", "train.tsv", "dev.tsv", "test.tsv"}

AT_MOST = 7
"""Opens of a file by a dry run: its contents are fingerprinted once; the others look at its first rows, for its form,
its layout, its splits and its size.
"""
SPACE = {
    "name": "few", "recipe": "retromae", "search": "grid", "baselines": ["none", "mlm"],
    "parameters": {"objective.encoder_mask_ratio": {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}},
}  # fmt: skip


@pytest.mark.parametrize(
    "job",
    [
        ("sweep", "--space", "few.yaml"),
        ("benchmark_middle_training", "--systems", "none,mlm,retromae"),
        ("sweep_decoder_depth",),
        ("sweep_sparse_topn",),
        ("sweep_index",),
    ],
    ids=lambda job: job[0],
)
def test_a_dry_run_reads_its_collection_once_and_leaves_nothing(
    job: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many points or systems there are."""
    (home := tmp_path / "home").mkdir()
    (tmp_path / "few.yaml").write_text(yaml.safe_dump(SPACE))
    monkeypatch.chdir(tmp_path)
    corpus = write_collection(tmp_path / "words")
    with opens(tmp_path / "words", tmp_path / "words" / "qrels") as counts:
        done = run_job(*job, "--corpus", corpus, "--dry-run", home=home)
    assert done.code == 0, done.err[-2000:]
    assert f"corpus.name = {corpus}" in done.out and "to do" in done.out
    assert "in all" in done.out.split("estimate on this machine")[1]
    assert list(home.iterdir()) == []
    assert counts.keys() == FILES and set(counts.values()) == {AT_MOST}, counts
