"""`midmask import-mteb` and `export-mteb` on a real store, with files that mteb wrote and with measured systems."""

import json
import shutil
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from midmask.commands import export_mteb, import_mteb
from midmask.errors import UserError
from midmask.evaluation.statistics.ranks import rank_ranges
from midmask.evaluation.statistics.significance import compare
from midmask.exchange.mteb_files import read_result
from midmask.leaderboard.entries import entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.tracking import Tracker, read_runs
from tests.support.dashboards import compared
from tests.support.exchange.mteb_results import CACHE
from tests.support.tracking.stores import QUICK

Typed = Callable[..., str]


@pytest.fixture
def typed(
    tmp_path: Path, empty_store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Typed:
    """What a command prints, on the store in tmp_path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")

    def run(command: ModuleType, *arguments: object) -> str:
        parser = ArgumentParser()
        command.add_flags(parser)
        command.work(parser.parse_intermixed_args([*map(str, arguments), "--tracking-uri", uri(tmp_path)]))
        return capsys.readouterr().out

    return run


def uri(folder: Path) -> str:
    return f"sqlite:///{folder}/mlflow.db"


def shown(folder: Path) -> list[LeaderboardRow]:
    return rows(read_runs(uri(folder)))


def test_imported_results_are_rows(typed: Typed, tmp_path: Path) -> None:
    said = typed(import_mteb, CACHE)
    assert "Models: 1, with 2 results; new on the leaderboard: 1." in said
    assert (
        "No two models have all tasks of one of them" in said
        and "another kind than retrieval: 1 (" in said
        and "MockSTSTask.json" in said
    )
    found = {(row.corpus, row.split): row for row in shown(tmp_path)}
    assert len(found) == 6
    row = found["MockRetrievalTask", "test"]
    assert row.recipe == "sentence-transformers/all-MiniLM-L6-v2" and row.representation == "MTEB"
    assert (row.measures["nDCG@10"], row.measures["R@1000"]) == (0.63093, 1.0)
    assert (row.place.collection, row.place.queries, row.costs, row.protocol) == ("mteb:NA", 0, {}, "")
    assert found["MockMultilingualRetrievalTask fra", "val"].run_id == row.run_id, "a run for each model"
    (entry,) = entries(shown(tmp_path))
    assert entry.name == "sentence-transformers/all-MiniLM-L6-v2 · MTEB" and len(entry.rows) == 6

    assert "new on the leaderboard: 0." in typed(import_mteb, CACHE) and len(read_runs(uri(tmp_path))) == 1
    changed = tmp_path / "results"
    shutil.copytree(CACHE, changed)
    meta = next(changed.rglob("model_meta.json"))
    meta.write_text(meta.read_text().replace("8b3219a9", "f00dfeed"))
    assert "new on the leaderboard: 1." in typed(import_mteb, changed)
    assert len(entries(shown(tmp_path))) == 2, "another revision is another system"


def test_models_are_ranked_over_the_tasks_they_share(typed: Typed, tmp_path: Path) -> None:
    def write(model: str, task: str, value: float) -> None:
        folder = tmp_path / "results" / model / "r1"
        folder.mkdir(parents=True, exist_ok=True)
        part = {"ndcg_at_10": value, "main_score": value, "hf_subset": "default", "languages": ["eng-Latn"]}
        content = {"task_name": task, "dataset_revision": "a", "scores": {"test": [part]}}
        (folder / f"{task}.json").write_text(json.dumps(content))

    for number in range(7):
        write("good", f"T{number}", 0.60 + number / 100)
        write("bad", f"T{number}", 0.30 + number / 50)
    write("good", "OnlyGood", 0.0)
    write("partial", "T0", 0.99)
    said = typed(import_mteb, tmp_path / "results")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("|")]
    assert cells[2:] == [["good", "1", "1-1", "0.6300"], ["bad", "2", "2-2", "0.3600"]]
    assert "Collections that all of these have: 7 (T0 test, " in said and "OnlyGood" not in said
    assert "since they lack one of the collections: partial." in said


def test_nothing_is_imported_where_a_file_is_bad(typed: Typed, tmp_path: Path) -> None:
    bad = tmp_path / "results"
    shutil.copytree(CACHE, bad)
    (next(bad.rglob("model_meta.json")).parent / "Z.json").write_text("{")
    with pytest.raises(UserError, match=r"Z\.json: no JSON"):
        typed(import_mteb, bad)
    assert not read_runs(uri(tmp_path))


def test_exported_systems_are_mtebs_results(typed: Typed, tmp_path: Path) -> None:
    """Values: means over seeds and queries. Ranks: by the tests of the leaderboard."""
    with Tracker(uri(tmp_path), tmp_path, QUICK) as tracker:
        compared.benchmark(tracker)
    systems = ["dupmae", "retromae", "none", "bm25"]
    said = typed(export_mteb, *systems, "--out", tmp_path / "out", "--task", "SQuADRetrieval", "--language", "deu-Latn")
    files = dict(line.split(": ") for line in said.splitlines())
    assert list(files) == systems
    tables = {
        name: [
            compared.per_query({measure: compared.values(name, seed, measure) for measure in compared.MEASURES})
            for seed in (compared.SEEDS if name != "bm25" else (0,))
        ]
        for name in systems
    }
    allowed = rank_ranges(compare(tables, measure="nDCG@10", correction="bonferroni"))
    for rank, name in enumerate(systems, start=1):
        result = read_result(Path(files[name]))
        assert (result.model, result.task, result.dataset_revision) == (name, "SQuADRetrieval", compared.COLLECTION)
        seeds = compared.SEEDS if name != "bm25" else (0,)
        own = result.measures["dev", "default"]
        for measure in compared.MEASURES:
            each = [np.mean([*compared.values(name, seed, measure).values()]) for seed in seeds]
            assert own[measure] == pytest.approx(np.mean(each), abs=1e-12)
        (part,) = json.loads(Path(files[name]).read_text())["scores"]["dev"]
        assert (
            part["main_score"] == own["nDCG@10"] and part["languages"] == ["deu-Latn"] and part["seeds"] == len(seeds)
        )
        assert [part["rank"], part["rank_best"], part["rank_worst"]] == [rank, *allowed[name]]
    assert allowed["dupmae"] == allowed["retromae"] == (1, 2), "a tie, else ranks would tell nothing"
    again = typed(export_mteb, *systems, "--out", tmp_path / "out", "--task", "SQuADRetrieval")
    assert again == said, "the same files"
    assert "new on the leaderboard: 4." in typed(import_mteb, tmp_path / "out")
