"""A dashboard's page drawn in this process by Streamlit's AppTest: no server, no browser, no store."""

from collections.abc import Sequence
from typing import Any

from streamlit.testing.v1 import AppTest

from midmask.leaderboard.rows import PerQueryOf
from midmask.tracking.reading import TrackedRow

LONGEST = 120
"""Seconds; the first page of a process imports Plotly."""


def _script(view, uri, runs, per_query):  # type: ignore[no-untyped-def]  # its source is what AppTest runs
    import importlib
    from datetime import UTC, datetime

    from midmask.leaderboard.entries import entries
    from midmask.leaderboard.rows import rows
    from midmask.leaderboard.store_view import StoreView

    found = rows(runs)
    store = StoreView(uri, runs, found, entries(found), per_query, datetime.now(UTC))
    importlib.import_module(f"midmask.pages.{view}").show(None if view == "search" else store)


def page(
    view: str,
    runs: Sequence[TrackedRow],
    *,
    uri: str = "sqlite:////nowhere/mlflow.db",
    per_query: PerQueryOf = lambda row: None,
    **address: str | list[str],
) -> AppTest:
    """The page of this name over these runs, drawn once; it must raise nothing.

    Args:
        address: what stands in the address behind the question mark.
    """
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
    tables = [one.value.to_string() for one in app.table]
    return "\n".join([*(one.value for kind in kinds for one in app.get(kind)), *tables, html(app)])


def html(app: AppTest) -> str:
    """All HTML of the page."""
    return "\n".join(one.proto.body for one in app.get("html"))


def table(app: AppTest, label: str) -> list[dict[str, Any]]:
    """The lines of the table with this label: head -> cell, Markdown or a number; None where nothing is known."""
    (found,) = (one for one in app.table if one.proto.alt == label)
    return [dict(line) for line in found.value.astype(object).where(found.value.notna(), None).to_dict("records")]
