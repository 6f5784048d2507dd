"""One tracked run, open to be written to by any thread of the driver. Everything goes through the journal."""

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from midmask.redaction import redacted
from midmask.tracking.journal import JournalEntry
from midmask.tracking.lineage import Dataset, MetricRow, TrackedModel, datasets_entry, measured_entry, model_entry
from midmask.tracking.names import LONGEST_PARAM, LONGEST_TAG, check_key, shorten
from midmask.tracking.sender import LIMITS, Outbox, Sender

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
        if found := list(datasets):
            self._sender.put(self._outbox, JournalEntry("datasets", datasets_entry(found)))

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
    """Strings as they are, all else as JSON, so that both can be read back."""
    texts = {check_key(key): value if isinstance(value, str) else json.dumps(value) for key, value in params.items()}
    return {key: shorten(redacted(text), LONGEST_PARAM) for key, text in texts.items()}


def tags_as_texts(tags: Mapping[str, str]) -> dict[str, str]:
    return {check_key(key): shorten(redacted(str(value)), LONGEST_TAG) for key, value in tags.items()}
