"""A snapshot stays what the store holds; curves and warnings of trainings."""

import gzip
import math
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient

from midmask.errors import UserError
from midmask.leaderboard import store_view
from midmask.leaderboard.store_view import Snapshot, StoreWatch, load, refresh, save, snapshot_place
from midmask.leaderboard.training import Curves, mean_line, smooth, warnings_of
from midmask.tracking.reading import StoreReader, TrackedRow, read_runs
from tests.support.dashboards import compared

OLD = 1_700_000_000_000
"""Milliseconds since 1970, long ago: the runs of a week before last."""


@pytest.fixture
def uri(uri: str) -> str:
    MlflowClient(uri).create_experiment("midmask")
    return uri


def old_run(client: MlflowClient, name: str, *, ended: bool = True) -> str:
    made = client.create_run(client.get_experiment_by_name("midmask").experiment_id, OLD, run_name=name)
    client.log_metric(made.info.run_id, "loss", 1.0)
    if ended:
        client.set_terminated(made.info.run_id, "FINISHED", OLD + 1)
    return str(made.info.run_id)


def held(uri: str) -> dict[str, TrackedRow]:
    return {run.run_id: run for run in read_runs(uri)}


def test_every_kind_of_change_is_seen_whatever_the_clocks_say(uri: str) -> None:
    client = MlflowClient(uri)
    still, late, bin_, back = (old_run(client, name, ended=name == "back") for name in ("still", "late", "bin", "back"))
    known = refresh(None, StoreReader(uri))
    assert known.runs == held(uri) and len(known.runs) == 4
    began = [one.started for one in known.newest_first()]
    assert began == sorted(began, reverse=True)

    def see(known: Snapshot) -> Snapshot:
        after = refresh(known, StoreReader(uri))
        assert after.runs == held(uri)
        return after

    client.log_metric(still, "loss", 0.5, step=1)
    client.set_terminated(late, "FINISHED", OLD + 5)  # told today by a journal, with the time at which it was
    client.delete_run(bin_)
    client.delete_run(back)
    known = see(known)
    assert set(known.runs) == {still, late} and known.deleted == {bin_, back}
    client.restore_run(back)
    new = client.create_run(client.get_experiment_by_name("midmask").experiment_id, run_name="new").info.run_id
    known = see(known)
    assert set(known.runs) == {still, late, back, new}
    client.delete_run(still)
    client._tracking_client.store._hard_delete_run(still)  # as `mlflow gc` does
    client._tracking_client.store._hard_delete_run(bin_)
    known = see(known)
    assert set(known.runs) == {late, back, new} and known.deleted == set()
    assert see(known).runs is known.runs, "nothing changed, nothing is built anew"


def test_what_ended_long_ago_is_not_read_again_until_a_day_has_passed(uri: str) -> None:
    client = MlflowClient(uri)
    old = old_run(client, "old")
    known = refresh(None, StoreReader(uri))
    client.set_tag(old, "note", "by hand")
    after = refresh(known, StoreReader(uri))
    assert "note" not in after.runs[old].tags, "or all runs are read at each look"
    yesterday = Snapshot(after.store, after.looked, after.whole - timedelta(days=2), after.runs, after.deleted)
    assert refresh(yesterday, StoreReader(uri)).runs[old].tags["note"] == "by hand"


def test_a_clock_may_be_a_quarter_of_an_hour_behind(uri: str) -> None:
    """Two runs that began and ended after the last look, by the clocks of machines that are 14 and 16 minutes late."""
    client = MlflowClient(uri)
    known = refresh(None, StoreReader(uri))
    for minutes in (14, 16):
        at = int((known.looked - timedelta(minutes=minutes)).timestamp() * 1000)
        made = client.create_run(client.get_experiment_by_name("midmask").experiment_id, at, run_name=f"{minutes}")
        client.set_terminated(made.info.run_id, "FINISHED", at)
    assert [found.name for found in refresh(known, StoreReader(uri)).runs.values()] == ["14"]


texts = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4)
times = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
tracked = st.builds(
    TrackedRow,
    **{name: st.text(max_size=5) for name in ("experiment_id", "name", "status")},
    **{"started": times, "ended": st.none() | times, "tags": texts, "params": texts},
    run_id=st.uuids().map(lambda found: found.hex),
    parent_id=st.none() | st.text(max_size=3),
    metrics=st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False), max_size=3),
)


@given(st.lists(tracked, max_size=4), times, st.frozensets(st.text(max_size=4), max_size=2))
@settings(max_examples=40)
def test_what_is_kept_comes_back(runs: list[TrackedRow], when: datetime, deleted: frozenset[str]) -> None:
    kept = Snapshot("1 of 2", when, when, {one.run_id: one for one in runs}, deleted)
    with tempfile.TemporaryDirectory() as folder:
        save(kept, Path(folder) / "new" / "runs.json.gz")
        assert load(Path(folder) / "new" / "runs.json.gz") == kept


def a_snapshot(runs: int = 1) -> Snapshot:
    now = datetime.now(UTC)
    made = (TrackedRow(f"{n:032x}", "1", "r", None, "finished", now, now, {"a": "b"}, {}, {}) for n in range(runs))
    return Snapshot("1 of 2", now, now, {one.run_id: one for one in made}, frozenset())


