"""`midmask compare` and `export-mteb` on real stores: every number against scipy."""

import csv
import io
import json
import shutil
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from midmask.commands import Program
from midmask.commands.tracked import compare, export_mteb
from midmask.errors import UserError
from midmask.exchange.mteb_files import score_name
from midmask.tracking.runs import Tracker
from tests.support.dashboards import compared
from tests.support.tracking.stores import QUICK

Typed = Callable[..., str]
Store = tuple[str, Mapping[tuple[str, str, int], str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Store:
    """Four systems on dev and test, three of them with three seeds; and (split, system, seed) -> the id of its run."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copy(empty_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    with Tracker(uri, folder, QUICK) as tracker:
        own = {split: compared.benchmark(tracker, split) for split in ("dev", "test")}
        made = {(split, *key): run_id for split in own for key, run_id in own[split].items()}
        parent = tracker.run("a job", tags={"midmask.step": "job"}, params={})
        tracker.run("none (cached)", tags={}, params={}, parent=parent.id, cached_run=made["dev", "none", 1])
        parent.finish()
    return uri, {**made, ("", "job", 0): parent.id}


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """What a command prints."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(command: Program, store: str, *arguments: object) -> str:
        parser = ArgumentParser()
        command.add_flags(parser)
        command.work(parser.parse_intermixed_args([*map(str, arguments), "--tracking-uri", store]))
        return capsys.readouterr().out

    return run


@pytest.fixture
def printed(store: Store, run_command: Typed) -> Typed:
    """What `midmask compare` prints."""
    return partial(run_command, compare, store[0])


def lines_of(text: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(line["measure"], line["system"]): line for line in csv.DictReader(io.StringIO(text))}


def seeds_of(system: str) -> tuple[int, ...]:
    return tuple(compared.SEEDS) if system != "bm25" else (0,)


def by_query(system: str, measure: str) -> np.ndarray:
    """Means over the seeds, by query."""
    values = [list(compared.values(system, seed, measure).values()) for seed in seeds_of(system)]
    return np.mean(values, axis=0)


def holm(p_values: list[float]) -> list[float]:
    """Holm 1979, by its definition."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected, highest = [0.0] * len(p_values), 0.0
    for turn, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - turn) * p_values[at]))
        corrected[at] = highest
    return corrected


def test_numbers_are_those_of_scipy_over_means_of_seeds(printed, store: Store) -> None:
    systems = ["dupmae", "retromae", "none", "bm25"]
    found = lines_of(printed(*systems, "--on", "squad/dev", "--csv"))
    assert list(found) == [(measure, system) for measure in compared.MEASURES for system in systems]
    for measure in compared.MEASURES:
        base = by_query("dupmae", measure)
        tests = [stats.ttest_rel(by_query(system, measure), base) for system in systems[1:]]
        corrected = holm([float(test.pvalue) for test in tests])
        for system, test, p in zip(systems[1:], tests, corrected, strict=True):
            line, difference = found[measure, system], by_query(system, measure) - base
            interval = test.confidence_interval(0.95)
            wanted = [difference.mean(), interval.low, interval.high, test.pvalue, p]
            names = ("difference", "low", "high", "p", "p_corrected")
            assert [float(line[name]) for name in names] == pytest.approx(wanted)
            counts = [(difference > 0).sum(), (difference == 0).sum(), (difference < 0).sum()]
            assert [int(line[name]) for name in ("wins", "ties", "losses")] == counts
        means = [np.mean(list(compared.values("none", seed, measure).values())) for seed in compared.SEEDS]
        line = found[measure, "none"]
        assert (float(line["mean"]), float(line["spread"])) == pytest.approx((np.mean(means), np.std(means, ddof=1)))
        assert (line["seeds"], line["queries"]) == ("3", str(len(compared.QUERIES)))
        assert set(line["runs"].split(";")) == {store[1]["dev", "none", seed] for seed in compared.SEEDS}
        assert found[measure, "dupmae"]["p"] == "" and found[measure, "bm25"]["spread"] == ""


def test_a_name_or_a_part_of_it_means_all_seeds_and_a_run_one(printed, store: Store) -> None:
    """A run by its id, its beginning or its name, of which --on leaves out that on test; or by a job that links it."""
    run_id, job = store[1]["dev", "none", 1], store[1]["", "job", 0]
    for typed in ("none", "dense · none", "none · corpus · dense · in_batch · tiny"):
        assert lines_of(printed("bm25", typed, "--on", "squad/dev", "--csv"))["nDCG@10", "none"]["seeds"] == "3"
    for typed in (run_id, run_id[:10], "evaluate-none-1", job):
        line = lines_of(printed("bm25", typed, "--on", "squad/dev", "--csv"))["nDCG@10", "none"]
        assert (line["runs"], line["seeds"]) == (run_id, "1")


REFUSED = {
    "an unknown name": (["none", "dupmea"], r"unknown system or run 'dupmea'; did you mean 'dupmae'"),
    "two places": (["none", "bm25"], r"2 sets of queries; choose one with --on squad/dev or --on squad/test"),
    "an unknown place": (["none", "bm25", "--on", "squad/tset"], r"unknown place 'squad/tset'; .*squad test"),
    "the same twice": (["none", "dense · none", "--on", "squad/dev"], r"'none' and 'dense · none' are the same system"),
    "several systems": (["dense", "bm25", "--on", "squad/dev"], r"'dense' means 3 systems there.*'none · corpus"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_says_what_to_type(case: str, printed) -> None:
    typed, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        printed(*typed)


def test_exported_systems_are_mtebs_results(store: Store, run_command: Typed, tmp_path: Path) -> None:
    """Values: means over seeds and queries."""
    typed = partial(run_command, export_mteb, store[0], "--on", "squad/dev")
    systems = ["dupmae", "retromae", "none", "bm25"]
    said = typed(*systems, "--out", tmp_path / "out", "--task", "SQuADRetrieval", "--language", "deu-Latn")
    files = dict(line.split(": ") for line in said.splitlines())
    assert list(files) == systems
    for name in systems:
        result = json.loads(Path(files[name]).read_text())
        assert (result["task_name"], result["dataset_revision"]) == ("SQuADRetrieval", compared.COLLECTION)
        (part,) = result["scores"]["dev"]
        for measure in compared.MEASURES:
            assert part[score_name(measure)] == pytest.approx(by_query(name, measure).mean(), abs=1e-12)
        assert part["main_score"] == part["ndcg_at_10"] and part["languages"] == ["deu-Latn"]
        assert part["seeds"] == len(seeds_of(name))
    again = typed(*systems, "--out", tmp_path / "out", "--task", "SQuADRetrieval")
    assert again == said, "the same files"
