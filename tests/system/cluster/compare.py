"""What two runs of one job have left behind must be equal: artifacts byte by byte, measures to the last digit.

Left out, because they tell how long something took or where it lies: the fields of `TIMES` and, of records, the places
of inputs and attempts; in traces the columns of `TIMES`.

Several workers add the gradients of their shares in another order than one process does. Where a weight's gradient is
nearly nothing but rounding, AdamW makes steps of it as large as of any other, so some weights differ although losses do
not. Trainings on a cluster are therefore held against those of one process by their losses; all else is made again on
one machine from the cluster's weights, and must be equal byte for byte.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from mlflow.entities import ViewType

from midmask.store.artifact import RECORD, load
from midmask.store.place import Place
from midmask.tracking.reading import read_runs
from midmask.tracking.store import EXPERIMENT, connect
from tests.system.cluster.work import Work, run_here

TIMES = re.compile(r"seconds|_ms_|data_wait|first_after_start|per_second|_hours")
"""Fields, columns and metrics that tell how long something took."""

TRAININGS = ("pretrain", "finetune", "teach")
"""Steps whose weights depend on how many workers there are."""

NOT_RESULTS = ("system/", "cost/", *(f"{step}/" for step in TRAININGS))
"""Metrics of the machine, and curves: of those, what a killed driver had not yet written down is missing. Every step is
in the training's trace."""

PLACED = ("inputs", "attempt", "files", "report")
"""Fields of a record that name places, sizes and digests of files, which are compared themselves, and a sweep's report,
whose text tells times; its numbers are in `sweep.json`."""

OF_RUN = ("workers", "threads", "name", *PLACED)
"""Fields that say how or where something was made, which differs between a cluster and one machine."""

LOSS_ALIKE, LEXICAL_ALIKE = 1e-4, 1e-3
"""Largest relative difference of a loss by rounding, which AdamW enlarges from stage to stage, and of one by lexical
views: each word has the highest of its tokens' weights; where these are nearly equal, rounding tells which token gets
the gradient.
"""


def artifacts(home: Path) -> Iterator[tuple[Path, Path, list[Path]]]:
    """Record, folder and files of every finished artifact."""
    for record in sorted((home / "store").glob(f"*/*/{RECORD}")):
        artifact = load(Place(str(record.parent)))
        folder = artifact.place.local()
        names = artifact.record.get("files", [path for path in folder.rglob("*") if path.is_file()])
        yield record, folder, sorted({folder / name for name in names} - {record})


def files(home: Path, steps: Container[str] | None = None) -> dict[str, Path]:
    """`STEP/FINGERPRINT/FILE` -> its path, of all finished artifacts, or of those of some steps."""
    found: dict[str, Path] = {}
    for record, folder, own in artifacts(home):
        name = record.parent.relative_to(home / "store")
        if steps is None or name.parts[0] in steps:
            found |= {f"{name}/{RECORD}": record, **{f"{name}/{path.relative_to(folder)}": path for path in own}}
    return found


def contents(home: Path, left_out: Container[str] = PLACED) -> dict[str, str]:
    """`STEP/FINGERPRINT/FILE` -> digest of what of it must be equal in every run."""

    def pick(value: Any) -> Any:
        if isinstance(value, dict):
            kept = (key for key in value if not TIMES.search(str(key)) and key not in left_out)
            return {key: pick(value[key]) for key in kept}
        return [pick(inner) for inner in value] if isinstance(value, list) else value

    def content(path: Path) -> bytes:
        if path.name not in (RECORD, "sweep.json", "trace.parquet"):
            return path.read_bytes()
        is_trace = path.suffix == ".parquet"
        value = pq.read_table(path).to_pylist() if is_trace else json.loads(path.read_text())
        return json.dumps(pick(value), sort_keys=True).replace(str(home), "HOME").encode()

    return {name: hashlib.sha256(content(path)).hexdigest()[:16] for name, path in files(home).items()}


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """One line for every name that only one run has, or that differs."""
    lines = [f"only in the undisturbed run: {name}" for name in sorted(expected.keys() - found.keys())]
    lines += [f"only in the other run: {name}" for name in sorted(found.keys() - expected.keys())]
    both = sorted(expected.keys() & found.keys())
    return lines + [f"differs: {name}" for name in both if expected[name] != found[name]]


def unfinished(home: Path) -> set[str]:
    """Files in the store that belong to no finished artifact, but for the logs, of which each start has its own."""
    known = set(files(home).values())
    paths = [path for path in (home / "store").rglob("*") if path.parent.name != "logs"]
    return {str(path.relative_to(home)) for path in paths if path.is_file() and path not in known}


