"""`midmask compare` on a real store: what is meant, what is refused, and every number against scipy."""

import csv
import io
import shutil
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from midmask.commands import compare
from midmask.errors import UserError
from midmask.tracking import Tracker
from tests.support.dashboards import compared
from tests.support.tracking.stores import QUICK

Store = tuple[str, Mapping[tuple[str, str, int], str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Store:
    """Four systems on dev and test, three of them with three seeds; and (split, system, seed) -> the id of its run."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copy(empty_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    with Tracker(uri, folder, QUICK) as tracker:
        made = {
            (split, *key): run_id
            for split in ("dev", "test")
            for key, run_id in compared.benchmark(tracker, split).items()
        }
        parent = tracker.run("a job", tags={"midmask.step": "job"}, params={})
        tracker.link_cached(made["dev", "none", 1], "none (cached)", tags={}, parent=parent.id)
        parent.finish()
    return uri, {**made, ("", "job", 0): parent.id}


@pytest.fixture
def printed(store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the command prints."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(*arguments: str) -> str:
        parser = ArgumentParser()
        compare.add_flags(parser)
        compare.work(parser.parse_intermixed_args([*arguments, "--tracking-uri", store[0]]))
        return capsys.readouterr().out

    return run


def lines_of(text: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(line["measure"], line["system"]): line for line in csv.DictReader(io.StringIO(text))}


def by_query(system: str, measure: str) -> np.ndarray:
    """Means over the seeds, by query."""
    seeds = compared.SEEDS if system != "bm25" else (0,)
    return np.mean([list(compared.values(system, seed, measure).values()) for seed in seeds], axis=0)


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


@pytest.mark.parametrize("name", ["none", "dense · none", "none · corpus · dense · in_batch · tiny"])
def test_a_name_or_a_part_of_it_means_all_seeds(name: str, printed) -> None:
    found = lines_of(printed("bm25", name, "--on", "squad/dev", "--csv"))
    assert found["nDCG@10", "none"]["seeds"] == "3"


def test_a_run_is_one_seed_by_its_id_its_beginning_or_its_name(printed, store: Store) -> None:
    run_id = store[1]["dev", "none", 1]
    for typed in (run_id, run_id[:10]):
        line = lines_of(printed("bm25", typed, "--on", "squad/dev", "--csv"))["nDCG@10", "none"]
        assert (line["runs"], line["seeds"]) == (run_id, "1")
    named = lines_of(printed("bm25", "evaluate-none-1", "--on", "squad/dev", "--csv"))
    assert named["nDCG@10", "none"]["runs"] == run_id, "the run of this name on test is left out by --on"


def test_a_jobs_run_means_the_evaluation_in_it_also_if_it_only_links_one(printed, store: Store) -> None:
    line = lines_of(printed("bm25", store[1]["", "job", 0], "--csv", "--on", "squad/dev"))["nDCG@10", "none"]
    assert line["runs"] == store[1]["dev", "none", 1]


REFUSED = {
    "an unknown name": (["none", "dupmea"], r"unknown system or run 'dupmea'; did you mean 'dupmae'"),
    "two places": (["none", "bm25"], r"2 sets of queries; choose one with --on squad/dev or --on squad/test"),
    "an unknown place": (["none", "bm25", "--on", "squad/tset"], r"unknown place 'squad/tset'; .*squad test"),
    "the same twice": (["none", "dense · none", "--on", "squad/dev"], r"'none' and 'dense · none' are the same system"),
    "several systems": (["dense", "bm25", "--on", "squad/dev"], r"'dense' means 3 systems there.*'none · corpus"),
    "a folder": ([str(Path(__file__).parent), "bm25"], r"no tracked evaluation leads to this folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_says_what_to_type(case: str, printed) -> None:
    typed, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        printed(*typed)
