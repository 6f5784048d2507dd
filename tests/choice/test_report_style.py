"""Contrasts of the page's colours by WCAG's formula, and that the style sheet uses what is defined."""

import re

import pytest

from midmask.choice.report_style import DARK, LIGHT, style_sheet

TEXT_ON = (
    *(("ink", "paper"), ("ink", "panel"), ("ink", "mark"), ("quiet", "paper"), ("quiet", "panel")),
    *(("accent", "paper"), ("accent", "panel")),
)
"""(colour of a text, colour that it stands on)."""

SHAPE_ON = (("accent", "paper"), ("front", "paper"), ("base", "paper"), ("other", "paper"))
"""(colour of points, bars and lines that carry meaning, colour that they stand on)."""


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_shapes_can_be_told_from_what_they_stand_on(palette: dict[str, str]) -> None:
    for text, ground in TEXT_ON:
        assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for shape, ground in SHAPE_ON:
        assert contrast(palette[shape], palette[ground]) >= 3, (shape, ground)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005), "as known"


def test_both_palettes_have_the_colours_that_the_style_sheet_uses() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", style_sheet()))
    assert used == set(LIGHT) == set(DARK)
    assert "url(" not in style_sheet() and "@import" not in style_sheet()
