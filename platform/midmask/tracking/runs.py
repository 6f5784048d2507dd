"""Tracked runs, as a job's driver writes them, from any of its threads; everything goes through the journal.

Workers never hold a tracker: they hand their values to the driver.
"""

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

from mlflow import MlflowClient
from mlflow.tracking.context.registry import resolve_tags

from midmask.core.redaction import redacted
from midmask.tracking.lineage import Dataset, MetricRow, TrackedModel, datasets_entry, measured_entry, model_entry
from midmask.tracking.names import EXECUTOR, LONGEST_PARAM, LONGEST_TAG, check_key, shorten
from midmask.tracking.outbox import LIMITS, Journal, JournalEntry, Outbox, Sender, find_left_behind, journal_path
from midmask.tracking.store import Patience, create_store, patiently
from midmask.tracking.writer import PARENT, Leases, Machine, close_dead_runs, is_written, lease_tags

STATUSES = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED", "pruned": "KILLED", "cached": "FINISHED"}
"""`midmask.status` of a run that has ended -> MLflow's own word."""


class TrackedRun:
    """One open run, a context or ended by `finish`. Every method returns at once and may be called from any thread."""

    def __init__(
        self, run_id: str, sender: Sender, outbox: Outbox, last_steps: dict[str, int], *, resumed: bool
    ) -> None:
        self.id = run_id
        self.resumed = resumed
        self._sender = sender
        self._outbox = outbox
        self._last_steps = last_steps
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        return not self._outbox.closing

    def log(
        self, values: Mapping[str, float], step: int, *, of: TrackedModel | None = None, on: Dataset | None = None
    ) -> None:
        """Metrics at a step. A key's step that was logged before, in this process or in the run that is resumed, is
        dropped: a worker that resumes from a checkpoint logs the same steps again.

        Args:
            of, on: the model that was measured, and what on, where both are known; MLflow then compares models too.
        """
        with self._lock:
            new = {key: float(value) for key, value in values.items() if self._last_steps.get(key, -1) < step}
            self._last_steps.update(dict.fromkeys(new, step))
        rows = self._queue_metrics(new, dict.fromkeys(new, step))
        if of is not None and on is not None and rows:
            for start in range(0, len(rows), LIMITS["metrics"]):
                entry = measured_entry(_model(of), on, rows[start : start + LIMITS["metrics"]])
                self._sender.put(self._outbox, JournalEntry("measured", entry))

    def log_next(self, values: Mapping[str, float]) -> None:
        """Metrics that have no step of their own: each one after its key's last."""
        with self._lock:
            steps = {key: self._last_steps.get(key, -1) + 1 for key in values}
            self._last_steps.update(steps)
        self._queue_metrics(values, steps)

    def _queue_metrics(self, values: Mapping[str, float], steps: Mapping[str, int]) -> list[MetricRow]:
        now = int(time.time() * 1000)
        rows = [[check_key(key), float(value), now, steps[key]] for key, value in values.items()]
        for start in range(0, len(rows), LIMITS["metrics"]):
            self._sender.put(self._outbox, JournalEntry("metrics", rows[start : start + LIMITS["metrics"]]))
        return rows

    def log_inputs(self, datasets: Iterable[Dataset]) -> None:
        """Logs collections as the run's inputs; one that it has already keeps the context that it had first."""
        if collections := list(datasets):
            self._sender.put(self._outbox, JournalEntry("datasets", datasets_entry(collections)))

    def log_output_model(self, model: TrackedModel, at: int) -> None:
        """Logs a model as the run's output, at this training step. Nothing is copied."""
        self._sender.put(self._outbox, JournalEntry("made", {"model": _model(model), "at": at}))

    def log_input_model(self, model: TrackedModel) -> None:
        """Logs a model as the run's input."""
        self._sender.put(self._outbox, JournalEntry("used", _model(model)))

    def describe(self, markdown: str) -> None:
        """The text at the top of the run's page, in place of an earlier one."""
        self.tag({"mlflow.note.content": markdown})

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Copies a file into the run's artifacts, later: it must stay until then."""
        self._sender.put(self._outbox, JournalEntry("file", [str(path.absolute()), folder]))

    def log_text(self, text: str, name: str) -> None:
        self._sender.put(self._outbox, JournalEntry("text", [redacted(text), name]))

    def tag(self, tags: Mapping[str, str]) -> None:
        self.put_texts("tags", tags_as_texts(tags))

    def put_texts(self, kind: str, texts: dict[str, str]) -> None:
        items = list(texts.items())
        for start in range(0, len(items), LIMITS[kind]):
            self._sender.put(self._outbox, JournalEntry(kind, dict(items[start : start + LIMITS[kind]])))

    def finish(self, status: str = "finished") -> None:
        """Ends the run; `status` is finished, failed, killed or pruned. A second call changes nothing."""
        if self._outbox.closing:
            return
        self.tag({"midmask.status": status})
        self._sender.put(self._outbox, JournalEntry("end", [STATUSES[status], int(time.time() * 1000)]))
        self._sender.finish(self._outbox)

    def __enter__(self) -> "TrackedRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.is_open:
            self.tag({"midmask.reason": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"})
        self.finish(status_after(kind))


def status_after(kind: type[BaseException] | None) -> str:
    """The status of a run whose block was left by an exception of this kind, or by none."""
    if kind is None:
        return "finished"
    return "killed" if issubclass(kind, KeyboardInterrupt | SystemExit) else "failed"


def _model(model: TrackedModel) -> dict[str, Any]:
    return model_entry(replace(model, params=params_as_texts(model.params), tags=tags_as_texts(model.tags)))


def params_as_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Params as texts: strings as they are, all else as JSON, so that both can be read back."""
    texts = {check_key(key): value if isinstance(value, str) else json.dumps(value) for key, value in params.items()}
    return {key: shorten(redacted(text), LONGEST_PARAM) for key, text in texts.items()}


def tags_as_texts(tags: Mapping[str, str]) -> dict[str, str]:
    return {check_key(key): shorten(redacted(str(value)), LONGEST_TAG) for key, value in tags.items()}


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """Runs of one fingerprint and step: the finished one, and those that ended too early, newest first."""

    finished: str | None
    unfinished: tuple[str, ...]


class Tracker:
    """The one writer of a job. Making it creates the store, sends what an earlier job could not, and marks the runs of
    jobs that were killed.

    Args:
        uri: as `resolve_tracking_uri` gives it.
        home: the folder that holds `mlartifacts/` and `mlflow-pending/`.

    Raises:
        UserError: if the store stays away longer than `patience.answer`.
    """

    def __init__(self, uri: str, home: Path, patience: Patience = Patience()) -> None:  # noqa: B008 (frozen)
        self.uri = uri
        self._home = home.absolute()
        self._patience = patience
        self._client, self.experiment_id = patiently(lambda: create_store(uri, self._home), uri, patience)
        self._sender = Sender(self._client, uri, patience)
        self._machine = Machine()
        self._leases = Leases()
        self._runs: list[TrackedRun] = []
        self._source = source_tags()
        try:
            self._settle_ended_jobs()
        except BaseException:
            self.close()  # nobody else can: its threads would outlive it
            raise

    def find(self, fingerprint: str, *, step: str) -> Found:
        """Finds the run of a step with this fingerprint in the store; cached and pruned runs do not count."""
        self._sender.drain(self._patience.answer)
        query = f"tags.`midmask.fingerprint` = '{fingerprint}' and tags.`midmask.step` = '{step}'"
        runs = self._ask(lambda: self._client.search_runs([self.experiment_id], query, order_by=["start_time DESC"]))
        by_status: dict[str, list[str]] = {}
        for run in runs:
            by_status.setdefault(run.data.tags.get("midmask.status", "running"), []).append(run.info.run_id)
        finished = by_status.get("finished", [])
        unfinished = [by_status.get(status, []) for status in ("running", "killed", "failed")]
        return Found(finished[-1] if finished else None, tuple(chain.from_iterable(unfinished)))

    def run(
        self, name: str, *, tags: Mapping[str, str], params: Mapping[str, Any], parent: str | None = None
    ) -> TrackedRun:
        """A run to write to: the unfinished one of the same `midmask.fingerprint` and `midmask.step` if no living
        process writes it, else a new one. Ask `find` first whether a finished one makes all this unnecessary.

        Args:
            params: dotted config path -> plain value, logged once. A value that differs when a run is resumed (only
                runtime fields can) goes to the tag `midmask.changed_on_resume`: MLflow's params are immutable.
            parent: the id of the run that this one is nested in.
        """
        tags = {**tags, "midmask.status": "running", **lease_tags(), **({PARENT: parent} if parent else {})}
        run = self._find_unfinished(tags, params_as_texts(params)) or self._new(name, tags, params_as_texts(params))
        self._runs = [*(other for other in self._runs if other.is_open), run]
        if parent is None:
            self._leases.hold(run)
        return run

    def _new(self, name: str, tags: Mapping[str, str], params: dict[str, str]) -> TrackedRun:
        run_id = self._create(redacted(name), tags_as_texts(tags))
        outbox = self._claim(run_id)
        assert outbox is not None, "a new run has no other owner"
        run = TrackedRun(run_id, self._sender, outbox, {}, resumed=False)
        run.put_texts("params", params)
        return run

    def _find_unfinished(self, tags: Mapping[str, str], params: dict[str, str]) -> TrackedRun | None:
        """The newest unfinished run of the same step and fingerprint that no living process writes."""
        if not {"midmask.fingerprint", "midmask.step"} <= tags.keys():
            return None
        for run_id in self.find(tags["midmask.fingerprint"], step=tags["midmask.step"]).unfinished:
            written = self._ask(partial(is_written, self._client, self.experiment_id, run_id))
            if not written and (outbox := self._claim(run_id)):
                return self._resume(run_id, outbox, tags, params)
        return None

    def link_cached(self, finished: str, name: str, *, tags: Mapping[str, str], parent: str | None = None) -> str:
        """Makes a small run that links a finished one, because nothing was computed; returns its id. It has no
        leaderboard row.
        """
        links = {"midmask.status": "cached", "midmask.cached_run": finished, **({PARENT: parent} if parent else {})}
        if executor := self._ask(lambda: self._client.get_run(finished)).data.tags.get(EXECUTOR):
            links[EXECUTOR] = executor
        run_id = self._create(name, tags_as_texts({**tags, **links}))
        self._ask(lambda: self._client.set_terminated(run_id, STATUSES["cached"]))
        return run_id

    def watch(self, run: TrackedRun) -> None:
        """Logs how busy this machine is into the run, until it is finished; nothing if that takes seconds only."""
        self._machine.watch(run)

    def close(self) -> None:
        """Sends what is left, for `patience.close` seconds at most; the rest waits on disk for the next job here.

        If all was sent, looks once more for runs of jobs that were killed: that one had ended on another host shortly
        before this job began, nobody could know then.
        """
        self._machine.close()
        self._leases.close()
        if journals := self._sender.close():
            log.warning(
                "values of %d run(s) have not reached the tracking store %s; they are kept in %s, "
                "and the next job on this store sends them first",
                len(journals), redacted(self.uri), journals[0].parent,
            )  # fmt: skip
        else:
            with contextlib.suppress(Exception):  # whatever a server answers, the job's own work is done
                self._mark_killed()

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends every open run as failed, or as killed after an interrupt, and closes."""
        for run in self._runs if kind is not None else []:
            run.finish(status_after(kind))
        self.close()

    def _mark_killed(self) -> None:
        if closed := close_dead_runs(self._client, self.experiment_id):
            log.info("marked %d run(s) as killed: the jobs that wrote them have ended", closed)

    def _settle_ended_jobs(self) -> None:
        self._ask(self._mark_killed)
        for run_id, path in find_left_behind(self._home, self.uri):
            if journal := self._ask(partial(Journal.claim, path)):
                self._send_left(run_id, journal)

    def _send_left(self, run_id: str, journal: Journal) -> None:
        """Sends what a job that is gone has left for a run, and ends the run as killed unless the job ended it."""
        log.info("uploading values that an earlier job could not send (run %s)", run_id)
        has_ended = any(entry.kind == "end" for entry in journal.entries())
        outbox = self._sender.open(run_id, journal)
        if not has_ended:
            self._sender.put(outbox, JournalEntry("tags", {"midmask.status": "killed"}))
            self._sender.put(outbox, JournalEntry("end", [STATUSES["killed"], int(time.time() * 1000)]))
        self._sender.finish(outbox)

    def _ask(self, call: Any) -> Any:
        return patiently(call, self.uri, self._patience)

    def _create(self, name: str, tags: dict[str, str]) -> str:
        """A new run's id. A request whose answer was lost may have made it; a token tells, so it is made once."""
        token = uuid.uuid4().hex
        tried = False

        def create() -> str:
            nonlocal tried
            query = f"tags.`midmask.token` = '{token}'"
            if tried and (made := self._client.search_runs([self.experiment_id], query)):
                return str(made[0].info.run_id)
            tried = True
            all_tags = {**self._source, **tags, "midmask.token": token}
            run = self._client.create_run(self.experiment_id, tags=all_tags, run_name=name)
            return str(run.info.run_id)

        return str(self._ask(create))

    def _claim(self, run_id: str) -> Outbox | None:
        """The run's outbox, None if a living process writes this run."""
        journal = self._ask(lambda: Journal.claim(journal_path(self._home, self.uri, run_id)))
        return self._sender.open(run_id, journal) if journal else None

    def _resume(self, run_id: str, outbox: Outbox, tags: Mapping[str, str], params: dict[str, str]) -> TrackedRun:
        last_steps, stored = self._ask(lambda: _read_state(self._client, run_id))
        for entry in outbox.journal.entries():
            if entry.kind == "metrics":
                for key, _, _, step in entry.value:
                    last_steps[key] = max(step, last_steps.get(key, step))
            elif entry.kind == "params":
                stored.update(entry.value)
        self._ask(lambda: self._client.update_run(run_id, status="RUNNING"))
        run = TrackedRun(run_id, self._sender, outbox, last_steps, resumed=True)
        changed = {key: value for key, value in params.items() if stored.get(key, value) != value}
        run.tag({**tags, **({"midmask.changed_on_resume": json.dumps(changed)} if changed else {})})
        run.put_texts("params", {key: value for key, value in params.items() if key not in stored})
        return run


def _read_state(client: MlflowClient, run_id: str) -> tuple[dict[str, int], dict[str, str]]:
    """(last step of every metric, params) of a run in the store."""
    data = client.get_run(run_id).data
    return {metric.key: metric.step for metric in data.to_proto().metrics}, dict(data.params)


@cache
def source_tags() -> dict[str, str]:
    """Who runs what, at which commit, as MLflow finds out and shows it (`mlflow.source.git.commit`)."""
    return tags_as_texts(resolve_tags())
