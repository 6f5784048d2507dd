"""A run's values on their way to the store: a bounded queue in memory, and one background thread that empties it.

    log() in any thread -> queue -> the thread -> store

A store that is away costs one warning per outage: values wait, and attempts go on with growing pauses. An attempt whose
answer was lost is made again with the same time stamps, so that to MLflow each value is the same one. What the store
refuses for good (a run that a person deleted, models where the server is too old to know them) is a warning, and the
rest goes on. What has not arrived when the job ends is written to `<home>/mlflow-unsent`, from where the next job or
`midmask doctor --resend` sends it. A killed job leaves no such file: its trainings' curves are logged again from the
store of artifacts when the command is given again.

MLflow's own asynchronous logging takes its place for none of this: it drops a batch after its retries, ten threads send
a run's values in any order, and files, inputs, outputs and ends are no part of it.
"""

import hashlib
import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from midmask.core.redaction import redacted
from midmask.errors import UserError
from midmask.tracking.lineage import log_datasets, log_made, log_used, model_id_of
from midmask.tracking.opening import STATUS, STATUSES, RunRequest, close_superseded_runs, open_run
from midmask.tracking.store import EXPERIMENT, FAILURES, Patience, is_refusal, reason, unreachable, unusable

log = logging.getLogger(__name__)

LIMITS = {"metrics": 1000, "tags": 100}
"""Largest batch that MLflow accepts; MAX_METRICS_PER_BATCH and MAX_PARAMS_TAGS_PER_BATCH of its validation."""

MOST_WAITING = 50_000
"""Reports that wait in memory, some 100 MB. Later ones are dropped: a training's are logged again from its trace."""

SPARED = ("file", "text", "curve", "datasets", "made", "used", "model")
"""Kinds that may fail for reasons of their own: a folder that cannot be written, a server that knows no models."""

SAMPLE_S, SAMPLES = 10, 3
"""Seconds between samples of the machine, and samples whose mean is a point, unless MLflow's variables differ."""


Points = Callable[[Collection[int]], Iterable[tuple[int, dict[str, float]]]]
"""Steps that the store has -> (step, {key: value}) of those that it lacks."""


class Entry(NamedTuple):
    """One entry to send to the store. Kinds and their values:

    open     None
    metrics  [time in ms, step, {key: value}, fingerprint of the model that was measured or "", [dataset, digest]]
    curve    (key whose steps the store has or lacks, Points)
    tags     {name: text}
    file     [path, folder in the run's artifacts]
    text     [text, name in the run's artifacts]
    datasets, used, model   as `lineage` has them;   made  [model, step]
    watch    None
    end      [`midmask.status`, time in ms]
    """

    kind: str
    value: Any = None


