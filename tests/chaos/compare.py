"""What two runs of one job have left behind must be equal: artifacts byte by byte, measures to the last digit.

Left out, because they tell how long something took or where it lies: in records and summaries the fields of `TIMES`
and the places of inputs and attempts; in traces the columns of `TIMES`.
"""

import hashlib
import json
import os
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from mlflow.entities import ViewType

from midmask.artifact import RECORD, Place, load
from midmask.tracking.reading import TrackedRow, read_runs
from midmask.tracking.store import EXPERIMENT, connect

TIMES = re.compile(r"seconds|_ms_|data_wait|first_after_start|per_second|rung_share|_hours")
"""Fields, columns and metrics that tell how long something took."""

CURVES = ("pretrain/", "finetune/", "teach/")

PLACED = ("inputs", "attempt", "files", "report")
"""Fields of a record that name places, sizes and digests of files, which are compared themselves, and a sweep's report,
whose text tells times; its numbers are in `sweep.json`."""


def artifacts(home: Path) -> Iterator[tuple[Path, Path, list[Path]]]:
    """Record, folder and files of every finished artifact."""
    for record in sorted((home / "store").glob(f"*/*/{RECORD}")):
        artifact = load(Place(str(record.parent)))
        folder = artifact.place.local()
        listed = artifact.record.get("files")
        names = listed if listed is not None else [path for path in folder.rglob("*") if path.is_file()]
        yield record, folder, sorted({folder / name for name in names} - {record})


def contents(home: Path) -> dict[str, str]:
    """`STEP/FINGERPRINT/FILE` -> digest of what of it must be equal in every run."""
    found: dict[str, str] = {}
    for record, folder, files in artifacts(home):
        name = f"{record.parent.parent.name}/{record.parent.name}"
        found[f"{name}/{RECORD}"] = _digest(equal_part(json.loads(record.read_text()), home))
        for path in files:
            found[f"{name}/{path.relative_to(folder)}"] = _digest(_of_file(path, home))
    return found


def unfinished(home: Path) -> set[str]:
    """Files in the store that belong to no finished artifact."""
    store = home / "store"
    known = {path for record, _, files in artifacts(home) for path in (record, *files)}
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file() and path not in known}


def _of_file(path: Path, home: Path) -> bytes:
    if path.name == "trace.parquet":
        rows = pq.read_table(path).to_pylist()
        return equal_part([{key: value for key, value in row.items() if not TIMES.search(key)} for row in rows], home)
    if path.name == "sweep.json":
        return equal_part(json.loads(path.read_text()), home)
    return path.read_bytes()


def equal_part(value: Any, home: Path, left_out: Container[str] = PLACED) -> bytes:
    """JSON of what must be equal: without times, and without these fields."""

    def pick(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: pick(inner) for key, inner in value.items() if not TIMES.search(str(key)) and key not in left_out
            }
        return [pick(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(pick(value), sort_keys=True).replace(str(home), "HOME").encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """One line for every file that only one run has, or that differs."""
    lines = [f"only in the undisturbed run: {name}" for name in sorted(expected.keys() - found.keys())]
    lines += [f"only in the killed run: {name}" for name in sorted(found.keys() - expected.keys())]
    both = sorted(expected.keys() & found.keys())
    return lines + [f"differs: {name}" for name in both if expected[name] != found[name]]


def identities(home: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, time and size of every file of every finished artifact."""
    found = {}
    for record, _, files in artifacts(home):
        for path in (record, *files):
            stat = os.stat(path)
            found[str(path.relative_to(home))] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return found


def rewritten(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> list[str]:
    """One line for every file of a finished artifact that was changed or removed since."""
    return [f"written again after it was finished: {name}" for name in before if after.get(name) != before[name]]


def tracking_uri(home: Path) -> str:
    return f"sqlite:///{home}/mlflow.db"


def tracked(uri: str, killed: int = 0) -> list[str]:
    """What is wrong with the runs of a finished job: not one finished parent, two finished runs of a step, a run that
    is still running.

    Args:
        killed: how many drivers ended on another host, whose runs no later one could go on with.
    """
    runs = read_runs(uri)
    parents = [run for run in runs if run.parent_id is None]
    lines = []
    if sorted(run.status for run in parents) not in [["finished", *["killed"] * count] for count in range(killed + 1)]:
        lines.append(f"parent runs: {', '.join(f'{run.name} {run.status}' for run in parents) or 'none'}")
    lines += [f"still running: {run.name}" for run in runs if run.status == "running"]
    client = connect(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    still = client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'", ViewType.ALL)
    lines += [f"RUNNING in MLflow: {run.info.run_name}" for run in still]
    names = [(run.tags["midmask.step"], run.tags["midmask.fingerprint"]) for run in runs if run.status == "finished"]
    return lines + [f"finished twice: {name}" for name in sorted(set(names)) if names.count(name) > 1]


def metrics(home: Path) -> dict[str, str]:
    """`STEP FINGERPRINT METRIC` -> value in MLflow, of finished runs, without times and the machine.

    Curves of trainings are left out too: of those, what a killed driver had not yet written down is missing. Every step
    is in the training's trace.
    """
    return {
        f"{run.tags['midmask.step']} {run.tags['midmask.fingerprint']} {name}": repr(value)
        for run in read_runs(tracking_uri(home))
        if run.status == "finished"
        for name, value in run.metrics.items()
        if _is_result(run, name)
    }


def _is_result(run: TrackedRow, name: str) -> bool:
    return not TIMES.search(name) and not name.startswith(("system/", "cost/", *CURVES))
