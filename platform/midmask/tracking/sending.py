"""A run's values on their way to the store: a bounded queue in memory, and one background thread that empties it.

    log() in any thread -> queue -> the thread -> store

A store that is away costs one warning per outage: values wait, and attempts go on with growing pauses. An attempt whose
answer was lost is made again with the same time stamps, so that to MLflow each value is the same one. What the store
refuses for good (a run that a person deleted, models where the server is too old to know them) is a warning, and the
rest goes on. What has not arrived when a job ends, or is killed, lies in the store of artifacts: the same command,
given again, computes nothing twice and logs all of it.

MLflow's own asynchronous logging drops a batch after its retries, sends a run's values from ten threads in any order,
and carries no files, inputs, outputs and ends.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from midmask.core.redaction import redacted
from midmask.errors import UserError
from midmask.tracking.opening import RunRequest, open_run
from midmask.tracking.store import EXPERIMENT, FAILURES, Patience, is_refusal, reason, unreachable

log = logging.getLogger(__name__)

AT_ONCE = 1000
"""Metrics of the largest batch that MLflow accepts; MAX_METRICS_PER_BATCH of its validation."""

MOST_WAITING = 50_000
"""Entries of a run that wait in memory, some 100 MB. Later reports are dropped: a training's are logged again from its
trace."""

SAMPLE_S, SAMPLES = 10, 3
"""Seconds between samples of the machine, and samples whose mean is a point, unless MLflow's variables differ."""

Points = Callable[[Collection[int]], Iterable[tuple[int, dict[str, float]]]]
"""Steps that the store has -> (step, {key: value}) of those that it lacks."""


class Entry(NamedTuple):
    """What a run has to send."""

    kind: str  # as a warning calls it
    send: Callable[[MlflowClient], object] = lambda client: None  # doing so again changes nothing
    # whether it may fail for reasons of its own: a folder that cannot be written, a server that knows no models
    can_be_left_out: bool = True
    report: Sequence[Metric] = ()  # of a step; reports in a row are sent together, in place of `send`


class Outbox:
    """A run's entries that have not arrived, and what the thread knows of the run. Guarded by the sender's lock."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.run_id = ""
        self.entries = deque[Entry]()
        self.is_open = not request.cached_run  # whether more may be put into it
        self.ignored = False  # whether nothing more is sent: the run was refused, or is a link
        self.error: Exception | None = None  # why it was refused
        self.last_steps: dict[str, int] = {}
        self.monitor: SystemMetricsMonitor | None = None

    @property
    def shown(self) -> str:
        return self.run_id or self.request.name

    def send_reports(self, client: MlflowClient, reports: Iterable[Sequence[Metric]]) -> None:
        """A key's step that the run has is left out: a worker that resumes from a checkpoint logs the same again."""
        last_steps, rows = dict(self.last_steps), list[Metric]()
        for report in reports:
            new = [metric for metric in report if last_steps.get(metric.key, -1) < metric.step]
            last_steps.update({metric.key: metric.step for metric in new})
            rows += new
        client.log_batch(self.run_id, metrics=rows)
        self.last_steps = last_steps

    def send_curve(self, key: str, points: Points, at: int, client: MlflowClient) -> None:
        """The points of a training that the run lacks, whole points in one request."""
        rows: list[Metric] = []
        for step, report in points({metric.step for metric in client.get_metric_history(self.run_id, key)}):
            if len(rows) + len(report) > AT_ONCE:
                client.log_batch(self.run_id, metrics=rows)
                rows = []
            rows += [Metric(name, value, at, step) for name, value in report.items()]
            self.last_steps |= {name: max(step, self.last_steps.get(name, step)) for name in report}
        client.log_batch(self.run_id, metrics=rows)

    def start_monitor(self, uri: str) -> None:
        """How busy this machine is, as MLflow measures it, on a thread that ends at the first answer that fails."""
        is_on = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
        if is_on.get() or not is_on.is_set():
            self.monitor = SystemMetricsMonitor(self.run_id, SAMPLE_S, SAMPLES, resume_logging=True, tracking_uri=uri)
            self.monitor.start()

    def stop_monitor(self) -> None:
        if self.monitor:
            self.monitor.finish()
            self.monitor = None


