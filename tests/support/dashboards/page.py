"""A dashboard's page drawn in this process by Streamlit's AppTest: no server, no browser, no store."""

import json
import sys
from collections.abc import Sequence
from html.parser import HTMLParser

from streamlit.testing.v1 import AppTest

from midmask.leaderboard.marks import PerQueryOf
from midmask.tracking import TrackedRow
from tests.support.dashboards.browser import ROOT

DASHBOARDS = str(ROOT / "dashboards")
LONGEST = 120
"""Seconds; the first page of a process imports Plotly."""


def _script(view, uri, runs, per_query):  # type: ignore[no-untyped-def]  # its source is what AppTest runs
    import importlib

    from midmask.leaderboard.entries import entries
    from midmask.leaderboard.rows import rows

    found = rows(runs)
    context = importlib.import_module("context").PageContext(uri, None, runs, found, entries(found), per_query)
    importlib.import_module(f"views.{view}").show(context)


def page(
    view: str,
    runs: Sequence[TrackedRow],
    *,
    uri: str = "sqlite:////nowhere/mlflow.db",
    per_query: PerQueryOf = lambda row: None,
    **address: str | list[str],
) -> AppTest:
    """The page `dashboards/views/VIEW.py` over these runs, drawn once; it must raise nothing.

    Args:
        address: what stands in the address behind the question mark.
    """
    if DASHBOARDS not in sys.path:
        sys.path.append(DASHBOARDS)
    app = AppTest.from_function(_script, default_timeout=LONGEST, args=(view, uri, runs, per_query))
    for key, value in address.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception, app.exception
    return app


def captions(app: AppTest) -> str:
    return "\n".join(one.value for one in app.caption)


def words(app: AppTest) -> str:
    """All texts of the page, and its HTML."""
    kinds = ("header", "subheader", "markdown", "caption", "info", "warning", "error", "code")
    return "\n".join([*(one.value for kind in kinds for one in app.get(kind)), html(app)])


def html(app: AppTest) -> str:
    """All HTML of the page: of `st.html`, and of tables whose heads can be clicked."""
    own = [one.proto.body for one in app.get("html")]
    return "\n".join([*own, *(json.loads(one.proto.json)["html"] for one in app.get("bidi_component"))])


def table(app: AppTest, label: str) -> tuple[list[str], list[list[str]]]:
    """The heads and the lines of the table with this label, as texts; the class of a cell follows its text behind a
    bar: `▲ better|gain`.
    """
    found = _Table(label)
    found.feed(html(app))
    return found.lines[0], found.lines[1:]


class _Table(HTMLParser):
    def __init__(self, label: str) -> None:
        super().__init__()
        self.lines: list[list[str]] = []
        self._label, self._kind = label, ""
        self._inside = self._cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "table":
            self._inside = own.get("aria-label") == self._label
        if self._inside and tag == "tr":
            self.lines.append([])
        if self._inside and tag in ("td", "th"):
            self.lines[-1].append("")
            self._cell, self._kind = True, own.get("class") or ""

    def handle_endtag(self, tag: str) -> None:
        if self._cell and tag in ("td", "th"):
            self.lines[-1][-1] += f"|{self._kind}"
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.lines[-1][-1] += data
