"""Which run of the store a step's values go to: the unfinished one that no living process writes, else a new one.

`midmask.owner` names the process that writes a run: host, process id and the time that process started. The next job on
that host marks a run whose process is gone as killed. Other hosts cannot tell; there it is marked when the same step is
finished by another run, as no two processes make a step at once. Runs of earlier versions have no owner.
"""

import fcntl
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Param, Run, RunTag
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils import get_results_from_paginated_fn

from midmask.core.process import start_of
from midmask.core.redaction import redacted
from midmask.tracking.names import EXECUTOR, LONGEST_PARAM, LONGEST_TAG, check_key, shorten

FINGERPRINT, STEP, STATUS = "midmask.fingerprint", "midmask.step", "midmask.status"
OWNER = "midmask.owner"
TOKEN = "midmask.token"
PARENT = "mlflow.parentRunId"

PAGE = 1000
"""Runs that are asked for at once."""

LOCK = "mlflow-runs.lock"
"""The file of a home that is locked while a run is chosen, so that two jobs do not resume one run."""

STATUSES = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED", "pruned": "KILLED", "cached": "FINISHED"}
"""`midmask.status` of a run that has ended -> MLflow's own word."""


def now() -> int:
    """The time in MLflow's milliseconds."""
    return int(time.time() * 1000)


@cache
def owner() -> str:
    """This process, as the tag `midmask.owner` names it."""
    return f"{_host()}:{os.getpid()}:{start_of(os.getpid())}"


@cache
def _host() -> str:
    """This machine, and the namespace that its process ids are of, as a short name that outlives a restart."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts += [Path("/etc/machine-id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def is_gone(tags: Mapping[str, str]) -> bool:
    """Whether the process that writes a run was one of this host and has ended."""
    host, pid, start = tags.get(OWNER, "::").split(":")
    return host == _host() and start_of(int(pid)) != start


def is_written(run: Run) -> bool:
    """Whether a process writes the run, as far as this host can tell: those of other hosts are believed to live."""
    return run.info.status == "RUNNING" and OWNER in run.data.tags and not is_gone(run.data.tags)


def mark_killed(client: MlflowClient, run: Run) -> None:
    client.set_tag(run.info.run_id, STATUS, "killed")
    client.set_terminated(run.info.run_id, STATUSES["killed"])


def close_dead_runs(client: MlflowClient, experiment_id: str) -> int:
    """Marks as killed the runs of this host's processes that are gone; how many."""
    running = get_results_from_paginated_fn(  # all are read first, as marking moves the pages
        lambda count, token: client.search_runs(
            [experiment_id], "attributes.status = 'RUNNING'", max_results=count, page_token=token
        ),
        PAGE,
    )
    dead = [run for run in running if is_gone(run.data.tags)]
    for run in dead:
        mark_killed(client, run)
    return len(dead)


@dataclass(frozen=True)
class Found:
    """Runs of one fingerprint and step: the finished one, and those that ended too early, newest first."""

    finished: str | None
    unfinished: tuple[str, ...]


def runs_of(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> list[Run]:
    """Runs with the same fingerprint and step, newest first; none if the tags lack one of them."""
    if not {FINGERPRINT, STEP} <= tags.keys():
        return []
    query = " and ".join(f"tags.`{name}` = '{tags[name]}'" for name in (FINGERPRINT, STEP))
    return list(client.search_runs([experiment_id], query, order_by=["start_time DESC"]))


def _in_status(runs: list[Run], *statuses: str) -> list[Run]:
    return [run for status in statuses for run in runs if run.data.tags.get(STATUS, "running") == status]


def find(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> Found:
    """The runs of this fingerprint and step; cached and pruned ones do not count."""
    runs = runs_of(client, experiment_id, tags)
    finished, unfinished = _in_status(runs, "finished"), _in_status(runs, "running", "killed", "failed")
    return Found(finished[-1].info.run_id if finished else None, tuple(run.info.run_id for run in unfinished))


@dataclass
class RunRequest:
    """A run that a job asked for, with all that is needed to make it later."""

    name: str
    tags: dict[str, str]
    params: dict[str, str]
    cached_run: str = ""  # the finished run that this one only links
    unless_finished: bool = False  # whether it is only a link if the step has a finished run, which nobody could ask
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # by which the run is known if an answer was lost
    tried: bool = False
    asked: int = field(default_factory=now)  # when, as its start: the store may be seconds behind


def open_run(client: MlflowClient, experiment_id: str, request: RunRequest, home: Path) -> tuple[str, dict[str, int]]:
    """Finds or makes the run: its id, and the last step of each of its metrics. After an answer that was lost, call it
    again: the token of the request leads to the run.

    A run that is resumed keeps the params that it has, which are immutable: only runtime fields can differ.
    """
    with open(home / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = _choose(client, experiment_id, request)
        run_id, stored = run.info.run_id, run.data.params
        tags = {**request.tags, TOKEN: request.token}
        client.log_batch(run_id, tags=[RunTag(*item) for item in tags.items() if run.data.tags.get(item[0]) != item[1]])
        if run.info.status != "RUNNING":
            client.update_run(run_id, status="RUNNING")
    if request.cached_run:
        client.set_terminated(run_id, STATUSES["cached"])
    else:
        client.log_batch(run_id, params=[Param(*item) for item in request.params.items() if item[0] not in stored])
    return run_id, {metric.key: metric.step for metric in run.data.to_proto().metrics}


def _choose(client: MlflowClient, experiment_id: str, request: RunRequest) -> Run:
    """The run that an earlier attempt has chosen, else one to resume, else a new one."""
    tried, request.tried = request.tried, True
    if tried and (chosen := client.search_runs([experiment_id], f"tags.`{TOKEN}` = '{request.token}'")):
        return chosen[0]
    runs = runs_of(client, experiment_id, request.tags)
    if request.unless_finished and (finished := _in_status(runs, "finished")):
        request.cached_run = finished[-1].info.run_id
    if request.cached_run:
        request.tags |= {STATUS: "cached", "midmask.cached_run": request.cached_run}
        if executor := client.get_run(request.cached_run).data.tags.get(EXECUTOR):
            request.tags[EXECUTOR] = executor
    else:
        for run in _in_status(runs, "running", "killed", "failed"):
            if not is_written(run):
                return run
    tags = {**source_tags(), **tags_as_texts(request.tags), TOKEN: request.token}
    return client.create_run(experiment_id, start_time=request.asked, tags=tags, run_name=request.name)


def close_superseded_runs(client: MlflowClient, experiment_id: str, run_id: str, tags: Mapping[str, str]) -> None:
    """Marks as killed what other hosts have left running of a step that this run has finished."""
    for run in runs_of(client, experiment_id, tags):
        host = run.data.tags.get(OWNER, "").partition(":")[0]
        if run.info.status == "RUNNING" and run.info.run_id != run_id and host != _host():
            mark_killed(client, run)


@cache
def source_tags() -> dict[str, str]:
    """Who runs what, at which commit, as MLflow finds out and shows it (`mlflow.source.git.commit`)."""
    return tags_as_texts(resolve_tags())


def params_as_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Params as texts: strings as they are, all else as JSON, so that both can be read back."""
    texts = {check_key(key): value if isinstance(value, str) else json.dumps(value) for key, value in params.items()}
    return {key: shorten(redacted(text), LONGEST_PARAM) for key, text in texts.items()}


def tags_as_texts(tags: Mapping[str, str]) -> dict[str, str]:
    return {check_key(key): shorten(redacted(str(value)), LONGEST_TAG) for key, value in tags.items()}
