"""A job plans once: it reads its collection as often for many trials or cells as for one."""

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


def sweep(home: Path, ratios: list[float]) -> list[str]:
    space = {
        **{"name": "few", "recipe": "retromae", "search": "grid", "baselines": ["none", "mlm"]},
        "parameters": {"objective.encoder_mask_ratio": {"values": ratios}},
    }
    (home / "few.yaml").write_text(yaml.safe_dump(space))
    return ["sweep", "--space", str(home / "few.yaml")]


JOBS = {
    "recipe": lambda home: ["run_recipe", "--recipe", "mlm"],
    "sweep of one point": lambda home: sweep(home, [0.3]),
    "sweep of five points": lambda home: sweep(home, [0.1, 0.2, 0.3, 0.4, 0.5]),
    "benchmark of one system": lambda home: ["benchmark_middle_training", "--systems", "mlm", "--seeds", "0"],
    "benchmark of three systems": lambda home: ["benchmark_middle_training", "--systems", "none,mlm,retromae"],
}


@pytest.mark.parametrize("job", JOBS)
def test_a_dry_run_reads_its_collection_once(job: str, tmp_path: Path) -> None:
    collection = write_collection(tmp_path / "words")
    name, *flags = JOBS[job](tmp_path)
    with opens(tmp_path / "words", tmp_path / "words" / "qrels") as counts:
        done = run_job(name, *flags, "--corpus", collection, "--dry-run", home=tmp_path)
    assert done.code == 0, done.err[-2000:]
    assert counts.keys() == FILES and set(counts.values()) == {AT_MOST}, counts
