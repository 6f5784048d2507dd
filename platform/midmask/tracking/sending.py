"""A run's values on their way to the store: a bounded queue in memory, and one background thread that empties it.

    log() in any thread -> queue -> the thread -> store

A store that is away costs one warning per outage: values wait, and attempts go on with growing pauses. An attempt whose
answer was lost is made again with the same time stamps, so that to MLflow each value is the same one. What the store
refuses for good (a run that a person deleted, models where the server is too old to know them) is a warning, and the
rest goes on. What has not arrived when the job ends is written to `<home>/mlflow-unsent`, from where the next job or
`midmask doctor --resend` sends it. A killed job leaves no such file: given again, its command logs the curves of its
trainings from the store of artifacts.

MLflow's own asynchronous logging drops a batch after its retries, sends a run's values from ten threads in any order,
and carries no files, inputs, outputs and ends.
"""

import hashlib
import json
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
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

AT_ONCE = 1000
"""Metrics of the largest batch that MLflow accepts; MAX_METRICS_PER_BATCH of its validation."""

MOST_WAITING = 50_000
"""Reports that wait in memory, some 100 MB. Later ones are dropped: a training's are logged again from its trace."""

SAMPLE_S, SAMPLES = 10, 3
"""Seconds between samples of the machine, and samples whose mean is a point, unless MLflow's variables differ."""

Points = Callable[[Collection[int]], Iterable[tuple[int, dict[str, float]]]]
"""Steps that the store has -> (step, {key: value}) of those that it lacks."""


class Entry(NamedTuple):
    """One entry to send to the store. Kinds and their values:

    open     nothing
    metrics  time in ms, step, {key: value}, fingerprint of the model that was measured or "", [dataset, digest]
    model    as `lineage` has it, before metrics name it
    end      `midmask.status`, time in ms
    watch    nothing
    curve    key whose steps the store has or lacks; Points, or a list of what they give; time in ms
    tags     {name: text}
    file     path, folder in the run's artifacts
    text     text, name in the run's artifacts
    datasets, used, made   as `lineage` sends them
    """

    kind: str
    value: tuple[Any, ...] = ()


