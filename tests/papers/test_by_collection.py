"""What the middle training read: the figure's numbers against the truth, and when there is nothing to draw."""

from pathlib import Path

import pytest

from midmask.benchmark.results import Results, SystemKey
from midmask_papers.by_collection import collections_figure, panels
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

QUIET = Noise().scaled(1e-6)
TRUTH = {
    dense("none"): 0.10,
    dense("mlm", collection="wiki"): 0.11,
    dense("mlm", collection="squad"): 0.12,
    dense("retromae", collection="wiki"): 0.20,
    dense("retromae", collection="squad"): 0.26,
    dense("retromae", collection="both"): 0.24,
    dense("lexmae", collection="squad"): 0.90,
    SystemKey("bm25", "none", "bm25", "none"): 0.78,
}


def found(noise: Noise = QUIET) -> Results:
    dev = drawn({key: 1 - value for key, value in TRUTH.items()}, noise=noise, corpus="squad", split="dev")
    return results(
        dev,
        drawn(TRUTH, noise=noise, corpus="squad", split="test"),
        drawn({key: value / 2 for key, value in TRUTH.items()}, noise=noise, corpus="cranfield", split="test"),
    )


def test_systems_of_several_collections_on_test_with_their_levels():
    home, elsewhere = panels(found())
    assert (home.corpus, home.split, elsewhere.corpus) == ("squad", "test", "cranfield")
    assert home.collections == ("wiki", "squad", "both") and set(home.values) == {"mlm", "retromae"}
    for panel, factor in ((home, 1.0), (elsewhere, 0.5)):
        means = {(name, read): sum(seeds) / 3 for name, row in panel.values.items() for read, seeds in row.items()}
        expected = {
            (key.system, key.collection): factor * value
            for key, value in TRUTH.items()
            if key.system in ("mlm", "retromae")
        }
        assert means == pytest.approx(expected, abs=1e-5)
        assert panel.levels["none"] == pytest.approx([0.1 * factor] * 3, abs=1e-5)
        assert panel.levels["bm25"] == pytest.approx([0.78 * factor], abs=1e-5)


def test_the_table_has_means_with_the_standard_deviation_of_the_seeds(tmp_path: Path):
    noisy = found(Noise(query=0, system=0, seed=0.02, both=0))
    seeds = noisy.where(system="mlm", collection="wiki", corpus="squad", split="test")
    means = [one.measures["RR@10"] for one in seeds]
    mean = sum(means) / 3
    spread = (sum((value - mean) ** 2 for value in means) / 2) ** 0.5
    assert f"| {mean:.4f} ± {spread:.4f} |" in collections_figure(noisy, tmp_path / "a.png")
    lines = [line for line in collections_figure(found(), tmp_path / "a.png").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2][2] == "0.1000 ± 0.0000" and cells[2][-1] == "—", "what was not trained"
    assert cells[3][3:] == ["0.7800", *(f"{value} ± 0.0000" for value in ("0.2000", "0.2600", "0.2400"))]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    one = Results(result for result in found() if result.key.collection in ("none", "squad"))
    assert collections_figure(one, tmp_path / "b.png") == collections_figure(Results([]), tmp_path / "b.png") == ""
    assert not (tmp_path / "b.png").exists()