def identities(home: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, time and size of every file of every finished artifact."""
    stats = {name: os.stat(path) for name, path in files(home).items()}
    return {name: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


def rewritten(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> list[str]:
    """One line for every file of a finished artifact that was changed or removed since."""
    return [f"written again after it was finished: {name}" for name in before if after.get(name) != before[name]]


def tracked(uri: str, killed: int = 0) -> list[str]:
    """What is wrong with the runs of a finished job: not one finished parent (beside links to it, of a job that was
    started again although it had done all), two finished runs of a step, a run that is still running.

    Args:
        killed: how many drivers ended on another host, whose runs no later one could go on with.
    """
    runs = read_runs(uri)
    parents = [run for run in runs if run.parent_id is None and run.status != "cached"]
    lines = []
    if sorted(run.status for run in parents) not in [["finished", *["killed"] * count] for count in range(killed + 1)]:
        lines.append(f"parent runs: {', '.join(f'{run.name} {run.status}' for run in parents) or 'none'}")
    client = connect(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    still = client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'", ViewType.ALL)
    lines += [f"still running: {run.name}" for run in runs if run.status == "running"]
    lines += [f"RUNNING in MLflow: {run.info.run_name}" for run in still]
    names = [(run.tags["midmask.step"], run.tags["midmask.fingerprint"]) for run in runs if run.status == "finished"]
    return lines + [f"finished twice: {name}" for name in sorted(set(names)) if names.count(name) > 1]


def metrics(home: Path) -> dict[str, str]:
    """`STEP FINGERPRINT METRIC` -> value in MLflow, of finished runs."""
    runs = [run for run in read_runs(f"sqlite:///{home}/mlflow.db") if run.status == "finished"]
    found = [(run.tags, name, value) for run in runs for name, value in run.metrics.items()]
    kept = [one for one in found if not TIMES.search(one[1]) and not one[1].startswith(NOT_RESULTS)]
    return {f"{tags['midmask.step']} {tags['midmask.fingerprint']} {name}": repr(value) for tags, name, value in kept}


def unlike_trainings(own: Path, other: Path) -> tuple[list[str], float]:
    """A line for each training of a home whose losses the other has not, and the largest relative difference of all."""
    one, two = files(own, TRAININGS), files(other, TRAININGS)
    lines, most = [], 0.0
    for trace in sorted(name for name in one if name.endswith("/trace.parquet")):
        if trace not in two:
            lines.append(f"only one has {trace}")
            continue
        losses = [pq.read_table(found[trace])["loss"].to_numpy() for found in (one, two)]
        apart = float(np.max(np.abs(losses[0] - losses[1]) / np.abs(losses[0])))
        config = json.loads(one[trace.replace("trace.parquet", RECORD)].read_text()).get("config", {})
        is_lexical = config.get("representation", {}).get("lexical") is not None
        most = max(most, apart)
        if not apart <= (LEXICAL_ALIKE if is_lexical else LOSS_ALIKE):
            lines.append(f"{trace}: losses differ by {apart:.1e}")
    return lines, most


def unlike_one_machine(work: Work, corpus: str, there: Path, alone: Path, folder: Path) -> tuple[list[str], str]:
    """What of a cluster's work one machine does not make: a line for each, and what was compared.

    Args:
        there: home whose store has what the cluster's has. alone: home where one machine did the same from the
            beginning. folder: where it does it again, from the cluster's weights.
    """
    again, before = folder / "again", folder / "before-mining"
    take_weights(there, again, mined=True)
    take_weights(there, before, mined=False)
    for home in (again, before):
        run_here(work, corpus, home)
    trainings, most = unlike_trainings(alone, there)
    made = {name: digest for name, digest in contents(there, OF_RUN).items() if name.partition("/")[0] not in TRAININGS}
    here = {**contents(before, OF_RUN), **contents(again, OF_RUN)}
    apart = differences({name: here[name] for name in made if name in here}, made)
    return [*trainings, *apart], f"{len(made) - len(apart)} files are equal, losses differ by {most:.1e} at most"


def take_weights(there: Path, home: Path, *, mined: bool) -> None:
    """The trainings of a store that was on S3, as they lie on a disk: without the folder of the attempt.

    Args:
        mined: with those that learned from mined negatives; without them, the negatives are mined again.
    """
    for record, folder, _ in artifacts(there):
        content = json.loads(record.read_text())
        if record.parent.parent.name in TRAININGS and (mined or "negatives" not in content["inputs"]):
            own = home / "store" / record.parent.relative_to(there / "store")
            shutil.copytree(folder, own, dirs_exist_ok=True)
            (own / RECORD).write_text(json.dumps({key: one for key, one in content.items() if key != "attempt"}))