class Sender:
    """The queue and its thread. Every method may be called from any thread."""

    def __init__(self, client: MlflowClient, experiment_id: str, uri: str, home: Path, patience: Patience) -> None:
        self.uri, self.experiment_id = uri, experiment_id
        self._client, self._home, self._patience = client, home, patience
        self._outboxes: list[Outbox] = []
        self._away: Exception | None = None
        self._hurried = 0
        self._stopped = False
        self._changed = threading.Condition()
        logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
        self._thread = threading.Thread(target=self._send_until_stopped, name="midmask-tracking", daemon=True)
        self._thread.start()

    def open(self, outbox: Outbox) -> None:
        """Opens the run as soon as the store answers."""
        with self._changed:
            outbox.request.unless_finished = self._away is not None
            outbox.entries.append(Entry("open", partial(self._open, outbox), can_be_left_out=False))
            self._outboxes.append(outbox)
            self._changed.notify_all()

    def put(self, outbox: Outbox, entry: Entry, *, is_last: bool = False) -> None:
        """Queues an entry; none may follow the last.

        Raises:
            RuntimeError: if the run was finished.
        """
        with self._changed:
            if not outbox.is_open:
                raise RuntimeError(f"run {outbox.shown} is finished; {entry.kind} came too late")
            outbox.is_open = not is_last
            is_dropped = entry.report and len(outbox.entries) >= MOST_WAITING
            if not (outbox.ignored or is_dropped):
                outbox.entries.append(entry)
            self._changed.notify_all()

    def run_id(self, outbox: Outbox) -> str:
        """The run's id; waits for the store.

        Raises:
            UserError: if the store is away, or refuses the run.
        """
        self._wait(lambda: bool(outbox.run_id or outbox.error or self._away), self._patience.answer)
        if not outbox.run_id:
            error = outbox.error or self._away or TimeoutError("no answer in time")
            raise UserError(unreachable(self.uri, error))
        return outbox.run_id

    def drain(self) -> bool:
        """Waits until everything has arrived; False if the store is away."""
        self._wait(lambda: not self._is_waiting() or self._away is not None, self._patience.answer)
        return not self._is_waiting()

    def close(self) -> int:
        """Waits for `patience.close` seconds at most, and ends the thread; of how many runs something is left."""
        self._wait(lambda: not self._is_waiting(), self._patience.close)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(self._patience.retry)
        for outbox in self._outboxes:
            outbox.stop_monitor()
        return sum(bool(outbox.entries) for outbox in self._outboxes)

    def note_outage(self, error: Exception) -> None:
        """From now on the store is away, until the thread has sent something; a warning, once."""
        with self._changed:
            is_new, self._away = self._away is None, error
            self._changed.notify_all()
        if is_new:
            log.warning(
                "the tracking store %s does not answer (%s); the job goes on, its values are kept in the store of "
                "artifacts and in memory, and sent when it is back", redacted(self.uri), reason(error),
            )  # fmt: skip

    def _wait(self, until: Callable[[], bool], seconds: float) -> None:
        """Waits, and lets the thread send at once meanwhile."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: until() or self._stopped, seconds)
            self._hurried -= 1

    def _is_waiting(self) -> bool:
        return any(outbox.entries for outbox in self._outboxes)

    def _send_until_stopped(self) -> None:
        while not self._stopped:
            with self._changed:
                self._changed.wait_for(lambda: self._is_waiting() or self._stopped)
                self._changed.wait_for(lambda: self._hurried or self._stopped, self._patience.flush)
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
                size += len(entry.report) or AT_ONCE
                if batch and (not entry.report or size > AT_ONCE):
                    break
                batch.append(entry)
            return batch

    def _deliver(self, outbox: Outbox, batch: list[Entry]) -> bool:
        """Sends one batch, for as long as it takes; False if the sender was closed meanwhile."""
        first, pause, strikes = batch[0], self._patience.retry, 0
        while True:
            try:
                if first.report:
                    outbox.send_reports(self._client, [entry.report for entry in batch])
                else:
                    first.send(self._client)
                break
            except Exception as error:  # MLflow's, its libraries', and those of answers that are not its
                strikes += first.can_be_left_out and self._is_reachable()
                if is_refusal(error) or strikes == 3:
                    text = "the tracking store refuses %s of the run %s (%s)"
                    log.warning(text, first.kind, outbox.shown, reason(error))
                    if not outbox.run_id:
                        outbox.error, outbox.ignored = error, True
                    break
                if not strikes:
                    self.note_outage(error)
            if not self._pause(pause):
                return False
            pause = min(2 * pause, self._patience.longest_retry)
        self._forget(outbox, batch)
        return not self._stopped

    def _pause(self, seconds: float) -> bool:
        """Waits before another attempt: shorter while somebody waits for the store, as a job does at its end; False if
        the sender was closed meanwhile.
        """
        with self._changed:
            hurried = self._hurried
            limit = min(seconds, self._patience.retry) if hurried else seconds
            self._changed.wait_for(lambda: self._hurried > hurried or self._stopped, limit)
        return not self._stopped

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
                log.info("the tracking store %s is back", redacted(self.uri))
            self._away = None
            for _ in range(len(outbox.entries) if outbox.ignored else len(batch)):
                outbox.entries.popleft()
            if not (outbox.is_open or outbox.entries):
                self._outboxes.remove(outbox)
            self._changed.notify_all()

    def _open(self, outbox: Outbox, client: MlflowClient) -> None:
        opened = open_run(client, self.experiment_id, outbox.request, self._home)
        with self._changed:
            outbox.run_id, outbox.last_steps = opened
            outbox.ignored = bool(outbox.request.cached_run)
