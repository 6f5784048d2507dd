"""Gain against cost as an SVG picture: each system's rank at its point, its interval, and the Pareto front.

Names stand beside the picture, by rank. Its colours are those of the page that it stands in (`var(--ink)`), light or
dark.
"""

import io
import math
import re
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from midmask.choice.verdict import SystemEstimate, Verdict
from midmask.core.words import duration
from midmask.evaluation.statistics.ranks import on_front

INKS = {name: f"#{number:06x}" for number, name in enumerate(("ink", "quiet", "line", "paper", "accent", "base"), 1)}
INKS |= {"front": "#000007", "other": "#000008"}
"""The page's colours -> what Matplotlib is given in their place."""

UNIT = 72
"""Of the picture, a CSS pixel on a wide page; an inch to Matplotlib has so many."""

SPAN = 300
"""Times that are shorter than the longest by more than this share the left end: BM25 takes seconds where trainings take
hours, and the trainings are what the picture is to tell apart.
"""

MINUTE, HOUR, DAY = 60, 3600, 86400
TICKS = (
    *(1, 2, 5, 10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, 2 * DAY, 4 * DAY, 8 * DAY, 16 * DAY, 32 * DAY),
)


def front(verdict: Verdict) -> list[SystemEstimate]:
    """The finalists that no other beats in gain without computing for longer, the fastest first."""
    systems = verdict.finalists
    kept = on_front([(row.made_gain, row.seconds) for row in systems], ["max", "min"])
    return sorted((row for row, is_on in zip(systems, kept, strict=True) if is_on), key=lambda row: row.seconds)


def picture(verdict: Verdict, systems: Sequence[SystemEstimate], width: int, height: int) -> str:
    """What stands in an `<svg>` of this width and height; equal verdicts give equal texts."""
    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{width}", "font.size": 13}):
        figure = Figure(figsize=(width / UNIT, height / UNIT), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        _draw(axes, verdict, systems, most_ticks=width // 90)
        figure.savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    body = re.sub(r'<g id="[^"]*">', "<g>", text[text.index('<g id="figure_1">') : text.rindex("</svg>")])
    for name, ink in INKS.items():
        body = body.replace(ink, f"var(--{name})")
    return body


def _draw(axes: Axes, verdict: Verdict, systems: Sequence[SystemEstimate], most_ticks: int) -> None:
    longest = max(1.0, *(row.seconds for row in systems))
    trained = [max(row.seconds, 1.0) for row in systems if SPAN * max(row.seconds, 1.0) >= longest]
    axes.set_xscale("symlog", linthresh=min(trained) / 1.3, linscale=0.15)
    axes.set_xlim(-min(trained) / 3, 1.3 * longest)
    ends = [end for row in systems for end in (row.made_gain, row.made_low, row.made_high) if math.isfinite(end)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    margin = 0.08 * (high - low) or 0.01
    axes.set_ylim(low - margin, high + margin)
    axes.axhline(0, color=INKS["quiet"], linewidth=1)
    if len(steps := front(verdict)) > 1:
        times, gains = [step.seconds for step in steps], [step.made_gain for step in steps]
        axes.step([*times, 1.3 * longest], [*gains, gains[-1]], where="post", color=INKS["front"], linewidth=2)
    for row in reversed(systems):
        _point(axes, verdict, row, low - margin, high + margin)
    named = [time for time in TICKS if min(trained) <= time <= 1.3 * longest]
    shorter = [row.seconds for row in systems if SPAN * max(row.seconds, 1.0) < longest]
    _label_axes(axes, [*shorter[:1], *named[:: math.ceil(len(named) / most_ticks) or 1]])


def _point(axes: Axes, verdict: Verdict, system: SystemEstimate, low: float, high: float) -> None:
    """The interval, the mark and, in it, the rank. An interval ends where the picture does."""
    is_taken, is_baseline = system == verdict.recommended, system.label == verdict.baseline
    ink = INKS["accent" if is_taken else "base" if is_baseline else "other"]
    ends = max(system.made_low, low), min(system.made_high, high)
    axes.vlines(system.seconds, *ends, ink, "solid" if system.finalist else "dotted", linewidth=1.6)
    face, mark = ink if is_taken else INKS["paper"], "s" if is_baseline else "o"
    axes.plot(system.seconds, system.made_gain, mark, ms=18, mfc=face, mec=ink, mew=2 if system.finalist else 0.8)
    style = {"color": INKS["paper" if is_taken else "ink"], "weight": "bold" if is_taken else "normal"}
    axes.text(system.seconds, system.made_gain, f"{system.rank}", ha="center", va="center_baseline", fontdict=style)


def _label_axes(axes: Axes, times: Sequence[float]) -> None:
    axes.set_xticks(times, [duration(time) for time in times])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda gain, _: f"{gain:+.3g}".replace("-", "\N{MINUS SIGN}") if gain else "0")
    axes.set_xlabel("Computing time, logarithmic", loc="right", labelpad=8, color=INKS["quiet"])
    axes.tick_params(length=0, pad=8, labelcolor=INKS["quiet"])
    axes.grid(axis="y", color=INKS["line"], linewidth=1)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