class Outbox:
    """A run's entries that have not arrived, and what the thread knows of the run. Guarded by the sender's lock."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.run_id = ""
        self.entries = deque([Entry("open")])
        self.closing = False
        self.ignored = False  # whether nothing more is sent: the run was refused, is a link, or has another writer
        self.error: Exception | None = None  # why it was refused
        self.has_gaps = False  # whether values may have been lost, in a kill or by a full queue
        self.file: Path | None = None  # that an earlier job has left
        self.last_steps: dict[str, int] = {}
        self.models: dict[str, str] = {}  # fingerprint -> id of a logged model
        self.monitor: SystemMetricsMonitor | None = None

    @property
    def shown(self) -> str:
        return self.run_id or self.request.name


class Sender:
    """The queue and its thread. Every method may be called from any thread."""

    def __init__(self, client: MlflowClient, experiment_id: str, uri: str, home: Path, patience: Patience) -> None:
        self._client, self._experiment_id = client, experiment_id
        self._uri, self._home, self._patience = uri, home, patience
        self._outboxes: list[Outbox] = []
        self._waiting_reports = 0
        self._changed = threading.Condition()
        self._hurried = 0
        self._away: Exception | None = None
        self._stopped = threading.Event()
        logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
        self._outboxes += [_read_unsent(path) for path in unsent_files(home, uri)]
        if self._outboxes:
            log.info("sending values of %d run(s) that an earlier job could not", len(self._outboxes))
        self._thread = threading.Thread(target=self._send_until_stopped, name="midmask-tracking", daemon=True)
        self._thread.start()

    def open(self, request: RunRequest) -> Outbox:
        """An outbox for a run, which is opened as soon as the store answers."""
        with self._changed:
            request.unless_finished = self._away is not None
            outbox = Outbox(request)
            outbox.closing = bool(request.cached_run)
            self._outboxes.append(outbox)
            self._changed.notify_all()
        return outbox

    def put(self, outbox: Outbox, entry: Entry, *, last: bool = False) -> None:
        """Queues an entry; with `last`, the outbox takes no more.

        Raises:
            RuntimeError: if the run was finished.
        """
        with self._changed:
            if outbox.closing:
                raise RuntimeError(f"run {outbox.shown} is finished; {entry.kind} came too late")
            outbox.closing = last
            if entry.kind == "metrics" and self._waiting_reports >= MOST_WAITING:
                outbox.has_gaps = True
            elif not outbox.ignored:
                self._waiting_reports += entry.kind == "metrics"
                outbox.entries.append(entry)
            self._changed.notify_all()

    def run_id(self, outbox: Outbox) -> str:
        """The run's id; waits for the store.

        Raises:
            UserError: if the store is away, or refuses the run.
        """
        with self._hurry():
            self._changed.wait_for(
                lambda: outbox.run_id or outbox.error or self._away or self._stopped.is_set(), self._patience.answer
            )
            if outbox.run_id:
                return outbox.run_id
            if outbox.error:
                raise UserError(unusable(self._uri, outbox.error))
            raise UserError(unreachable(self._uri, self._away or TimeoutError("no answer in time")))

    def drain(self, seconds: float, *, through_outage: bool = False) -> bool:
        """Waits until everything has arrived; False if that takes longer than `seconds`, or if the store is away."""
        with self._hurry():
            self._changed.wait_for(
                lambda: (
                    not self._has_waiting() or self._stopped.is_set() or (self._away is not None and not through_outage)
                ),
                seconds,
            )
            return not self._has_waiting()

    def close(self) -> int:
        """Waits for `patience.close` seconds at most, writes what is left to disk, and ends the thread; of how many
        runs something is left.
        """
        self.drain(self._patience.close, through_outage=True)
        self._stopped.set()
        with self._hurry():
            left = [outbox for outbox in self._outboxes if outbox.entries]
        self._thread.join(self._patience.retry)
        for outbox in self._outboxes:
            _stop_monitor(outbox)
        for outbox in left:
            _write_unsent(outbox, self._home, self._uri)
        return len(left)

    @contextmanager
    def _hurry(self) -> Iterator[None]:
        """Holds the lock, and lets the thread send at once meanwhile."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            try:
                yield
            finally:
                self._hurried -= 1

    def _has_waiting(self) -> bool:
        return any(outbox.entries for outbox in self._outboxes)

    def _send_until_stopped(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._has_waiting() or self._stopped.is_set())
                self._changed.wait_for(lambda: self._hurried or self._stopped.is_set(), self._patience.flush)
                outboxes = [outbox for outbox in self._outboxes if outbox.entries]
            for outbox in outboxes:
                while batch := self._next_batch(outbox):
                    if not self._deliver(outbox, batch):
                        return

    def _next_batch(self, outbox: Outbox) -> list[Entry]:
        """The run's next entries of one kind, as many as MLflow accepts at once; they stay in the queue."""
        with self._changed:
            batch: list[Entry] = []
            size = 0
            for entry in outbox.entries:
                size += _size(entry)
                if batch and (entry.kind != batch[0].kind or size > LIMITS.get(entry.kind, 0)):
                    break
                batch.append(entry)
            return batch

    def _deliver(self, outbox: Outbox, batch: list[Entry]) -> bool:
        """Sends one batch, for as long as it takes; False if the tracker was closed first."""
        pause, strikes = self._patience.retry, 0
        while (error := self._attempt(outbox, batch)) is not None:
            strikes += batch[0].kind in SPARED and self._is_reachable()
            if is_refusal(error) or strikes == 3:
                self._refuse(outbox, batch[0].kind, error)
                break
            if not strikes:
                self.note_outage(error)
            if self._stopped.wait(pause):
                return False
            pause = min(2 * pause, self._patience.longest_retry)
        with self._changed:
            if self._away is not None:
                log.info("the tracking store %s is back", redacted(self._uri))
            self._away = None
            self._forget(outbox, batch)
            self._changed.notify_all()
        return True

    def _attempt(self, outbox: Outbox, batch: list[Entry]) -> Exception | None:
        try:
            self._send(outbox, batch[0].kind, [entry.value for entry in batch])
        except (
            Exception
        ) as error:  # MLflow's, its libraries', and ParseError, KeyError, … of answers that are no MLflow's
            return error
        return None

    def _is_reachable(self) -> bool:
        """Whether the store itself is there, so that what failed is at fault: where artifacts go, or what it knows."""
        try:
            self._client.get_experiment_by_name(EXPERIMENT)
        except FAILURES:
            return False
        return True

    def note_outage(self, error: Exception) -> None:
        """From now on the store is away, until the thread has sent something; a warning, once."""
        with self._changed:
            is_new, self._away = self._away is None, error
            self._changed.notify_all()
        if is_new:
            log.warning(
                "the tracking store %s does not answer (%s); the job goes on, its values are kept in the store of "
                "artifacts and in memory, and sent when it is back", redacted(self._uri), reason(error),
            )  # fmt: skip

    def _refuse(self, outbox: Outbox, kind: str, error: Exception) -> None:
        log.warning("the tracking store refuses %s of the run %s (%s)", kind, outbox.shown, reason(error))
        if kind == "open":
            outbox.error, outbox.ignored = error, True

    def _forget(self, outbox: Outbox, batch: list[Entry]) -> None:
        """Takes what has arrived from the queue, of a run that is ignored everything."""
        gone = len(outbox.entries) if outbox.ignored else len(batch)
        for _ in range(gone):
            self._waiting_reports -= outbox.entries.popleft().kind == "metrics"
        if outbox.closing and not outbox.entries:
            self._outboxes.remove(outbox)
            if outbox.file:
                outbox.file.unlink(missing_ok=True)

    def _send(self, outbox: Outbox, kind: str, values: list[Any]) -> None:
        """Sends one batch of one kind; doing so again changes nothing."""
        client, run_id, value = self._client, outbox.run_id, values[0]
        match kind:
            case "open":
                self._open(outbox)
            case "metrics":
                _send_reports(client, outbox, values)
            case "curve":
                _send_curve(client, run_id, *value)
            case "tags":
                client.log_batch(run_id, tags=[RunTag(*item) for tags in values for item in tags.items()])
            case "file" if Path(value[0]).exists():
                client.log_artifact(run_id, *value)
            case "file":
                log.warning("%s was deleted before it could be copied to run %s", value[0], run_id)
            case "text":
                client.log_text(run_id, *value)
            case "datasets":
                log_datasets(client, run_id, value)
            case "made":
                log_made(client, run_id, *value)
            case "used":
                log_used(client, run_id, value)
            case "model":
                outbox.models[value["fingerprint"]] = model_id_of(client, run_id, value)
            case "watch":
                _start_monitor(outbox, self._uri)
            case "end":
                self._end(outbox, *value)

    def _open(self, outbox: Outbox) -> None:
        opened = open_run(self._client, self._experiment_id, outbox.request, self._home)
        with self._changed:
            outbox.run_id, outbox.last_steps = opened.run_id, opened.last_steps
            outbox.has_gaps |= opened.is_resumed
            outbox.ignored = not opened.is_open

    def _end(self, outbox: Outbox, status: str, at: int) -> None:
        _stop_monitor(outbox)
        self._client.set_tag(outbox.run_id, STATUS, status)
        self._client.set_terminated(outbox.run_id, STATUSES[status], at)
        if status == "finished":
            close_superseded_runs(self._client, self._experiment_id, outbox.run_id, outbox.request.tags)


