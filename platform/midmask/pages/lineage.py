"""What a number came from, step by step, back to the corpus; and the command that makes it again."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from html import escape

import streamlit as st

from midmask.core.redaction import redacted
from midmask.core.words import MISSING, single_unit, size
from midmask.leaderboard.lineage import Link, artifact_place, as_dot, commit_of, input_of, lineage
from midmask.leaderboard.rows import LeaderboardRow, measure_names
from midmask.pages.context import PageContext, choose_place, named, nothing_evaluated, rows_at, run_of
from midmask.pages.look import choice, link, table
from midmask.tracking.reading import TrackedRow

STYLE = """<style>
.mm-board .wrap {white-space: normal; min-width: 12rem; overflow-wrap: anywhere;}
.mm-board[aria-label="facts"] thead {display: none;}
.mm-board[aria-label="facts"] td:first-child {width: 12rem;}
[data-testid="stGraphVizChart"] text {fill: light-dark(#292524, #e7e5e4);}
[data-testid="stGraphVizChart"] .edge text {fill: light-dark(#78716c, #a8a29e);}
</style>"""

SOME = 8
"""Names of fields in a sentence."""

LONGEST_WAIT = 180
"""Seconds; the recipes' code takes a few to load."""


def show(context: PageContext) -> None:
    if not context.rows:
        nothing_evaluated()
        return
    with st.sidebar:
        rows = named(rows_at(context.rows, choose_place(context.rows)))
        row = rows[choice("Run", "run", list(rows))]
    run = run_of(context, row)
    st.html(STYLE + facts(row, run, context))
    place = artifact_place(run, row.corpus, row.split)
    if place is None:
        st.info("This run does not tell where its artifact lies, so the steps behind it are not known.")
        links: Sequence[Link] = ()
    else:
        links = lineage(place)
        steps(links)
    if st.toggle("The command that makes it again", key="rerun", bind="query-params"):
        again(context, row, run, links)


def facts(row: LeaderboardRow, run: TrackedRow, context: PageContext) -> str:
    """The number, and what the run itself says of where it comes from."""
    values = " · ".join(f"{escape(name)} <b>{row.measures[name]:.4f}</b>" for name in measure_names([row]))
    told = {
        "Number": values,
        "Recipe": escape(" · ".join(filter(None, (row.recipe, row.protocol, row.representation)))) or MISSING,
        "Pre-trained on": escape(row.pretrain_on) or MISSING,
        "Backbone, seed": escape(f"{row.backbone or MISSING}, {row.seed.strip() or MISSING}"),
        "Commit": escape(commit_of(run)) or f'<span class="quiet">{MISSING} the run does not tell</span>',
        "Tracked (UTC)": f"{run.started:%Y-%m-%d %H:%M}",
        "Run": link(context.link(run), run.run_id),
    }
    return table([("", ""), ("", "")], [[(name, "quiet"), (text, "wrap")] for name, text in told.items()], "facts")


def steps(links: Sequence[Link]) -> None:
    """The steps in the order of the work, as a graph, as a table, and each with its whole record."""
    st.graphviz_chart(as_dot(links), width="content")
    st.caption("Arrows show what a step was made of: orange boxes train, the last one measures. Dashed: not reachable.")
    numbers = {one.place.uri: number for number, one in enumerate(links, start=1)}
    heads = [
        ("", "num"),
        ("Step", ""),
        ("What", ""),
        ("From", ""),
        ("Made", "num"),
        ("On disk", "num"),
        ("Took", "num"),
    ]
    lines = [_line(number, one, numbers) for number, one in enumerate(links, start=1)]
    st.html(table([*heads, ("Fingerprint", "")], lines, "steps"))
    lost = [one for one in links if one.missing]
    seconds = sum(one.seconds or 0 for one in links)
    st.caption(f"{len(links)} steps, which took {single_unit(seconds)} when they were computed.")
    for one in lost:
        st.warning(f"{one.step} {one.place}: {one.missing}. What it was made of is not known from here.")
    with st.expander("The record of a step"):
        chosen = choice("Step", "step", [f"{number} {one.step}" for number, one in enumerate(links, start=1)])
        st.json(dict(links[int(chosen.partition(" ")[0]) - 1].record), expanded=2)


def _short(path: str) -> str:
    """The last part of a path; of a name, what bears it."""
    return path.removesuffix(".name").rpartition(".")[2] if path != "name" else "corpus"


def _line(number: int, one: Link, numbers: dict[str, int]) -> list[tuple[str, str]]:
    told = ", ".join(f"{_short(path)} {value}" for path, value in one.told.items())
    sources = ", ".join(f"{escape(role)} {numbers[place.uri]}" for role, place in one.inputs.items())
    counts = [f"{count:,} {name}" for name, count in one.counts.items() if name != "bytes"]
    return [
        (f"{number}", "num quiet"),
        (f"<b>{escape(one.step)}</b>", "quiet" if one.missing else ""),
        (escape(told) if not one.missing else "not reachable", "wrap" if not one.missing else "quiet"),
        (sources or MISSING, "quiet wrap"),
        (escape(counts[0]) if counts else MISSING, "num"),
        (MISSING if one.size is None else size(one.size), "num"),
        (MISSING if one.seconds is None else single_unit(one.seconds), "num"),
        (f'<code title="{escape(str(one.place))}">{escape(one.fingerprint)}</code>', ""),
    ]


def again(context: PageContext, row: LeaderboardRow, run: TrackedRow, links: Sequence[Link]) -> None:
    """Draws the command that repeats the run, and the settings in which its result would differ."""
    wanted = {"tags": run.tags, "params": run.params, "split": _split(links) or row.split, **_elsewhere(run, links)}
    found = worked_out(json.dumps(wanted, sort_keys=True))
    if "error" in found:
        st.warning(f"The command cannot be worked out: {found['error']}")
        return
    command = shlex.join(["python", *found["arguments"], "--tracking-uri", redacted(context.uri)])
    st.code(command, language="bash", wrap_lines=True)
    if found["differs"]:
        st.warning("With this command, these settings would differ from the run's: " + _some(found["differs"]))
    if found["newer"]:
        st.caption(f"Fields that the run did not have yet are left as they are now: {_some(found['newer'])}.")
    at = f", at commit {commit}" if (commit := commit_of(run)) else ""
    st.caption(
        f"In the project's folder{at}. With `--dry-run` it prints steps and fingerprints; the evaluation's was "
        f"{row.fingerprint}. What the storage holds is not computed again."
    )


def _some(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(names[:SOME]) + (f" and {len(names) - SOME} more" if len(names) > SOME else "")


def _split(links: Sequence[Link]) -> str:
    """Whose queries were searched; a slice of a split lies with it."""
    return str(links[-1].result.get("split", "")) if links else ""


def _elsewhere(run: TrackedRow, links: Sequence[Link]) -> dict[str, str]:
    """Flags for a collection that was only searched, and for a model that came from a folder."""
    corpus = input_of(links, "corpus") if links else None
    name = str(corpus.told.get("name", "")) if corpus else ""
    model = next((str(one.record["config"]["folder"]) for one in links if one.step == "adopt" and one.record), "")
    return {"zero_shot": name if name != run.params.get("corpus.name", name) else "", "model": model}


@st.cache_data(max_entries=64, show_spinner="Working out the command: the recipes take a few seconds to load")
def worked_out(wanted: str) -> dict[str, list[str] | str]:
    """`app.rerun` in a process of its own, since recipes load torch, which no page does."""
    command = [sys.executable, "-m", "midmask.app.rerun"]
    done = subprocess.run(command, input=wanted, capture_output=True, text=True, timeout=LONGEST_WAIT, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no reason was given"])[-1]}
    return dict(json.loads(done.stdout))
