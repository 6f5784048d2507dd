"""What a sweep says of its winner: both splits, with the numbers of the table below, and no claim beyond them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from midmask.artifact import Artifact, Place
from midmask.evaluation.statistics.seeds import SeedSpread
from midmask.evaluation.statistics.significance import Comparison
from midmask.experiment.report import System, against, comparison_table
from midmask.sweep.verdict import FEW_QUERIES, floor_sentence, outcome, sentence

MEASURE = "nDCG@10"
SPLITS = ("dev", "test")


def evaluated(folder: Path, split: str, values: np.ndarray) -> Artifact:
    """An evaluation's artifact with these values per query."""
    (folder / "per_query").mkdir(parents=True)
    ids = [f"q{number:04d}" for number in range(len(values))]
    rows = {"query_id": ids, "measure": [MEASURE] * len(ids), "value": values.tolist()}
    pq.write_table(pa.table(rows), folder / "per_query" / f"words.{split}.parquet")
    result = {"corpus": "words", "split": split, "queries": len(ids), "measures": {MEASURE: float(values.mean())}}
    return Artifact(Place(str(folder)), {"result": result})


def systems(folder: Path, shifts: dict[str, float], counts: dict[str, int]) -> list[System]:
    """A winner that differs from `none` by these shifts on average, `none`, and one more system; two seeds each."""
    rng = np.random.default_rng(0)
    made: dict[str, dict[str, list[Artifact]]] = {name: {} for name in ("winner", "none", "mlm")}
    for split in SPLITS:
        base = rng.uniform(0.3, 0.7, counts[split])
        noise = rng.normal(0, 0.2, counts[split])
        noise -= noise.mean()
        own = {"winner": base + noise + shifts[split], "none": base, "mlm": base + rng.normal(0, 0.2, counts[split])}
        for name, values in own.items():
            made[name][split] = [
                evaluated(folder / f"{name}-{split}-{seed}", split, values + 0.01 * (2 * seed - 1)) for seed in (0, 1)
            ]
    return [System(name, evaluations) for name, evaluations in made.items()]


SHIFTS = {"better": 0.1, "worse": -0.1, "equal": -0.01}
SAID = {"better": "is better than", "worse": "is worse than", "equal": "is within the noise of"}


@pytest.mark.parametrize(("dev", "test"), [("better", "better"), ("equal", "worse"), ("worse", "equal")])
def test_the_sentence_says_of_each_split_what_its_own_queries_say(tmp_path: Path, dev: str, test: str) -> None:
    found = systems(tmp_path, {"dev": SHIFTS[dev], "test": SHIFTS[test]}, {"dev": 80, "test": 93})
    compared = {split: against(found, "none", split, MEASURE) for split in SPLITS}
    said = sentence("winner", "none", MEASURE, compared)
    if dev == test:
        assert said.startswith(f"winner {SAID[test]} none, on test and on dev.")
    else:
        assert said.startswith(f"On test, winner {SAID[test]} none; on dev, where it was chosen, it {SAID[dev]} it.")
    others = set(SAID.values()) - {SAID[dev], SAID[test]}
    assert not any(words in said for words in others)


def test_its_numbers_are_those_of_the_table_and_of_scipy(tmp_path: Path) -> None:
    """The case that was printed: within the noise on dev, and a clear loss on test in the table below."""
    found = systems(tmp_path, {"dev": -0.04, "test": -0.0885}, {"dev": 60, "test": 93})
    compared = {split: against(found, "none", split, MEASURE) for split in SPLITS}
    said = sentence("winner", "none", MEASURE, compared)
    line = next(line for line in comparison_table(found, "none", MEASURE, []).splitlines() if "winner" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert "-0.0885" in cells and "-0.0885" in said
    assert any(f"p = {cell}, 93 queries" in said for cell in cells), "Holm's p, as in the table"
    for split in SPLITS:
        own, base = (np.mean([values(one) for one in system.evaluations[split]], axis=0) for system in found[:2])
        low, high = stats.ttest_rel(own, base).confidence_interval()
        assert f"{split} {own.mean():.4f}, {(own - base).mean():+.4f} [95% interval {low:+.4f}, {high:+.4f}]" in said
    assert "Holm over 2 comparisons" in said and "2 fine-tuning seeds" in said


def values(artifact: Artifact) -> list[float]:
    folder = Path(artifact.place.uri) / "per_query"
    return list(pq.read_table(next(folder.iterdir()))["value"].to_pylist())


def test_too_few_queries_decide_nothing_on_their_split_alone(tmp_path: Path) -> None:
    found = systems(tmp_path, {"dev": 0.3, "test": 0.3}, {"dev": FEW_QUERIES - 1, "test": FEW_QUERIES})
    said = sentence("winner", "none", MEASURE, {split: against(found, "none", split, MEASURE) for split in SPLITS})
    assert said.startswith("On test, winner is better than none; on dev") and "too few" in said.partition("; ")[2]


@pytest.mark.parametrize("difference", [-0.1, 0.0, 0.1])
@pytest.mark.parametrize("significant", [True, False])
@pytest.mark.parametrize("queries", [FEW_QUERIES - 1, FEW_QUERIES])
def test_an_outcome_needs_queries_significance_and_a_sign(difference: float, significant: bool, queries: int) -> None:
    figures = dict.fromkeys(("low", "high", "p", "p_corrected", "effect", "detectable", "mean", "baseline_mean"), 0.0)
    row = Comparison("a", "b", MEASURE, queries, 1, difference=difference, significant=significant, **figures)
    decided = queries >= FEW_QUERIES and significant
    assert (outcome(row) in ("better", "worse")) == decided
    if decided and difference:
        assert (outcome(row) == "better") == (difference > 0)


@pytest.mark.parametrize(
    ("shifts", "said"),
    [
        ([0.0], "The other trial cannot be told from the best"),
        ([0.0, -0.1, 0.001], "2 of the other 3 complete trials cannot be told from the best"),
        ([-0.1], "Every other trial is significantly worse"),
    ],
)
def test_the_noise_floor_counts_the_trials_that_it_swallows(shifts: list[float], said: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    best = rng.uniform(0.3, 0.7, 90)
    made = {"best": best}
    for number, shift in enumerate(shifts):
        noise = rng.normal(0, 0.1, len(best))
        made[f"trial {number}"] = best + noise - noise.mean() + shift
    found = [System(name, {"dev": [evaluated(tmp_path / name, "dev", values)]}) for name, values in made.items()]
    assert said in floor_sentence(against(found, "best", "dev", MEASURE), SeedSpread(0.0, 0), 1)