def _size(entry: Entry) -> int:
    """How much of a batch an entry takes."""
    if entry.kind == "metrics":
        return len(entry.value[2])
    return len(entry.value) if entry.kind == "tags" else 1


def _send_reports(client: MlflowClient, outbox: Outbox, values: list[Any]) -> None:
    """Metrics at steps. A key's step that the run has is left out: a worker that resumes from a checkpoint logs the
    same steps again.
    """
    last_steps, rows = dict(outbox.last_steps), []
    for at, step, report, model, dataset in values:
        new = {key: value for key, value in report.items() if last_steps.get(key, -1) < step}
        last_steps.update(dict.fromkeys(new, step))
        about: dict[str, str] = {}
        if model_id := outbox.models.get(model):
            name, digest = dataset
            about = {"model_id": model_id, "dataset_name": name, "dataset_digest": digest, "run_id": outbox.run_id}
        for key, value in new.items():  # one that is not finite is the run's alone: to a model MLflow would call it 0
            rows.append(Metric(key, value, at, step, **(about if math.isfinite(value) else {})))
    client.log_batch(outbox.run_id, metrics=rows)
    outbox.last_steps = last_steps


def _send_curve(client: MlflowClient, run_id: str, key: str, points: Points) -> None:
    """The points of a training that the run lacks, whole points in one request."""
    steps = {metric.step for metric in client.get_metric_history(run_id, key)}
    now, rows = int(time.time() * 1000), list[Metric]()
    for step, report in points(steps):
        if len(rows) + len(report) > LIMITS["metrics"]:
            client.log_batch(run_id, metrics=rows)
            rows = []
        rows += [Metric(name, value, now, step) for name, value in report.items()]
    client.log_batch(run_id, metrics=rows)


