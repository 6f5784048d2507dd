"""A watch of a store sees what changes, and keeps what it knows when the store goes away."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.errors import UserError
from midmask.leaderboard import store_view
from midmask.leaderboard.store_view import StoreWatch


def names(watch: StoreWatch) -> list[str]:
    return [run.name for run in watch.view().runs]


def test_a_watch_sees_changes_and_keeps_what_it_knows(uri: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(store_view, "ENOUGH", 600)
    client = MlflowClient(uri)
    experiment = client.create_experiment("midmask")
    client.create_run(experiment, run_name="one")
    watch = StoreWatch(uri)
    assert names(watch) == ["one"]
    client.create_run(experiment, run_name="two")
    assert names(watch) == ["one"], "the last look was a moment ago"
    watch._next = 0.0
    assert names(watch) == ["two", "one"] and watch.error is None
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    watch._next = 0.0
    assert names(watch) == ["two", "one"] and isinstance(watch.error, UserError)


def test_a_store_that_does_not_answer_is_the_users_error_and_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not answer"):
        StoreWatch("http://127.0.0.1:9").view()
    assert names(StoreWatch(f"sqlite:///{tmp_path}/none.db")) == [] and not (tmp_path / "none.db").exists()
