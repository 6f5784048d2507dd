"""Tracked runs, as a job's driver writes them, from any of its threads; all that is written goes through the sender.

Workers never hold a tracker: they hand their values to the driver.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from midmask.core.redaction import redacted
from midmask.tracking.lineage import Dataset, TrackedModel, dataset_input, log_made, log_used
from midmask.tracking.names import check_key
from midmask.tracking.opening import (
    FINGERPRINT,
    LOCK,
    OWNER,
    PARENT,
    STATUS,
    STATUSES,
    STEP,
    Found,
    RunRequest,
    close_dead_runs,
    close_superseded_runs,
    find,
    now,
    owner,
    params_as_texts,
    tags_as_texts,
)
from midmask.tracking.sending import Entry, Outbox, Points, Sender
from midmask.tracking.store import FAILURES, Patience, create_store, explained, patiently

log = logging.getLogger(__name__)


class TrackedRun(Outbox):
    """One open run, a context or ended by `finish`. Methods return at once and may be called from any thread."""

    def __init__(self, sender: Sender, request: RunRequest) -> None:
        super().__init__(request)
        self._sender = sender
        sender.open(self)

    @property
    def id(self) -> str:
        """The run's id in the store. The first use waits for the store, and raises UserError if that is away."""
        return self._sender.run_id(self)

    def _put(self, kind: str, send: Callable[[MlflowClient], object]) -> None:
        self._sender.put(self, Entry(kind, send))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Metrics at a step. A key's step that was logged before, in this process or in the run that is resumed, is
        dropped: a worker that resumes from a checkpoint logs the same steps again.
        """
        at = now()
        report = [Metric(check_key(key), float(value), at, step) for key, value in values.items()]
        self._sender.put(self, Entry("metrics", can_be_left_out=False, report=report))

    def log_lacking(self, key: str, points: Points) -> None:
        """Logs the points of a curve that the run lacks in the end: a kill, or a long outage, may have lost some.

        Args:
            key: a metric that every point has. points: gives the points beside steps that the run has of it.
        """
        self._put("curve", partial(self.send_curve, key, points, now()))

    def log_inputs(self, datasets: Iterable[Dataset]) -> None:
        """Logs collections as the run's inputs; one that it has already keeps the context that it had first."""
        if collections := list(map(dataset_input, datasets)):
            self._put("datasets", lambda client: client.log_inputs(self.run_id, datasets=collections))

    def log_output_model(self, model: TrackedModel, at: int) -> None:
        """Logs a model as the run's output, at this training step. Nothing is copied."""
        self._put("made", lambda client: log_made(client, self.run_id, model, at))

    def log_input_model(self, model: TrackedModel) -> None:
        """Logs a model as the run's input."""
        self._put("used", lambda client: log_used(client, self.run_id, model))

    def describe(self, markdown: str) -> None:
        """The text at the top of the run's page, in place of an earlier one."""
        self.tag({"mlflow.note.content": markdown})

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Copies a file into the run's artifacts, later: it must stay until then."""
        place = path.absolute()

        def send(client: MlflowClient) -> None:
            if place.exists():
                client.log_artifact(self.run_id, str(place), folder)
            else:
                log.warning("%s was deleted before it could be copied to run %s", place, self.run_id)

        self._put("file", send)

    def log_text(self, text: str, name: str) -> None:
        self._put("text", lambda client: client.log_text(self.run_id, redacted(text), name))

    def tag(self, tags: Mapping[str, str]) -> None:
        rows = [RunTag(*item) for item in tags_as_texts(tags).items()]
        if rows:
            send = lambda client: client.log_batch(self.run_id, tags=rows)  # noqa: E731
            self._sender.put(self, Entry("tags", send, can_be_left_out=False))

    def watch(self) -> None:
        """Logs how busy this machine is into the run, until it is finished; nothing if that takes seconds only."""
        self.tag({"midmask.host": socket.gethostname()})
        self._put("watch", lambda client: self.start_monitor(self._sender.uri))

    def finish(self, status: str = "finished") -> None:
        """Ends the run; `status` is finished, failed, killed or pruned. A second call changes nothing."""
        if not self.is_open:
            return
        ended = now()

        def end(client: MlflowClient) -> None:
            self.stop_monitor()
            client.set_tag(self.run_id, STATUS, status)
            client.set_terminated(self.run_id, STATUSES[status], ended)
            if status == "finished":
                close_superseded_runs(client, self._sender.experiment_id, self.run_id, self.request.tags)

        self._sender.put(self, Entry("end", end, can_be_left_out=False), is_last=True)

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


class Tracker:
    """The one writer of a job. Making it creates the store, and marks the runs of jobs that were killed on this host.

    Args:
        uri: as `resolve_tracking_uri` gives it.
        home: the folder that holds `mlartifacts/`.

    Raises:
        UserError: if the store stays away longer than `patience.answer`.
    """

    def __init__(self, uri: str, home: Path, patience: Patience = Patience()) -> None:  # noqa: B008 (frozen)
        home = home.absolute()
        with explained(uri):  # a home that may not be written is refused now
            home.mkdir(parents=True, exist_ok=True)
            (home / LOCK).touch()
        self._client, self.experiment_id = patiently(lambda: create_store(uri, home), uri, patience)
        if closed := patiently(lambda: close_dead_runs(self._client, self.experiment_id), uri, patience):
            log.info("marked %d run(s) as killed: the jobs that wrote them have ended", closed)
        self._sender = Sender(self._client, self.experiment_id, uri, home, patience)
        self._runs: list[TrackedRun] = []

    def find(self, fingerprint: str, *, step: str) -> Found:
        """Finds the run of a step with this fingerprint in the store; cached and pruned runs do not count. While the
        store is away nothing is found.
        """
        try:
            if self._sender.drain():
                return find(self._client, self.experiment_id, {FINGERPRINT: fingerprint, STEP: step})
        except FAILURES as error:
            self._sender.note_outage(error)
        return Found(None, ())

    def run(
        self,
        name: str,
        *,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        parent: str | None = None,
        cached_run: str = "",
    ) -> TrackedRun:
        """A run to write to: the unfinished one of the same `midmask.fingerprint` and `midmask.step` if no living
        process writes it, else a new one. Ask `find` first whether a finished one makes all this unnecessary.

        Args:
            params: dotted config path -> plain value, logged once.
            parent: the id of the run that this one is nested in.
            cached_run: the id of a finished run that this one only links, because nothing was computed.
        """
        all_tags = {**tags, STATUS: "running", OWNER: owner(), **({PARENT: parent} if parent else {})}
        request = RunRequest(redacted(name), tags_as_texts(all_tags), params_as_texts(params), cached_run)
        run = TrackedRun(self._sender, request)
        self._runs = [*(other for other in self._runs if other.is_open), run]
        return run

    def link_finished(self, name: str, tags: Mapping[str, str], parent: str | None) -> str | None:
        """The id of the finished run with the fingerprint and step of these tags, to which a small run now links."""
        finished = self.find(tags[FINGERPRINT], step=tags[STEP]).finished
        if finished:
            self.run(f"{name} (cached)", tags=tags, params={}, parent=parent, cached_run=finished)
        return finished

    def close(self) -> None:
        """Sends what is left, for `patience.close` seconds at most."""
        if unsent := self._sender.close():
            log.warning(
                "values of %d run(s) have not reached the tracking store %s; the same command, given again, computes "
                "nothing twice and logs them", unsent, redacted(self._sender.uri),
            )  # fmt: skip

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends every open run as failed, or as killed after an interrupt, and closes."""
        for run in self._runs if kind is not None else []:
            run.finish(status_after(kind))
        self.close()