class Outbox:
    """A run's entries that have not arrived, and what the thread knows of the run. Guarded by the sender's lock."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.run_id = ""
        self.entries = deque([Entry("open")])
        self.closing = bool(request.cached_run)
        self.ignored = False  # whether nothing more is sent: the run was refused, is a link, or has another writer
        self.error: Exception | None = None  # why it was refused
        self.has_gaps = False  # whether values may have been lost, in a kill or by a full queue
        self.last_steps: dict[str, int] = {}
        self.models: dict[str, str] = {}  # fingerprint -> id of a logged model
        self.monitor: SystemMetricsMonitor | None = None
        self.file: Path | None = None  # that an earlier job has left

    @property
    def shown(self) -> str:
        return self.run_id or self.request.name


class Sender:
    """The queue and its thread. Every method may be called from any thread."""

    def __init__(self, client: MlflowClient, experiment_id: str, uri: str, home: Path, patience: Patience) -> None:
        self._client, self._experiment_id = client, experiment_id
        self._uri, self._home, self._patience = uri, home, patience
        self._outboxes = [_read_unsent(path) for path in unsent_files(home, uri)]
        if self._outboxes:
            log.info("sending values of %d run(s) that an earlier job could not", len(self._outboxes))
        self._waiting_reports = 0
        self._away: Exception | None = None
        self._hurried = 0
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
        self._thread = threading.Thread(target=self._send_until_stopped, name="midmask-tracking", daemon=True)
        self._thread.start()

    def open(self, request: RunRequest) -> Outbox:
        """An outbox for a run, which is opened as soon as the store answers."""
        with self._changed:
            request.unless_finished = self._away is not None
            self._outboxes.append(outbox := Outbox(request))
            self._changed.notify_all()
        return outbox

    def put(self, outbox: Outbox, entry: Entry) -> None:
        """Queues an entry; none may follow an `end`.

        Raises:
            RuntimeError: if the run was finished.
        """
        with self._changed:
            if outbox.closing:
                raise RuntimeError(f"run {outbox.shown} is finished; {entry.kind} came too late")
            outbox.closing = entry.kind == "end"
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
        self._wait(lambda: bool(outbox.run_id or outbox.error or self._away), self._patience.answer)
        if not outbox.run_id and outbox.error:
            raise UserError(unusable(self._uri, outbox.error))
        if not outbox.run_id:
            raise UserError(unreachable(self._uri, self._away or TimeoutError("no answer in time")))
        return outbox.run_id

    def drain(self) -> bool:
        """Waits until everything has arrived; False if the store is away."""
        self._wait(lambda: not self._is_waiting() or self._away is not None, self._patience.answer)
        return not self._is_waiting()

    def close(self) -> int:
        """Waits for `patience.close` seconds at most, writes what is left to disk, and ends the thread; of how many
        runs something is left.
        """
        self._wait(lambda: not self._is_waiting(), self._patience.close)
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(self._patience.retry)
        for outbox in self._outboxes:
            _stop_monitor(outbox)
        left = [outbox for outbox in self._outboxes if outbox.entries]
        for outbox in left:
            _write_unsent(outbox, self._home, self._uri)
        return len(left)

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

    def _wait(self, until: Callable[[], bool], seconds: float) -> None:
        """Waits, and lets the thread send at once meanwhile."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: until() or self._stopped.is_set(), seconds)
            self._hurried -= 1

    def _is_waiting(self) -> bool:
        return any(outbox.entries for outbox in self._outboxes)

    def _send_until_stopped(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._is_waiting() or self._stopped.is_set())
                self._changed.wait_for(lambda: self._hurried or self._stopped.is_set(), self._patience.flush)
                outboxes = [outbox for outbox in self._outboxes if outbox.entries]
            for outbox in outboxes:
                while batch := self._next_batch(outbox):
                    if not self._deliver(outbox, batch):
                        return

    def _next_batch(self, outbox: Outbox) -> list[Entry]:
        """The run's next entry, or next reports, as many as MLflow accepts at once; they stay in the queue."""
        with self._changed:
            batch, size = list[Entry](), 0
            for entry in outbox.entries:
                size += len(entry.value[2]) if entry.kind == "metrics" else AT_ONCE
                if batch and (entry.kind != "metrics" or size > AT_ONCE):
                    break
                batch.append(entry)
            return batch

    def _deliver(self, outbox: Outbox, batch: list[Entry]) -> bool:
        """Sends one batch, for as long as it takes; False if the sender was closed meanwhile."""
        kind, pause, strikes = batch[0].kind, self._patience.retry, 0
        while (error := self._attempt(outbox, batch)) is not None:
            strikes += kind in SPARED and self._is_reachable()
            if is_refusal(error) or strikes == 3:
                log.warning("the tracking store refuses %s of the run %s (%s)", kind, outbox.shown, reason(error))
                if kind == "open":
                    outbox.error, outbox.ignored = error, True
                break
            if not strikes:
                self.note_outage(error)
            if not self._pause(pause):
                return False
            pause = min(2 * pause, self._patience.longest_retry)
        self._forget(outbox, batch)
        return not self._stopped.is_set()

    def _pause(self, seconds: float) -> bool:
        """Waits before another attempt: shorter while somebody waits for the store, as a job does at its end; False if
        the sender was closed meanwhile.
        """
        with self._changed:
            hurried = self._hurried
            limit = min(seconds, self._patience.retry) if hurried else seconds
            self._changed.wait_for(lambda: self._hurried > hurried or self._stopped.is_set(), limit)
        return not self._stopped.is_set()

    def _attempt(self, outbox: Outbox, batch: list[Entry]) -> Exception | None:
        try:
            self._send(outbox, batch)
        except Exception as error:  # MLflow's, its libraries', and ParseError, KeyError, … of answers that are not its
            return error
        return None

    def _is_reachable(self) -> bool:
        """Whether the store itself is there, so that what failed is at fault: where artifacts go, or what it knows."""
        try:
            self._client.get_experiment_by_name(EXPERIMENT)
        except FAILURES:
            return False
        return True

    def _forget(self, outbox: Outbox, batch: list[Entry]) -> None:
        """Takes what has arrived from the queue, of a run that is ignored everything."""
        with self._changed:
            if self._away is not None:
                log.info("the tracking store %s is back", redacted(self._uri))
            self._away = None
            for _ in range(len(outbox.entries) if outbox.ignored else len(batch)):
                self._waiting_reports -= outbox.entries.popleft().kind == "metrics"
            if outbox.closing and not outbox.entries:
                self._outboxes.remove(outbox)
                if outbox.file:
                    outbox.file.unlink(missing_ok=True)
            self._changed.notify_all()

    def _send(self, outbox: Outbox, batch: list[Entry]) -> None:
        """Sends one batch; doing so again changes nothing."""
        kind, value = batch[0]
        match kind:
            case "open":
                self._open(outbox)
            case "metrics":
                _send_reports(self._client, outbox, [entry.value for entry in batch])
            case "curve":
                _send_curve(self._client, outbox, *value)
            case "model":
                outbox.models[value[0]["fingerprint"]] = model_id_of(self._client, outbox.run_id, value[0])
            case "watch":
                _start_monitor(outbox, self._uri)
            case "end":
                self._end(outbox, *value)
            case _:
                SENDERS[kind](self._client, outbox.run_id, *value)

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


