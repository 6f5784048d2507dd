"""Plots of sweeps: what is drawn where, read back from matplotlib's own objects."""

from pathlib import Path

import pytest

from midmask.leaderboard.sweep_axes import band
from midmask.leaderboard.sweep_result import parse_sweep
from midmask.sweep import plots
from tests.support.cluster.swept import decoder, sizes


def drawn_lines(axes) -> dict[str, list[tuple[float, float]]]:
    """Label -> places, of the lines that the legend names."""
    return {
        str(line.get_label()): list(zip(*line.get_data(), strict=True))
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    }


def test_a_line_for_each_choice_of_the_others_over_the_parameter_with_most_values() -> None:
    (axes,) = plots.draw_lines(parse_sweep(decoder())).axes
    assert axes.get_xlabel() == "ratio" and axes.get_ylabel() == "nDCG@10 on pydocs dev"
    assert drawn_lines(axes) == {
        "decoding enhanced": [(0.15, 0.12), (0.5, 0.15), (0.7, 0.14)],
        "decoding basic, layers 1": [(0.15, 0.1), (0.5, 0.11), (0.7, 0.13)],
        "decoding basic, layers 2": [(0.15, 0.08), (0.5, 0.1), (0.7, 0.12)],
    }
    drawn = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (drawn.y0, drawn.y1) == pytest.approx((0.13, 0.15)), "the noise floor hangs below the best"
    small = {**decoder(), "objectives": [{"measure": "nDCG@10", "mode": "min"}]}
    assert band(parse_sweep(small)) == pytest.approx((0.15, 0.17)), "and above it where small is good"
    (axes,) = plots.draw_lines(parse_sweep(sizes())).axes
    across = drawn_lines(axes)["lexical none"]
    assert [value for _, value in across] == [0.12, 0.12], "points without the parameter"


def test_the_front_is_a_line_by_bytes_and_the_rest_is_beaten() -> None:
    (axes,) = plots.draw_pareto(parse_sweep(sizes())).axes
    front = drawn_lines(axes)["front"]
    assert len(front) == 9 and front == sorted(front) and drawn_lines(axes)["beaten"] == [(512.0, 0.12)]


def test_what_cannot_be_drawn_is_left_out(tmp_path: Path) -> None:
    lone = {**decoder(), "importance": None, "noise_floor": None}
    lone["points"] = [point for point in lone["points"] if point["label"] == lone["best"]]
    assert [path.name for path in plots.draw(parse_sweep(lone), tmp_path)] == ["points.png"]
    names = [path.name for path in plots.draw(parse_sweep(sizes()), tmp_path)]
    assert names == ["points.png", "lines.png", "pareto.png"]
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