def _start_monitor(outbox: Outbox, uri: str) -> None:
    """How busy this machine is, as MLflow measures it on a thread; the thread ends at the first answer that fails."""
    is_off = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.is_set() and not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get()
    if not is_off:
        resumes = outbox.has_gaps
        outbox.monitor = SystemMetricsMonitor(outbox.run_id, SAMPLE_S, SAMPLES, resumes, tracking_uri=uri)
        outbox.monitor.start()


def _stop_monitor(outbox: Outbox) -> None:
    if outbox.monitor:
        outbox.monitor.finish()
        outbox.monitor = None


def unsent_files(home: Path, uri: str) -> list[Path]:
    """Files of what jobs of this home could not send to this store, a run each."""
    return sorted((home / "mlflow-unsent").glob(f"{_store(uri)}-*.jsonl"))


def _store(uri: str) -> str:
    """A short name for a store that does not give its credentials away."""
    return hashlib.sha256(redacted(uri).encode()).hexdigest()[:8]


def _write_unsent(outbox: Outbox, home: Path, uri: str) -> None:
    """Writes a run's entries to a file, which is only then seen, or says that this is not possible."""
    request = asdict(outbox.request) | {"run_id": outbox.run_id or outbox.request.run_id}
    lines = [request, *(_as_data(outbox, entry) for entry in outbox.entries if entry.kind not in ("open", "watch"))]
    path = home / "mlflow-unsent" / f"{_store(uri)}-{outbox.request.token}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text("".join(json.dumps(line) + "\n" for line in lines))
        path.with_suffix(".new").replace(path)
    except OSError as error:
        log.warning("%s cannot be written (%s); values of %s are not tracked", path, error.strerror, outbox.shown)


def _as_data(outbox: Outbox, entry: Entry) -> list[Any]:
    if entry.kind != "curve":
        return list(entry)
    key, points = entry.value
    return ["curve", [key, list(points(())) if outbox.has_gaps else []]]


def _read_unsent(path: Path) -> Outbox:
    request, *entries = map(json.loads, path.read_text().splitlines())
    outbox = Outbox(RunRequest(**request))
    outbox.file, outbox.closing = path, True
    outbox.entries += [Entry(kind, _recall(kind, value)) for kind, value in entries]
    return outbox


def _recall(kind: str, value: Any) -> Any:
    if kind != "curve":
        return value
    key, points = value
    return key, lambda steps: [(step, report) for step, report in points if step not in steps]