def _send_reports(client: MlflowClient, outbox: Outbox, reports: list[Any]) -> None:
    """Metrics at steps. A key's step that the run has is left out: a worker that resumes from a checkpoint logs the
    same steps again.
    """
    last_steps, rows = dict(outbox.last_steps), list[Metric]()
    for at, step, report, model, dataset in reports:
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


def _send_curve(client: MlflowClient, outbox: Outbox, key: str, points: Points | list[Any], at: int) -> None:
    """The points of a training that the run lacks, whole points in one request."""
    steps = {metric.step for metric in client.get_metric_history(outbox.run_id, key)}
    lacking = points(steps) if callable(points) else [point for point in points if point[0] not in steps]
    rows: list[Metric] = []
    for step, report in lacking:
        if len(rows) + len(report) > AT_ONCE:
            client.log_batch(outbox.run_id, metrics=rows)
            rows = []
        rows += [Metric(name, value, at, step) for name, value in report.items()]
        outbox.last_steps |= {name: max(step, outbox.last_steps.get(name, step)) for name in report}
    client.log_batch(outbox.run_id, metrics=rows)


def _send_tags(client: MlflowClient, run_id: str, tags: dict[str, str]) -> None:
    client.log_batch(run_id, tags=[RunTag(*item) for item in tags.items()])


def _send_file(client: MlflowClient, run_id: str, path: str, folder: str | None) -> None:
    if Path(path).exists():
        client.log_artifact(run_id, path, folder)
    else:
        log.warning("%s was deleted before it could be copied to run %s", path, run_id)


SENDERS: dict[str, Callable[..., None]] = {
    **{"tags": _send_tags, "file": _send_file, "text": MlflowClient.log_text},
    **{"datasets": log_datasets, "used": log_used, "made": log_made},
}
"""Kind -> what sends the value of its entries."""

SPARED = {*SENDERS, "model", "curve"} - {"tags"}
"""Kinds that may fail for reasons of their own: a folder that cannot be written, a server that knows no models."""


def _start_monitor(outbox: Outbox, uri: str) -> None:
    """How busy this machine is, as MLflow measures it on a thread; the thread ends at the first answer that fails."""
    is_on = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
    if is_on.get() or not is_on.is_set():
        monitor = SystemMetricsMonitor(outbox.run_id, SAMPLE_S, SAMPLES, outbox.has_gaps, tracking_uri=uri)
        monitor.start()
        outbox.monitor = monitor


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
    path = home / "mlflow-unsent" / f"{_store(uri)}-{outbox.request.token}.jsonl"
    lines: list[Any] = [asdict(outbox.request) | {"run_id": outbox.run_id or outbox.request.run_id}]
    try:
        for kind, value in outbox.entries:
            if kind == "curve" and callable(points := value[1]):
                lines.append([kind, [value[0], list(points(())) if outbox.has_gaps else [], value[2]]])
            elif kind not in ("open", "watch"):
                lines.append([kind, value])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text("".join(json.dumps(line) + "\n" for line in lines))
        path.with_suffix(".new").replace(path)
    except (OSError, UserError) as error:
        log.warning("%s cannot be written (%s); values of %s are not tracked", path, error, outbox.shown)


def _read_unsent(path: Path) -> Outbox:
    request, *entries = map(json.loads, path.read_text().splitlines())
    outbox = Outbox(RunRequest(**request))
    outbox.file, outbox.closing = path, True
    outbox.entries += [Entry(kind, tuple(value)) for kind, value in entries]
    return outbox