def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.json.gz"
    assert load(path) is None
    save(a_snapshot(), path)
    whole = path.read_bytes()
    for torn in (b"", whole[:100], whole[: len(whole) // 2], gzip.compress(b'{"format": 3}')):
        path.write_bytes(torn)
        assert load(path) is None
    path.write_bytes(whole)
    assert load(path) is not None
    monkeypatch.setattr(store_view, "FORMAT", store_view.FORMAT + 1)
    assert load(path) is None, "of an older format"


def test_who_reads_while_others_write_finds_a_whole_one(tmp_path: Path) -> None:
    """Two write until what was read has changed twenty times from one's runs to the other's."""
    path, sizes, enough = tmp_path / "runs.json.gz", (1, 300), threading.Event()
    save(a_snapshot(1), path)

    def write(size: int) -> None:
        while not enough.is_set():
            save(a_snapshot(size), path)

    writers = [threading.Thread(target=write, args=(size,), daemon=True) for size in sizes]
    for writer in writers:
        writer.start()
    seen, changes = [1], 0
    try:
        while changes < 20 and seen[-1] in sizes:
            found = load(path)
            seen.append(len(found.runs) if found else 0)
            changes += seen[-1] != seen[-2]
    finally:
        enough.set()
        for writer in writers:
            writer.join()
    assert set(seen) == set(sizes), "half a file was read"
    assert [name.name for name in tmp_path.iterdir()] == ["runs.json.gz"], "nothing is left behind"


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert snapshot_place(f"sqlite:///{tmp_path}/mlflow.db") == tmp_path / "mlflow.db.runs.json.gz"
    remote = snapshot_place("https://me:secret@host/ml")
    assert remote.parent == tmp_path / "cache" / "midmask" and "secret" not in str(remote)
    assert remote != snapshot_place("https://host/other")


def test_a_watch_keeps_what_it_knows_when_the_store_goes_away(uri: str, tmp_path: Path) -> None:
    old_run(MlflowClient(uri), "one")
    watch = StoreWatch(uri, tmp_path / "kept.json.gz")
    watch.look()
    assert watch.wait(600) and watch.known is not None and watch.error is None
    assert [found.name for found in watch.known.runs] == ["one"] and watch.count == 1
    away = StoreWatch("http://127.0.0.1:9", tmp_path / "kept.json.gz")
    away.look()
    assert away.wait(600) and isinstance(away.error, UserError) and away.known is not None
    assert [found.name for found in away.known.runs] == ["one"]
    nothing = StoreWatch(f"sqlite:///{tmp_path}/none.db", tmp_path / "none.json.gz")
    nothing.look()
    assert nothing.wait(600) and nothing.known is not None and not nothing.known.runs
    assert not (tmp_path / "none.json.gz").exists() and not (tmp_path / "none.db").exists()


STEPS = [5, 10, 20, 40]


def line(values: list[float]) -> pd.Series:
    return pd.Series(values, STEPS)


def told(steps: int = 40, **lines: pd.Series) -> Curves:
    run = compared.changed(compared.tracked_rows()[0], pretrain__steps=str(steps))
    return Curves(run, "pretrain", {name.replace("__", "/"): own for name, own in lines.items()})


@given(data=st.data())
def test_tokens_and_hours_are_sums_over_the_steps(data: st.DataObject) -> None:
    numbers = st.lists(st.floats(0.1, 50), min_size=40, max_size=40)
    seconds_S, tokens_S = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    spans = [slice(before, after) for before, after in zip([0, *STEPS[:-1]], STEPS, strict=True)]
    throughput = line([float(tokens_S[span].sum() / seconds_S[span].sum()) for span in spans])
    seconds = line([float(seconds_S[span].mean()) for span in spans])
    spent = told(step_seconds=seconds, tokens_per_second=throughput).spent
    assert list(spent["tokens"]) == pytest.approx([tokens_S[:step].sum() for step in STEPS])
    assert list(spent["hours"]) == pytest.approx([seconds_S[:step].sum() / 3600 for step in STEPS])
    assert "tokens" not in told(step_seconds=seconds).spent and told().spent.empty


@given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=30), points=st.sampled_from([1, 3, 5, 51]))
def test_a_smooth_value_is_the_mean_of_its_neighbours(values: list[float], points: int) -> None:
    half = (points - 1) // 2
    expected = [np.mean(values[max(0, at - half) : at + half + 1]) for at in range(len(values))]
    assert smooth(pd.Series(values), points).tolist() == pytest.approx(expected, abs=1e-9)


def test_a_mean_is_taken_where_all_have_a_value() -> None:
    first, second = line([1.0, 2.0, 3.0, 4.0]), line([3.0, 4.0, 5.0, 6.0])[1:]
    assert mean_line([first, second]).to_dict() == {10: 3.0, 20: 4.0, 40: 5.0}
    assert mean_line([first]).equals(first)


def test_warnings_are_those_that_the_training_itself_gave() -> None:
    fine, alike = line([0.6] * 4), line([0.9999] * 4)
    assert warnings_of(told(health__cosine_of_random_pairs=fine)) == []
    ((step, text),) = warnings_of(told(health__cosine_of_random_pairs=alike))
    assert step == 10 and "vectors" in text, "the first fifth is left out"
    ((step, text),) = warnings_of(told(loss=line([3.0, math.nan, math.nan, 1.0])))
    assert step == 10 and "loss" in text
