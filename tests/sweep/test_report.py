"""`sweep.json`, what a sweep says of its winner, and its charts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from midmask.errors import UserError
from midmask.evaluation.statistics.significance import Comparison
from midmask.experiment.report import System, comparison_table
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.sweep import figures
from midmask.sweep.conclusion import (
    FEW_QUERIES,
    final_comparison,
    noise_sentence,
    outcome,
    trials_table,
    winner_sentence,
)
from midmask.sweep.sweep_file import SweepParameter, SweepResult, parse_sweep
from tests.support.dashboards.swept import told


def parameter(path: str, values: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": path, "label": path.rsplit(".", 1)[-1], "log": False, "constant": len(values) == 1, **fields}


def point(label: str, parameters: dict[str, Any], value: float, **fields: Any) -> dict[str, Any]:
    standing = {"difference": 0.0, "p_corrected": 0.5, "detectable": 0.02, "distinguishable": value < 0.12}
    return {
        "label": label, "mark": None, "parameters": parameters,
        "run": "", "complete": True, "probes": [], "values": {"nDCG@10": value}, "measures": {"nDCG@10": value},
        "costs": {}, "front": False, "to_best": standing, **fields,
    }  # fmt: skip


def decoder() -> dict[str, Any]:
    """Data of a sweep in the shape of `sweep.json`: enhanced decoding, and basic with one to three layers, at three
    ratios; the best is enhanced at 0.5, with 0.15."""
    values = {("enhanced", None): (0.12, 0.15, 0.14), ("basic", 1): (0.1, 0.11, 0.13), ("basic", 2): (0.08, 0.1, 0.12)}
    points = []
    for (decoding, layers), own in values.items():
        for ratio, value in zip((0.15, 0.5, 0.7), own, strict=True):
            chosen = {"o.decoding": decoding, **({"o.layers": layers} if layers else {}), "o.ratio": ratio}
            points.append(point(str(chosen), chosen, value))
    best = points[1]
    best |= {"to_best": None, "front": True}
    pruned = {"o.decoding": "basic", "o.layers": 3, "o.ratio": 0.5}
    return {
        "format": 1, "name": "decoder_depth", "study": "s", "fingerprint": "f", "recipe": "retromae",
        "corpus": "pydocs", "search": "grid", "objectives": [{"measure": "nDCG@10", "mode": "max"}],
        "parameters": [
            parameter("o.decoding", ["enhanced", "basic"]),
            parameter("o.layers", [1, 2, 3]),
            parameter("o.ratio", [0.15, 0.5, 0.7]),
        ],
        "points": [*points, point("pruned", pruned, 0.9, complete=False, values={})], "best": best["label"],
        "noise_floor": {"value": 0.02, "seed_spread": 0.01, "seed_degrees": 6},
        "sentences": [], "floor": "none",
        "systems": [
            {"label": "retromae 0.5", "dev": [0.15], "test": [0.14], "to_floor": {}},
            {"label": "none", "dev": [0.1, 0.12], "test": [0.1], "to_floor": {}},
        ],
    }  # fmt: skip


def over(sweep: SweepResult, label: str) -> SweepParameter:
    return next(one for one in sweep.parameters if one.label == label)


def test_a_line_for_each_choice_of_the_others() -> None:
    sweep = parse_sweep(decoder())
    figure = figures.lines(sweep, over(sweep, "ratio"))
    assert figure.layout.xaxis.title.text == "ratio" and figure.layout.yaxis.title.text == "nDCG@10 on pydocs dev"
    assert {line.name: list(zip(line.x, line.y, strict=True)) for line in figure.data} == {
        "decoding enhanced": [(0.15, 0.12), (0.5, 0.15), (0.7, 0.14)],
        "decoding basic, layers 1": [(0.15, 0.1), (0.5, 0.11), (0.7, 0.13)],
        "decoding basic, layers 2": [(0.15, 0.08), (0.5, 0.1), (0.7, 0.12)],
    }
    (noise,) = figure.layout.shapes
    assert (noise.y0, noise.y1) == pytest.approx((0.13, 0.15)), "the noise floor hangs below the best"
    sweep = parse_sweep(told())
    across = figures.lines(sweep, over(sweep, "N")).layout.shapes[0]
    assert (across.y0, across.y1, across.line.dash) == (0.4, 0.4, "dash"), "points without the parameter"


def test_the_front_is_a_line_by_bytes_and_the_rest_is_beaten() -> None:
    front, points = figures.pareto(parse_sweep(told()), "bytes_per_passage").data
    joined = list(zip(front.x, front.y, strict=True))
    shown = {True: [], False: []}
    for one in told()["points"][:-1]:
        shown[one["front"]].append((one["values"]["bytes_per_passage"], one["values"]["nDCG@10"]))
    assert joined == sorted(shown[True]) and (512.0, 0.4) in shown[False]
    assert {*zip(points.x, points.y, strict=True)} - {*joined} == {*shown[False]}


def test_a_choice_of_none_is_a_value_too() -> None:
    every = parse_sweep(told())
    words = figures.lines(every, over(every, "words from")).data
    assert {value for line in words for value in line.x} == {"logits", "none"}


def written(data: dict[str, Any]) -> dict[str, Any]:
    return parse_sweep(json.loads(json.dumps(data))).model_dump(mode="json")


def test_what_was_read_is_written_unchanged_down_to_the_type_of_each_number() -> None:
    typed = [point(str(value), {"o.flag": value}, 0.1) for value in (True, 1, 1.5, "1", None)]
    for data in (told(), {**decoder(), "systems": told()["systems"], "points": typed}):
        assert json.dumps(written(data), sort_keys=True) == json.dumps(data, sort_keys=True)


def test_a_mean_is_over_the_seeds_of_a_split() -> None:
    assert [system.means["dev"] for system in parse_sweep(decoder()).systems] == pytest.approx([0.15, 0.11])


def test_a_field_of_a_later_version_is_left_out_but_another_format_is_refused() -> None:
    assert "later" not in written({**told(), "later": 1})
    for number in (2, None):
        with pytest.raises(UserError, match=r"sweep.json.format"):
            parse_sweep({**decoder(), "format": number})
    with pytest.raises(UserError, match=r"sweep.json.points.0.label: a value is required"):
        parse_sweep({**decoder(), "points": [{}]})


MEASURE = "nDCG@10"
SPLITS = ("dev", "test")


def evaluated(folder: Path, split: str, values: np.ndarray) -> Artifact:
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
    compared = systems(tmp_path, {"dev": SHIFTS[dev], "test": SHIFTS[test]}, {"dev": 80, "test": 93})
    said = winner_sentence(concluded(compared))
    if dev == test:
        assert said.startswith(f"winner {SAID[test]} none, on test and on dev.")
    else:
        assert said.startswith(f"On test, winner {SAID[test]} none; on dev, where it was chosen, it {SAID[dev]} it.")
    others = set(SAID.values()) - {SAID[dev], SAID[test]}
    assert not any(words in said for words in others)


def concluded(compared: list[System]) -> SweepResult:
    """The result of a sweep that ends with this comparison."""
    return parse_sweep(decoder()).model_copy(update=final_comparison(compared, MEASURE))


def test_its_numbers_are_those_of_the_table_and_of_scipy(tmp_path: Path) -> None:
    """The case that was printed: within the noise on dev, and a clear loss on test in the table below."""
    found = systems(tmp_path, {"dev": -0.04, "test": -0.0885}, {"dev": 60, "test": 93})
    sweep = concluded(found)
    said = winner_sentence(sweep)
    line = next(line for line in comparison_table(found, "none", MEASURE, []).splitlines() if "winner" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert "-0.0885" in cells and "-0.0885" in said
    assert any(f"p = {cell}, 93 queries" in said for cell in cells), "Holm's p, as in the table"
    for split in SPLITS:
        own, base = (np.mean([values(one) for one in system.evaluations[split]], axis=0) for system in found[:2])
        low, high = stats.ttest_rel(own, base).confidence_interval()
        assert f"{split} {own.mean():.4f}, {(own - base).mean():+.4f} [95% interval {low:+.4f}, {high:+.4f}]" in said
    assert "Holm over 2 comparisons" in said and "2 fine-tuning seeds" in said
    assert winner_sentence(sweep, ["test"]).count("95% interval") == 1


def test_the_report_has_a_row_for_every_trial() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in trials_table(parse_sweep(told())).splitlines()]
    assert rows[0] == [
        *("words from", "CLS width", "N", "probe 1", "nDCG@10", "bytes_per_passage", "to the best", "p (Holm)", "end")
    ]
    assert rows[-1] == ["logits", "16", "16", "0.1000", "—", "—", "—", "—", "pruned"]
    assert rows[-2][:3] == ["none", "—", "—"] and rows[-2][-1] == "complete, CLS:128"
    assert len(rows) == 2 + len(told()["points"])


def values(artifact: Artifact) -> list[float]:
    folder = Path(artifact.place.uri) / "per_query"
    return list(pq.read_table(next(folder.iterdir()))["value"].to_pylist())


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
    ("apart", "said"),
    [
        ([False], "The other trial cannot be told from the best"),
        ([False, True, False], "2 of the other 3 complete trials cannot be told from the best"),
        ([True], "Every other trial is significantly worse"),
    ],
)
def test_the_noise_floor_counts_the_trials_that_it_swallows(apart: list[bool], said: str) -> None:
    data = decoder()
    others = [point for point in data["points"][: 1 + len(apart)] if point["to_best"]]
    data["points"] = [data["points"][1], *others[: len(apart)]]
    for point, differs in zip(data["points"][1:], apart, strict=True):
        point["to_best"]["distinguishable"] = differs
    assert said in noise_sentence(parse_sweep(data))
